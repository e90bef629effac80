// Unfolding (im2col) of maps in NCHW order into channels innermost, and its gradient. X is f32 (`f32_*`) or of the element type.
// y[n, i, j, (c · WH + a) · WW + b] = x[n, c, i · sh − ph + a, j · sw − pw + b], 0 outside x and in padding channels.

// Of x: channels, rows, columns; the window, its strides, the padding above and left.
struct Taps { u32 channels, h, w, wh, ww, sh, sw, ph, pw; };
#define TAPS u32 channels, u32 h, u32 w, u32 wh, u32 ww, u32 sh, u32 sw, u32 ph, u32 pw
#define TAPS_PASSED (Taps{channels, h, w, wh, ww, sh, sw, ph, pw})

// A block makes a strip of one row of y. What its windows see of a channel in one of their rows is a line; lines lie in shared
// memory, `span` numbers each, in the order of y's channels: channel c' is number b = c' mod WW of line c' / WW.
#define TILE_ELEMENTS 6144
// Numbers of a line that a thread has on their way at a time.
#define AHEAD 8
#define STRIPS u32 packs, u32 strip, u32 span, u64 by_strips, u32 strips, u64 by_rows, u64 by_height, u64 by_width, u64 by_packs
#define STRIPS_PASSED packs, strip, span, by_strips, strips, by_rows, by_height, by_width, by_packs
// Where a window at a strip's beginning has the channels of a pack.
template <int V> struct alignas(2 * V) Places { unsigned short of[V]; };
template <int V, class S>
DEVICE void unfold(const S* x, u64 xs, scalar* y, u64 ys, u32 rows, u32 columns, const Taps& k, STRIPS) {
  __shared__ scalar tile[TILE_ELEMENTS];
  __shared__ __align__(16) unsigned short within[TILE_ELEMENTS];
  u32 place = divide(blockIdx.x, by_strips), begin = (blockIdx.x - place * strips) * strip;
  u32 n = divide(place, by_rows), i = place - n * rows, lines = k.channels * k.wh, channels = lines * k.ww;
  const S* of = x + n * xs;
  for (u32 c = threadIdx.x; c < packs * V; c += THREADS) {
    u32 line = divide(c, by_width);
    within[c] = (unsigned short)(c < channels ? line * span + c - line * k.ww : 0);
  }
  // A warp a line.
  for (u32 line = threadIdx.x / 32; line < lines; line += THREADS / 32) {
    u32 c = divide(line, by_height);
    // Places before x's beginning wrap to numbers beyond its end.
    u32 row = i * k.sh + line - c * k.wh - k.ph, left = begin * k.sw - k.pw;
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
  for (u32 e = threadIdx.x; e < wide * packs; e += THREADS) {
    u32 j = divide(e, by_packs), first = (e - j * packs) * V;
    Places<V> at = *(const Places<V>*)(within + first);
    float v[V];
#pragma unroll
    for (u32 l = 0; l < V; l++) v[l] = first + l < channels ? (float)tile[at.of[l] + j * k.sw] : 0.f;
    Pack<V> pack;
    pack.put(v);
    store<V>(y + ((u64)place * columns + begin + j) * ys + first, pack);
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
