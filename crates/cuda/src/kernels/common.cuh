// Shared by all kernels, prepended to each source after element.cuh. Includes nothing, so that NVRTC needs no toolkit.
//
// Conventions. An operand is an address and a distance between rows in elements, because a value may be a slice of a
// concat; a row is a sample, or a pixel where channels are innermost. Kernels named *_packed read and write packs of 16
// bytes and need every row to begin at a multiple of them (*_v4 the same in f32 alone); *_single and *_v1 need
// only the element's own alignment. Sums run in a fixed order and end in double, so bits never vary between runs.
// Offsets are 64-bit; positions inside one sample fit 31 bits (the launch side refuses larger samples).
// Arithmetic is f32 whatever is stored.

#define THREADS 256
// Four resident blocks of 64 registers a thread, or two of 128 for kernels with many operands.
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 4)
#define WIDE_KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 2)

// Packs a thread keeps in flight.
template <int V> struct Unroll { enum { count = V == 1 ? 8 : 4 }; };

// n / d for n < 2^31, where magic was made from d on the host: a multiplier below, a shift above.
DEVICE u32 divide(u32 n, u64 magic) { return (__umulhi(n, (u32)magic) + n) >> (u32)(magic >> 32); }

// ---- element by element -------------------------------------------------------------------------------------------

// A block's stretch of one row: the row, and where in it this thread's first pack starts.
struct Tile { u64 row, start; };

template <int V> DEVICE Tile tile_of(u32 tiles_per_row) {
  u32 row = blockIdx.x / tiles_per_row, tile = blockIdx.x - row * tiles_per_row;
  return {row, (u64)tile * (THREADS * V * Unroll<V>::count) + threadIdx.x * V};
}

// Rows of `len` elements in packs that are numbered through all rows: `packs` a row, a divisor by it, `total` packs.
#define WALK u64 len, u32 packs, u64 magic, u32 total
#define WALKING (Rows{len, packs, magic, total})
struct Rows {
  u64 len;
  u32 packs;
  u64 magic;
  u32 total;
};

// Pack number `p`: its row and its first element there.
struct Place { u64 row, i; };
template <int V> DEVICE Place place_of(u32 p, const Rows& rows) {
  u32 row = divide(p, rows.magic);
  return {row, (u64)(p - row * rows.packs) * V};
}

// The number of this thread's pack u of so many.
#define WALKED 4
DEVICE u32 pack_of(int u) { return (blockIdx.x * WALKED + u) * THREADS + threadIdx.x; }

// out = f(in) for N inputs and M outputs. All of a thread's loads precede its stores and nobody else touches its
// elements, so any output may lie over any input. f(const float (&x)[N], float (&y)[M]).
template <int V, int N, int M, class F>
DEVICE void map_rows(const scalar* const (&in)[N], const u64 (&in_stride)[N], scalar* const (&out)[M],
                     const u64 (&out_stride)[M], const Rows& rows, F f) {
  Pack<V> a[WALKED][N];
#pragma unroll
  for (int u = 0; u < WALKED; u++) {
    u32 p = pack_of(u);
    Place at = place_of<V>(p, rows);
    if (p < rows.total && at.i + V <= rows.len) {
#pragma unroll
      for (int n = 0; n < N; n++) a[u][n] = load<V>(in[n] + at.row * in_stride[n] + at.i);
    }
  }
#pragma unroll
  for (int u = 0; u < WALKED; u++) {
    u32 p = pack_of(u);
    if (p >= rows.total) return;
    Place at = place_of<V>(p, rows);
    if (at.i + V <= rows.len) {
      float x[N][V], y[M][V];
#pragma unroll
      for (int n = 0; n < N; n++) a[u][n].get(x[n]);
#pragma unroll
      for (int l = 0; l < V; l++) {
        float from[N], to[M];
#pragma unroll
        for (int n = 0; n < N; n++) from[n] = x[n][l];
        f(from, to);
#pragma unroll
        for (int m = 0; m < M; m++) y[m][l] = to[m];
      }
#pragma unroll
      for (int m = 0; m < M; m++) {
        Pack<V> b;
        b.put(y[m]);
        store<V>(out[m] + at.row * out_stride[m] + at.i, b);
      }
    } else {
      for (u64 i = at.i; i < rows.len; i++) {
        float x[N], y[M];
#pragma unroll
        for (int n = 0; n < N; n++) x[n] = in[n][at.row * in_stride[n] + i];
        f(x, y);
#pragma unroll
        for (int m = 0; m < M; m++) out[m][at.row * out_stride[m] + i] = y[m];
      }
    }
  }
}

