// Maps with channels innermost, [rows, C]: shared by the kernels named *_nhwc, prepended to each after common.cuh.
//
//  channels ──►  tile 0        tile 1          A thread keeps one pack of channels, so that it loads what belongs to them
//  rows    ┌───────────────┬───────────────┐   once, and walks down a stretch of rows, `height` at a time. A block is a
//    │     │ threads       │               │   stretch of a tile.
//    ▼     │ width × height│               │
//          ├─ ─ ─ ─ ─ ─ ─ ─┤               │   For sums a block's stretch is every so many turns. Each thread's sum is f32 over its
//          │  … a stretch  │               │   rows, and so is that of some threads below each other; in double are those of such
//          ╞═══════════════╡               │   groups, of every so many stretches, and of those, each in one order.

// Packs side by side in a tile at most.
#define WIDEST 32

// Threads of a block that sums: one block a multiprocessor. Of 64 registers a thread for one map or two, 80 for two or more, 168 for
// what a thread keeps from row to row. Batch norm's sums without a sign, with a mask and of a pair have as many, and so the same bits.
#define TALL 1024
#define TALL_PAIR 768
#define TALL_HELD 384
#define TALL_KERNEL extern "C" __global__ void __launch_bounds__(TALL, 1)
#define TALL_PAIR_KERNEL extern "C" __global__ void __launch_bounds__(TALL_PAIR, 1)
#define TALL_HELD_KERNEL extern "C" __global__ void __launch_bounds__(TALL_HELD, 1)

// Last the turns of a tile, and divisors: a launch over a small map is over before a division would be.
#define COLUMNS \
  u64 rows, u32 packs, u32 width, u32 tiles, u32 each, u32 all_turns, u64 by_width, u64 by_tiles, u64 by_stretches
#define COLUMNS_PASSED rows, packs, width, tiles, each, all_turns, by_width, by_tiles, by_stretches

// A turn reads this many rows before it uses the first, and with many threads so many of them, as registers allow.
#define TURN 4
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define FEW 1
#else
#define FEW 2
#endif

// What a thread has of a map: a pack of channels, and of each of its block's turns the rows first, first + height, … .
struct Columns {
  u64 row, end;  // Where the first turn begins, and where the rows end.
  u64 leap;      // Rows from turn to turn; modulo 2⁶⁴ where they go backwards.
  u32 turns, height, line;       // line: the thread's among its block's rows of threads.
  u32 pack, slot, packs, width;  // Pack of a row; the same inside the tile.
  u32 tile, stretch, stretches;
  DEVICE bool active() const { return line < height && pack < packs; }

 protected:  // A Piece or Dealt.
  DEVICE Columns(COLUMNS, u32 threads) : end(rows), packs(packs), width(width) {
    stretches = divide(gridDim.x, by_tiles);
    stretch = divide(blockIdx.x, by_tiles);
    tile = blockIdx.x - stretch * tiles;
    line = divide(threadIdx.x, by_width);
    slot = threadIdx.x - line * width;
    pack = tile * width + slot;
    height = divide(threads, by_width);
    row = line;
    turns = 0;
  }
};

// Forward begins with what a cache is likely to have of its map. Convolutions write theirs from the beginning to the end; sums read
// them the other way, but in f16 convolutions make the statistics (docs/decisions/0026).
#ifdef ELEMENT_F16
#define FORWARD_FROM_END true
#else
#define FORWARD_FROM_END false
#endif

// One turn of `each` rows, for what happens to each element by itself, from the map's beginning to its end or the other way.
struct Piece : Columns {
  DEVICE Piece(COLUMNS, bool from_end = false) : Columns(COLUMNS_PASSED, THREADS) {
    row += (u64)(from_end ? stretches - 1 - stretch : stretch) * each;
    leap = 0;
    turns = active() && row < end;
  }
};

