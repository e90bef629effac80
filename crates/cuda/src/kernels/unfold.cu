// Unfolding (im2col) of maps in NCHW order into channels innermost, and its gradient. X is f32 (`f32_*`) or of the element type.
// y[n, i, j, (c · WH + a) · WW + b] = x[n, c, i · sh − ph + a, j · sw − pw + b], 0 outside x and in padding channels.

// Of x: channels, rows, columns; the window, its strides, the padding above and left.
struct Taps { u32 channels, h, w, wh, ww, sh, sw, ph, pw; };
#define TAPS u32 channels, u32 h, u32 w, u32 wh, u32 ww, u32 sh, u32 sw, u32 ph, u32 pw
#define TAPS_PASSED (Taps{channels, h, w, wh, ww, sh, sw, ph, pw})

// A thread makes V channels of a pixel; `packs` of them lie in a pixel, padding included. Divisors by the window's size and width.
template <int V, class S>
DEVICE void unfold(const S* x, u64 xs, scalar* y, u64 ys, PIXELS, u32 rows, u32 columns, const Taps& k, u64 by_window, u64 by_width) {
  Spot at(PIXELS_PASSED, rows, columns);
  if (!at.active) return;
  u32 first = at.pack * V, c = divide(first, by_window), r = first - c * k.wh * k.ww, a = divide(r, by_width), b = r - a * k.ww;
  const S* of = x + at.n * xs;
  // Places before x's beginning wrap to numbers beyond its end.
  u32 top = at.y * k.sh - k.ph, left = at.x * k.sw - k.pw;
  float v[V];
#pragma unroll
  for (int l = 0; l < V; l++) {
    u32 row = top + a, column = left + b;
    bool inside = c < k.channels && row < k.h && column < k.w;
    v[l] = inside ? (float)of[((u64)c * k.h + row) * k.w + column] : 0.f;
    if (++b == k.ww) {
      b = 0;
      if (++a == k.wh) {
        a = 0;
        c++;
      }
    }
  }
  Pack<V> pack;
  pack.put(v);
  store<V>(y + at.pixel * ys + first, pack);
}
#define UNFOLD scalar *y, u64 ys, PIXELS, u32 rows, u32 columns, TAPS, u64 by_window, u64 by_width
#define UNFOLD_PASSED y, ys, PIXELS_PASSED, rows, columns, TAPS_PASSED, by_window, by_width
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