// The same where all operands are one row, which the launch side has made sure of.
template <int V, int N, int M, class F>
DEVICE void map_row(const scalar* const (&in)[N], scalar* const (&out)[M], u64 len, F f) {
  const u64 from[N] = {}, to[M] = {};
  const u64 no_row = 31ull << 32;  // A divisor beyond every pack.
  map_rows<V>(in, from, out, to, Rows{len, 0, no_row, (u32)((len + V - 1) / V)}, f);
}

#ifdef ELEMENT_F32
// A position in a sample [C, hw] and the constants of its channel; moves on one element at a time.
template <class K, class Make> struct Channel {
  u32 c, rest, hw;
  K k;
  DEVICE Channel(u32 i, u32 hw, u64 magic, Make& make) : c(divide(i, magic)), rest(i - c * hw), hw(hw), k(make(c)) {}
  DEVICE void next(Make& make, bool more) {
    if (++rest == hw && more) { rest = 0; k = make(++c); }
  }
};

// y = k(x) where k = make(channel) holds a channel's constants. In place as map_tile. One sample is [C, hw].
template <int V, int N, class Make>
DEVICE void map_channels(const scalar* const (&in)[N], scalar* out, u64 start, u32 len, u32 hw, u64 magic, Make make) {
  typedef decltype(make(0u)) K;
  Pack<V> a[Unroll<V>::count][N];
#pragma unroll
  for (int u = 0; u < Unroll<V>::count; u++) {
    u64 i = start + u * (THREADS * V);
    if (i + V <= len) {
#pragma unroll
      for (int n = 0; n < N; n++) a[u][n] = load<V>(in[n] + i);
    }
  }
#pragma unroll
  for (int u = 0; u < Unroll<V>::count; u++) {
    u64 i = start + u * (THREADS * V);
    if (i >= len) break;
    Channel<K, Make> at((u32)i, hw, magic, make);
    if (i + V <= len) {
      Pack<V> b;
#pragma unroll
      for (int l = 0; l < V; l++) {
        float x[N];
#pragma unroll
        for (int n = 0; n < N; n++) x[n] = a[u][n].lane[l];
        b.lane[l] = at.k(x);
        at.next(make, l + 1 < V);
      }
      store<V>(out + i, b);
    } else {
      for (; i < len; i++) {
        float x[N];
#pragma unroll
        for (int n = 0; n < N; n++) x[n] = in[n][i];
        out[i] = at.k(x);
        at.next(make, i + 1 < len);
      }
    }
  }
}

#endif

// ---- groups ---------------------------------------------------------------------------------------------------------

// Members of one launch, and elements of a member that a block takes.
#define MEMBERS 32
#define STRETCH 2048
template <class M> struct Table { M of[MEMBERS]; };

// The member a block works for and where in it the block starts. A member's first block is its `first`.
struct Share {
  u32 member, block;
  u64 start;  // Where all of a member's blocks take a stretch.
  template <class M> DEVICE Share(const Table<M>& table, u32 members) {
    u32 lane = threadIdx.x % 32;
    bool begun = lane < members && table.of[lane].first <= blockIdx.x;
    member = __popc(__ballot_sync(0xffffffffu, begun)) - 1;
    block = blockIdx.x - table.of[member].first;
    start = (u64)block * STRETCH;
  }
};