// Turns of `each` rows, dealt to the blocks of a tile in turn, from the map's end to its beginning. So at every time all blocks read
// rows near each other; first those that the kernel before wrote last, last those that the kernel after begins with, and a cache
// may have them.
struct Dealt : Columns {
  DEVICE Dealt(COLUMNS, u32 threads) : Columns(COLUMNS_PASSED, threads) {
    leap = 0 - (u64)stretches * each;
    u32 after = all_turns - 1 - stretch;  // Turns from the first to the map's beginning.
    if (active() && stretch < all_turns) turns = divide(after, by_stretches) + 1;
    row += (u64)after * each;
  }
};

// N numbers of every channel of a tile, made by a thread a channel, to the threads that have its pack: made(channel, numbers).
// All threads must come.
template <int V, int N, class F> DEVICE void by_channel(const Columns& at, F made, float (&numbers)[N][V]) {
  __shared__ __align__(16) float shared[N][V * WIDEST];
  u32 channels = at.width * V, c = at.tile * channels + threadIdx.x;
  if (threadIdx.x < channels && c < at.packs * V) {
    float mine[N];
    made(c, mine);
#pragma unroll
    for (int n = 0; n < N; n++) shared[n][threadIdx.x] = mine[n];
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < N; n++) {
#pragma unroll
    for (int l = 0; l < V; l++) numbers[n][l] = shared[n][at.slot * V + l];
  }
}

struct Nothing {
  DEVICE u32 operator()(u64) const { return 0; }
};

// A thread's rows of N maps, a turn at a time; where that is more than registers hold, AHEAD rows of a turn at a time, in the same
// order. The first reads are under way once this is made, so that what a block needs before it can use them comes meanwhile.
template <int V, int N, class E, int AHEAD = TURN> struct Turns {
  const Columns& at;
  E early;
  const scalar* in[N];
  u64 stride[N];
  Pack<V> a[AHEAD][N];
  u64 row;
  u32 bits[AHEAD], left, turns, part;

  DEVICE Turns(const scalar* const (&maps)[N], const u64 (&strides)[N], const Columns& at, E early) : at(at), early(early) {
#pragma unroll
    for (int n = 0; n < N; n++) {
      in[n] = maps[n] + (u64)at.pack * V;
      stride[n] = strides[n];
    }
    row = at.row;
    turns = at.turns;
    part = 0;
    read();
  }
  DEVICE void read() {
    // Only the last rows of a map are no full turn.
    u64 rest = turns > 0 && row < at.end ? at.end - row : 0;
    left = rest < AHEAD * at.height ? (u32)rest : AHEAD * at.height;
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      if (u * at.height < left) {
        bits[u] = early(row + u * at.height);
#pragma unroll
        for (int n = 0; n < N; n++) a[u][n] = load<V>(in[n] + (row + u * at.height) * stride[n]);
      }
    }
  }
  // visit(row, x, early(row)) for each row, x [N][V] the numbers there.
  template <class F> DEVICE void each(F visit) {
    while (turns > 0) {
#pragma unroll
      for (int u = 0; u < AHEAD; u++) {
        if (u * at.height < left) {
          float x[N][V];
#pragma unroll
          for (int n = 0; n < N; n++) a[u][n].get(x[n]);
          visit(row + u * at.height, x, bits[u]);
        }
      }
      if (AHEAD < TURN && part + AHEAD < TURN) {
        part += AHEAD;
        row += AHEAD * at.height;
      } else {
        part = 0;
        turns--;
        row += at.leap - (TURN - AHEAD) * at.height;
      }
      read();
    }
  }
};

template <int V> DEVICE void store_columns(scalar* out, u64 stride, u64 row, const Columns& at, const float (&v)[V]) {
  Pack<V> pack;
  pack.put(v);
  store<V>(out + row * stride + (u64)at.pack * V, pack);
}

// ---- batch norm: y = x · a + b -------------------------------------------------------------------------------------------

// A channel's a and b.
struct Line { float a, b; };
DEVICE Line line_of(float mean, float variance, float gamma, float beta, float eps) {
  float a = gamma * rsqrtf(variance + eps);
  return {a, fmaf(-mean, a, beta)};
}

#define COEFFICIENTS const float *mean, const float *variance, const float *gamma, const float *beta

