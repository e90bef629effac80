// Maps with channels innermost, [rows, C]: shared by the kernels named *_nhwc, prepended to each after common.cuh.
//
//  channels ──►  tile 0        tile 1          A thread keeps one pack of channels, so that it loads what belongs to them
//  rows    ┌───────────────┬───────────────┐   once, and walks down a stretch of rows, `height` at a time. A block is a
//    │     │ threads       │               │   stretch of a tile.
//    ▼     │ width × height│               │
//          ├─ ─ ─ ─ ─ ─ ─ ─┤               │   Sums: each thread's in f32 over its rows, a block's
//          │  … a stretch  │               │   threads in double in one order, then the stretches in double in one order.
//          ╞═══════════════╡               │

#define COLUMNS u64 rows, u32 packs, u32 width, u32 tiles, u32 each
#define COLUMNS_PASSED rows, packs, width, tiles, each

struct Columns {
  u64 begin, end;   // This thread's rows: begin, begin + height, …
  u32 pack, stretch, height, packs;
  bool active;
  DEVICE Columns(COLUMNS) : packs(packs) {
    stretch = blockIdx.x / tiles;
    u32 row = threadIdx.x / width;
    pack = (blockIdx.x - stretch * tiles) * width + (threadIdx.x - row * width);
    height = THREADS / width;
    active = row < height && pack < packs;
    begin = (u64)stretch * each + row;
    u64 after = (u64)stretch * each + each;
    end = after < rows ? after : rows;
  }
};

// V numbers of a vector over channels, those of a pack.
template <int V> DEVICE void constants(const float* of, u32 pack, float (&v)[V]) {
#pragma unroll
  for (int l = 0; l < V; l++) v[l] = of[pack * V + l];
}

// A turn of the walk reads this many rows before it uses the first.
#define TURN 4

struct Nothing {
  DEVICE u32 operator()(u64) const { return 0; }
};

// visit(row, x, early(row)) for each of a thread's rows, x [N][V] the numbers there.
template <int V, int N, class E, class F>
DEVICE void walk_columns(const scalar* const (&in)[N], const u64 (&stride)[N], const Columns& at, E early, F visit) {
  if (!at.active) return;
  const scalar* from[N];
#pragma unroll
  for (int n = 0; n < N; n++) from[n] = in[n] + (u64)at.pack * V;
  u64 row = at.begin, step = at.height;
  for (; row + (TURN - 1) * step < at.end; row += TURN * step) {
    Pack<V> a[TURN][N];
    u32 bits[TURN];
#pragma unroll
    for (int u = 0; u < TURN; u++) {
      bits[u] = early(row + u * step);
#pragma unroll
      for (int n = 0; n < N; n++) a[u][n] = load<V>(from[n] + (row + u * step) * stride[n]);
    }
#pragma unroll
    for (int u = 0; u < TURN; u++) {
      float x[N][V];
#pragma unroll
      for (int n = 0; n < N; n++) a[u][n].get(x[n]);
      visit(row + u * step, x, bits[u]);
    }
  }
  for (; row < at.end; row += step) {
    float x[N][V];
    u32 bits = early(row);
#pragma unroll
    for (int n = 0; n < N; n++) load<V>(from[n] + row * stride[n]).get(x[n]);
    visit(row, x, bits);
  }
}

template <int V> DEVICE void store_columns(scalar* out, u64 stride, u64 row, const Columns& at, const float (&v)[V]) {
  Pack<V> pack;
  pack.put(v);
  store<V>(out + row * stride + (u64)at.pack * V, pack);
}

// Sums of a block's threads into partial[(stretch · C + channel) · M]; all threads must come.
template <int V, int M>
DEVICE void store_partial(const float (&sum)[M][V], const Columns& at, u32 width, double* partial) {
  __shared__ float shared[V * THREADS];
  // A thread's place is row · width + k; its lane l lies at l · THREADS + place, so that neither side has bank conflicts.
#pragma unroll
  for (int m = 0; m < M; m++) {
    if (m > 0) __syncthreads();
#pragma unroll
    for (int l = 0; l < V; l++) shared[l * THREADS + threadIdx.x] = at.active ? sum[m][l] : 0.f;
    __syncthreads();
    // Thread lane · width + k takes lane l of the pack that is its own anyway; there are as many rows of threads as lanes.
    u32 lane = threadIdx.x / width, k = threadIdx.x - lane * width;
    if (lane < V && at.pack < at.packs) {
      double total = 0;
      for (u32 row = 0; row < at.height; row++) total += shared[lane * THREADS + row * width + k];
      partial[(((u64)at.stretch * at.packs + at.pack) * V + lane) * M + m] = total;
    }
  }
}

// The sums over stretches of 8 channels a block, in the threads below 8; `c` is the channel.
template <int M> DEVICE void sum_stretches(const double* partial, u32 channels, u32 stretches, double (&sum)[M], u32& c) {
  __shared__ double shared[M][THREADS];
  u32 lane = threadIdx.x % 8, first = threadIdx.x / 8;
  c = blockIdx.x * 8 + lane;
#pragma unroll
  for (int m = 0; m < M; m++) sum[m] = 0;
  if (c < channels) {
    for (u32 s = first; s < stretches; s += THREADS / 8) {
#pragma unroll
      for (int m = 0; m < M; m++) sum[m] += partial[((u64)s * channels + c) * M + m];
    }
  }
#pragma unroll
  for (int m = 0; m < M; m++) shared[m][threadIdx.x] = sum[m];
  __syncthreads();
  if (threadIdx.x < 8) {
#pragma unroll
    for (int m = 0; m < M; m++) {
      for (u32 other = 1; other < THREADS / 8; other++) sum[m] += shared[m][other * 8 + lane];
    }
  }
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