// Weights W [O, channels, hw], and on the other side the same as [O, hw, channels]. Channels are numbered through all filters,
// o · channels + c, as W has them. A block takes a tile of `across` of them with all their pixels through shared memory: W's side is
// moved along, the other in packs of channels. There pixels lie `pitch` apart, the channels of a pixel side by side.
#define MOST_PIXELS 256
#define TILE (STRETCH + 8 * MOST_PIXELS)
struct Turning {
  u32 hw, channels;   // hw is 0 where both sides lie alike.
  u32 across, packs;  // 0 without tiles; packs are of one channel where the other side has none.
  u64 by_hw, by_channels, by_packs;
  DEVICE u32 each() const { return across ? across * hw : STRETCH; }
  DEVICE u32 pitch() const { return across + 8; }
  // Where element e of W lies on the other side.
  DEVICE u64 place(u64 e) const {
    if (!hw) return e;
    u32 channel = divide((u32)e, by_hw);
    return of_channel(channel, (u32)e - channel * hw);
  }
  DEVICE u64 of_channel(u32 channel, u32 p) const {
    u32 o = divide(channel, by_channels);
    return ((u64)o * hw + p) * channels + channel - o * channels;
  }
  // f(l, where in the tile) for its elements e, e + 1, e + 2 and e + 3, in W's order.
  template <class F> DEVICE void each_of_four(u32 e, F f) const {
    u32 k = divide(e, by_hw), p = e - k * hw;
#pragma unroll
    for (int l = 0; l < 4; l++) {
      f(l, p * pitch() + k);
      if (++p == hw) {
        p = 0;
        k++;
      }
    }
  }
  // f(u, where in the tile, where on the other side) for N packs of V channels of a thread, from the block's pack `begin` on, of a
  // tile of `count` channels from `first` on.
  template <int V, int N, class F> DEVICE void each_pack(u32 begin, u32 first, u32 count, F f) const {
#pragma unroll
    for (int u = 0; u < N; u++) {
      u32 i = begin + u * THREADS + threadIdx.x, p = divide(i, by_packs), k = (i - p * packs) * V;
      if (p < hw && k < count) f(u, p * pitch() + k, of_channel(first + k, p));
    }
  }
};

// ---- sums ---------------------------------------------------------------------------------------------------------