// a and b of a thread's channels.
template <int V> DEVICE void lines(COEFFICIENTS, float eps, const Columns& at, float (&ab)[2][V]) {
  by_channel<V>(at, [&](u32 c, float (&made)[2]) {
    Line line = line_of(mean[c], variance[c], gamma[c], beta[c], eps);
    made[0] = line.a;
    made[1] = line.b;
  }, ab);
}

DEVICE float relu_of(float v) { return v <= 0.f ? 0.f : v; }

// The bits of a row's pack. Where rows are no whole bytes they are looked for in their sample's.
template <int V> struct Bits {
  const u8* mask;
  u32 pack, packs;
  u64 hw, bytes;
  DEVICE u32 operator()(u64 row) const {
    if (V == 8) return mask[row * packs + pack];
    if (V == 4 && packs % 2 == 0) return (u32)mask[(row * packs + pack) / 2] >> (pack % 2 * 4);
    u64 n = row / hw, e = ((row - n * hw) * packs + pack) * V;
    return (u32)mask[n * bytes + e / 8] >> (e % 8);
  }
};

// The signs of a row's pack: a byte of the mask, or half of one that the pack beside it fills. That one's thread is the next, and
// comes whenever this one does (nhwc.rs).
DEVICE void write_mask(u8* mask, u64 row, const Columns& at, u32 bits) {
  if (PACK == 4) {
    bits |= __shfl_xor_sync(3u << (threadIdx.x & 30), bits, 1) << 4;
    if (at.pack & 1) return;
  }
  mask[(row * at.packs + at.pack) * PACK / 8] = (u8)bits;
}

// ---- sums over rows -------------------------------------------------------------------------------------------------

// How many stretches of each tile have been summed. The block that comes last sets the count back to 0, so the next launch finds
// it as loading the module left it, whether issued, replayed or measured; a launch that does not end takes the context and its
// modules with it. Launches that count must not overlap: all of a module's run on one stream. Where a tile is one stretch
// nothing is counted, and where it is several there are fewer tiles than this (nhwc.rs).
#define MOST_TILES 1024
__device__ u32 arrived[MOST_TILES];

// atomicInc that orders what the block wrote before and reads after, around the barriers beside it. Two fences, each for all kinds
// of order, would cost more than the count. The tests' shim has it too.
#ifdef __CUDACC__
DEVICE u32 count_in(u32* at, u32 last) {
  u32 before;
  asm volatile("atom.acq_rel.gpu.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(at), "r"(last) : "memory");
  return before;
}
#endif

// M sums of a channel; one or two are moved by one access.
template <int M> struct alignas(M == 2 ? 16 : 8) Sums {
  double of[M];
  DEVICE void operator+=(const Sums& more) {
#pragma unroll
    for (int m = 0; m < M; m++) of[m] += more.of[m];
  }
};

// sum += of(i) for i = first, first + step, … below count, in this order; AHEAD of them are read before the first is added.
template <int AHEAD, class S, class F> DEVICE void add_up(u32 count, u32 first, u32 step, S& sum, F of) {
  for (u32 i = first; i < count; i += AHEAD * step) {
    S some[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
      if (i + u * step < count) some[u] = of(i + u * step);
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
      if (i + u * step < count) sum += some[u];
  }
}

// Whether this block is the last of its tile. What any of its threads wrote before is seen by all threads of the last block: the
// barrier before orders it before the count, the count before those after it, and the barrier after before what these read.
DEVICE bool is_last(const Columns& at) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) last = count_in(&arrived[at.tile], at.stretches - 1) == at.stretches - 1;
  __syncthreads();
  return last;
}

// A thread's part of a tile's sums: group `line / V`, V rows of threads, has V · width threads, as many as the tile has channels;
// each adds up one of them, lane by lane.
template <int T, int V> struct Adder {
  u32 group, groups, lane, channels, first, valid, channel;
  bool inside, writes;  // Whether the map has the channel; whether this thread has its sum in the end.
  DEVICE Adder(const Columns& at) {
    channels = at.width * V;
    group = at.line / V;
    groups = at.height / V;
    lane = at.line % V;
    first = at.tile * at.width;
    valid = at.packs - first < at.width ? at.packs - first : at.width;
    inside = at.slot < valid;
    writes = inside && group == 0;
    channel = (first + at.slot) * V + lane;
  }
};

