// Unfolding (im2col) of maps in NCHW order into channels innermost, and its gradient. X is f32 (`f32_*`) or of the element type.
// y[n, i, j, (c · WH + a) · WW + b] = x[n, c, i · sh − ph + a, j · sw − pw + b], 0 outside x and in padding channels.

// Of x: channels, rows, columns; the window, its strides, the padding above and left.
struct Taps { u32 channels, h, w, wh, ww, sh, sw, ph, pw; };
#define TAPS u32 channels, u32 h, u32 w, u32 wh, u32 ww, u32 sh, u32 sw, u32 ph, u32 pw
#define TAPS_PASSED (Taps{channels, h, w, wh, ww, sh, sw, ph, pw})

// A block makes a strip of a band of y, some rows of a sample. What its windows see of a row of a channel is a line, which several
// rows of windows may see. Lines lie in shared memory, channel by channel, `span` numbers each.
#define TILE_ELEMENTS 9216
// Channels of y, with padding.
#define MOST_PLACES 2048
// Numbers of a line that a thread has on their way at a time.
#define AHEAD 8
// `high` rows of y are a band, of which a sample has `bands`; their windows see `tall` rows of x.
#define STRIPS                                                                                                       \
  u32 packs, u32 strip, u32 span, u64 by_strips, u32 strips, u32 high, u32 bands, u64 by_bands, u32 tall, u64 by_tall, \
      u64 by_height, u64 by_width, u64 by_packs
#define STRIPS_PASSED \
  packs, strip, span, by_strips, strips, high, bands, by_bands, tall, by_tall, by_height, by_width, by_packs
// Where a window at a strip's beginning, in the first row of a band, has the channels of a pack.
template <int V> struct alignas(2 * V) Places { unsigned short of[V]; };
template <int V, class S>
DEVICE void unfold(const S* x, u64 xs, scalar* y, u64 ys, u32 rows, u32 columns, const Taps& k, STRIPS) {
  __shared__ scalar tile[TILE_ELEMENTS];
  __shared__ __align__(16) unsigned short within[MOST_PLACES];
  u32 band = divide(blockIdx.x, by_strips), begin = (blockIdx.x - band * strips) * strip;
  u32 n = divide(band, by_bands), top = (band - n * bands) * high, channels = k.channels * k.wh * k.ww;
  const S* of = x + n * xs;
  for (u32 e = threadIdx.x; e < packs * V; e += THREADS) {
    u32 row = divide(e, by_width), c = divide(row, by_height);
    within[e] = (unsigned short)(e < channels ? (c * tall + row - c * k.wh) * span + e - row * k.ww : 0);
  }
  // A warp a line.
  for (u32 line = threadIdx.x / 32; line < k.channels * tall; line += THREADS / 32) {
    u32 c = divide(line, by_tall);
    // Places before x's beginning wrap to numbers beyond its end.
    u32 row = top * k.sh + line - c * tall - k.ph, left = begin * k.sw - k.pw;
    const S* from = of + ((u64)c * k.h + row) * k.w;
    u32 wide = row < k.h ? k.w : 0;
    for (u32 first = threadIdx.x % 32; first < span; first += 32 * AHEAD) {
      float v[AHEAD];
#pragma unroll
      for (u32 u = 0; u < AHEAD; u++) {
        u32 p = first + u * 32, column = left + p;
        v[u] = p < span && column < wide ? (float)from[column] : 0.f;
      }
#pragma unroll
      for (u32 u = 0; u < AHEAD; u++) {
        u32 p = first + u * 32;
        if (p < span) tile[line * span + p] = scalar(v[u]);
      }
    }
  }
  __syncthreads();
  u32 left = columns - begin, wide = left < strip ? left : strip;
  for (u32 i = 0; i < high && top + i < rows; i++) {
    const scalar* seen = tile + i * k.sh * span;
    scalar* to = y + (((u64)n * rows + top + i) * columns + begin) * ys;
    for (u32 e = threadIdx.x; e < wide * packs; e += THREADS) {
      u32 j = divide(e, by_packs), first = (e - j * packs) * V;
      Places<V> at = *(const Places<V>*)(within + first);
      float v[V];
#pragma unroll
      for (u32 l = 0; l < V; l++) v[l] = first + l < channels ? (float)seen[at.of[l] + j * k.sw] : 0.f;
      Pack<V> pack;
      pack.put(v);
      store<V>(to + (u64)j * ys + first, pack);
    }
  }
}
#define UNFOLD scalar *y, u64 ys, u32 rows, u32 columns, TAPS, STRIPS
#define UNFOLD_PASSED y, ys, rows, columns, TAPS_PASSED, STRIPS_PASSED
KERNEL unfold_f32_packed(const float* x, u64 xs, UNFOLD) { unfold<PACK>(x, xs, UNFOLD_PASSED); }
KERNEL unfold_f32_single(const float* x, u64 xs, UNFOLD) { unfold<1>(x, xs, UNFOLD_PASSED); }
KERNEL unfold_packed(const scalar* x, u64 xs, UNFOLD) { unfold<PACK>(x, xs, UNFOLD_PASSED); }
KERNEL unfold_single(const scalar* x, u64 xs, UNFOLD) { unfold<1>(x, xs, UNFOLD_PASSED); }

// A thread an element of dx: the sum over the windows that saw it, in f32, taps of the window in their order.
template <class D>
DEVICE void unfold_grad(const scalar* dy, u64 dys, D* dx, u64 dxs, u32 total, u64 by_sample, u64 by_plane, u64 by_row, u32 rows,
                        u32 columns, const Taps& k) {
  u32 e = blockIdx.x * THREADS + threadIdx.x;
  if (e >= total) return;
  u32 n = divide(e, by_sample), i = e - n * k.channels * k.h * k.w, c = divide(i, by_plane), at = i - c * k.h * k.w;
  u32 row = divide(at, by_row), column = at - row * k.w;
  float sum = 0.f;
  for (u32 a = 0; a < k.wh && a <= row + k.ph; a++) {
    u32 y = (row + k.ph - a) / k.sh;
    if (y * k.sh != row + k.ph - a || y >= rows) continue;
    for (u32 b = 0; b < k.ww && b <= column + k.pw; b++) {
      u32 x = (column + k.pw - b) / k.sw;
      if (x * k.sw != column + k.pw - b || x >= columns) continue;
      sum += (float)dy[(((u64)n * rows + y) * columns + x) * dys + (c * k.wh + a) * k.ww + b];
    }
  }
  dx[n * dxs + i] = sum;
}
#define UNFOLD_GRAD u32 total, u64 by_sample, u64 by_plane, u64 by_row, u32 rows, u32 columns, TAPS
#define UNFOLD_GRAD_PASSED total, by_sample, by_plane, by_row, rows, columns, TAPS_PASSED
KERNEL unfold_grad_f32(const scalar* dy, u64 dys, float* dx, u64 dxs, UNFOLD_GRAD) {
  unfold_grad(dy, dys, dx, dxs, UNFOLD_GRAD_PASSED);
}
KERNEL unfold_grad_same(const scalar* dy, u64 dys, scalar* dx, u64 dxs, UNFOLD_GRAD) {
  unfold_grad(dy, dys, dx, dxs, UNFOLD_GRAD_PASSED);
}