// The sum over a warp, in every lane; the order is that of a butterfly.
template <class T> DEVICE T warp_sum(T v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

// The sums over a block, in thread 0.
template <int M> DEVICE void block_sum(double (&v)[M]) {
  __shared__ double warps[M][THREADS / 32];
#pragma unroll
  for (int m = 0; m < M; m++) {
    v[m] = warp_sum(v[m]);
    if (threadIdx.x % 32 == 0) warps[m][threadIdx.x / 32] = v[m];
  }
  __syncthreads();
  if (threadIdx.x == 0) {
#pragma unroll
    for (int m = 0; m < M; m++) {
      v[m] = warps[m][0];
      for (int w = 1; w < THREADS / 32; w++) v[m] += warps[m][w];
    }
  }
}

// One channel of N images, cut into packs: pack i of sample n is at n · stride + i · V. Walks by THREADS packs.
struct Walk {
  u64 j, n;
  u32 i, packs, step_n, step_i;
  DEVICE Walk(u64 j, u32 packs)
      : j(j), n(j / packs), i((u32)(j - n * packs)), packs(packs), step_n(THREADS / packs), step_i(THREADS % packs) {}
  DEVICE void next() {
    j += THREADS;
    n += step_n;
    i += step_i;
    if (i >= packs) { i -= packs; n++; }
  }
};

#ifdef ELEMENT_F32
// Adds f(x, sum) over packs begin..end of a channel; in[k] points at the channel in sample 0.
template <int V, int N, int M, class F>
DEVICE void sum_channel(const scalar* const (&in)[N], const u64 (&stride)[N], u32 packs, u64 begin, u64 end, F f,
                        double (&sum)[M]) {
  Walk at(begin + threadIdx.x, packs);
  while (at.j < end) {
    Pack<V> a[Unroll<V>::count][N];
    int taken = 0;
#pragma unroll
    for (int u = 0; u < Unroll<V>::count; u++) {
      if (at.j < end) {
#pragma unroll
        for (int n = 0; n < N; n++) a[u][n] = load<V>(in[n] + at.n * stride[n] + at.i * V);
        taken = u + 1;
      }
      at.next();
    }
#pragma unroll
    for (int u = 0; u < Unroll<V>::count; u++) {
      if (u < taken) {
#pragma unroll
        for (int l = 0; l < V; l++) {
          float x[N];
#pragma unroll
          for (int n = 0; n < N; n++) x[n] = a[u][n].lane[l];
          f(x, sum);
        }
      }
    }
  }
}
#endif

// A reduction over channels: block s · C + c sums stretch s of channel c into partial[(c · splits + s) · M].
struct Stretch {
  u32 c, s;
  u64 begin, end;
  DEVICE Stretch(u32 channels, u32 splits, u64 total) {
    s = blockIdx.x / channels;
    c = blockIdx.x - s * channels;
    u64 each = (total + splits - 1) / splits;
    begin = s * each < total ? s * each : total;
    end = begin + each < total ? begin + each : total;
  }
};

// The sums of a channel's partial sums, one warp a channel, in every lane.
template <int M> DEVICE void sum_partials(const double* partial, u32 c, u32 splits, double (&sum)[M]) {
#pragma unroll
  for (int m = 0; m < M; m++) sum[m] = 0;
  for (u32 s = threadIdx.x % 32; s < splits; s += 32) {
#pragma unroll
    for (int m = 0; m < M; m++) sum[m] += partial[((u64)c * splits + s) * M + m];
  }
#pragma unroll
  for (int m = 0; m < M; m++) sum[m] = warp_sum(sum[m]);
}

// ---- sliding windows ----------------------------------------------------------------------------------------------

// Geometry of a sliding window; K and S fix kernel and stride at compile time with dilation 1 (0: as given).
template <int K, int S> struct Window {
  u32 h, w, oh, ow, kh_, kw_, sh_, sw_, ph, pw, dh_, dw_;
  DEVICE u32 kh() const { return K ? K : kh_; }
  DEVICE u32 kw() const { return K ? K : kw_; }
  DEVICE u32 sh() const { return S ? S : sh_; }
  DEVICE u32 sw() const { return S ? S : sw_; }
  DEVICE u32 dh() const { return K ? 1 : dh_; }
  DEVICE u32 dw() const { return K ? 1 : dw_; }
};
#define WINDOW_PARAMS u32 h, u32 w, u32 oh, u32 ow, u32 kh, u32 kw, u32 sh, u32 sw, u32 ph, u32 pw, u32 dh, u32 dw
#define WINDOW(K, S) (Window<K, S>{h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw})

// First and one past the last window that can touch padded position t; the window's extent is d (k − 1) + 1.
DEVICE u32 first_window(u32 t, u32 extent, u32 stride) { return t < extent ? 0 : (t - extent) / stride + 1; }
DEVICE u32 end_window(u32 t, u32 stride, u32 windows) {
  u32 end = t / stride + 1;
  return end < windows ? end : windows;
}

// Element i of a sample [C, rows, columns].
struct Pixel { u32 plane, y, x; };
DEVICE Pixel pixel_of(u32 i, u32 pixels, u64 plane_magic, u32 columns, u64 row_magic) {
  u32 plane = divide(i, plane_magic), at = i - plane * pixels, y = divide(at, row_magic);
  return {plane, y, at - y * columns};
}

// ---- block-wide -----------------------------------------------------------------------------------------------------

// The largest value of a block, in every thread.
DEVICE float block_max(float v) {
  __shared__ float warps[THREADS / 32];
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
  __syncthreads();
  for (int w = 0; w < THREADS / 32; w++) v = fmaxf(v, warps[w]);
  return v;
}

// Whether an update may go on: without a guard (null) always, else when its number is finite.
DEVICE bool may_update(const float* guard) { return !guard || fabsf(*guard) <= 3.402823466e38f; }

#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED(name) extern __shared__ float name[]
#endif