// The sums of all groups in group 0. Four at a time are added, as long as there are several.
template <int T, int V, int M> DEVICE void add_groups(u32 groups, const Adder<T, V>& adder, double* shared, Sums<M>& total) {
  const int MOST = 4;
  while (groups > 1) {
    u32 left = (groups + MOST - 1) / MOST;
    if (adder.group >= left && adder.group < groups) {
#pragma unroll
      for (int m = 0; m < M; m++) shared[m * T + threadIdx.x] = total.of[m];
    }
    __syncthreads();
    if (adder.group < left) {
#pragma unroll
      for (int i = 1; i < MOST; i++) {
        if (adder.group + i * left < groups) {
#pragma unroll
          for (int m = 0; m < M; m++) total.of[m] += shared[m * T + threadIdx.x + i * left * adder.channels];
        }
      }
    }
    groups = left;
    if (groups > 1) __syncthreads();
  }
}

// finish(channel, sums) for each channel with the sums over all rows, in the block that comes last; all threads must come.
// `partial` holds C · M doubles a stretch.
template <int T, int V, int M, class F>
DEVICE void sum_columns(const float (&mine)[M][V], const Columns& at, double* partial, F finish) {
  const int ROWS = V * (T + WIDEST) / 2, GROUPED = M * T;
  __shared__ double shared[ROWS > GROUPED ? ROWS : GROUPED];
  float* by_row = (float*)shared;
  Adder<T, V> adder(at);
  u32 lanes_apart = T + at.width;
  Sums<M> total = {};
#pragma unroll
  for (int m = 0; m < M; m++) {
    // Neither side has bank conflicts: lanes lie a tile's width further on than a multiple of the banks, and so a warp's threads
    // read next to each other.
#pragma unroll
    for (int l = 0; l < V; l++) by_row[l * lanes_apart + threadIdx.x] = mine[m][l];
    __syncthreads();
    if (adder.group < adder.groups) {
      const float* column = by_row + adder.lane * lanes_apart + at.slot;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < V; i++) sum += column[(adder.group * V + i) * at.width];
      for (u32 row = adder.groups * V + adder.group; row < at.height; row += adder.groups) sum += column[row * at.width];
      total.of[m] = sum;
    }
    __syncthreads();
  }
  add_groups(adder.groups, adder, shared, total);
  if (at.stretches > 1) {
    Sums<M>* place = (Sums<M>*)partial + (u64)adder.first * V + adder.lane * adder.valid + at.slot;
    u64 apart = (u64)at.packs * V;
    if (adder.writes) place[at.stretch * apart] = total;
    if (!is_last(at)) return;
    total = {};
    // With 64 channels in packs, about the most that a thread has to add up: all of it is read at once.
    u32 count = adder.group < adder.groups && adder.inside ? at.stretches : 0;
    add_up<V == 1 ? 4 : T == TALL_PAIR && M < 3 ? 11 : 9>(count, adder.group, adder.groups, total,
                                                          [&](u32 s) { return place[s * apart]; });
    add_groups(at.stretches < adder.groups ? at.stretches : adder.groups, adder, shared, total);
  }
  if (adder.writes) finish(adder.channel, total.of);
}

// ---- pixels ---------------------------------------------------------------------------------------------------------

// A thread's pack of channels of one pixel of [N, rows, columns, C]; packs are numbered pixel by pixel, `total` of them.
#define PIXELS u32 total, u32 packs, u64 by_packs, u64 by_plane, u64 by_row
#define PIXELS_PASSED total, packs, by_packs, by_plane, by_row
struct Spot {
  u64 pixel;
  u32 n, y, x, pack;
  bool active;
  DEVICE Spot(PIXELS, u32 rows, u32 columns) {
    u32 e = blockIdx.x * THREADS + threadIdx.x, at = divide(e, by_packs);
    pack = e - at * packs;
    pixel = at;
    n = divide(at, by_plane);
    at -= n * rows * columns;
    y = divide(at, by_row);
    x = at - y * columns;
    active = e < total;
  }
};
