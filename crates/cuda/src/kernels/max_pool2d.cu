// Max pooling of x [N, C, h, w] to y [N, C, oh, ow], and its gradient. Padding acts as −∞; NaN wins.
//
// The gradient gathers: every pixel asks each window over it whether it is that window's first maximum in scan order.
// A pixel that equals the maximum looks for an earlier one; few do, so the search is rare. With indices forward writes the
// tap of each window's first maximum, NO_PLACE where dilation steps over the image, and the pixel compares taps instead.

#define NO_PLACE 255

DEVICE bool same(float a, float b) { return a == b || (a != a && b != b); }

template <int K, int S>
DEVICE float window_max(const scalar* x, Window<K, S> g, u32 oy, u32 ox) {
  float best = -__int_as_float(0x7f800000);
#pragma unroll
  for (u32 a = 0; a < g.kh(); a++) {
    u32 y = oy * g.sh() + a * g.dh() - g.ph;  // wraps when above the image, and then is not below h
#pragma unroll
    for (u32 b = 0; b < g.kw(); b++) {
      u32 column = ox * g.sw() + b * g.dw() - g.pw;
      if (y < g.h && column < g.w) {
        float v = x[(u64)y * g.w + column];
        if (v > best || v != v) best = v;
      }
    }
  }
  return best;
}

template <int K, int S>
DEVICE void max_pool(const scalar* x, u64 x_stride, scalar* y, u64 y_stride, u32 len, u32 tiles, u64 plane_magic,
                     u64 row_magic, Window<K, S> g) {
  Tile t = tile_of<1>(tiles);
#pragma unroll 2
  for (int u = 0; u < Unroll<1>::count; u++) {
    u64 i = t.start + u * THREADS;
    if (i >= len) return;
    Pixel p = pixel_of((u32)i, g.oh * g.ow, plane_magic, g.ow, row_magic);
    y[t.row * y_stride + i] = window_max(x + t.row * x_stride + (u64)p.plane * g.h * g.w, g, p.y, p.x);
  }
}

// True when no tap before (a, b) of window (oy, ox) holds its maximum too.
template <int K, int S>
DEVICE bool is_first(const scalar* x, Window<K, S> g, u32 oy, u32 ox, u32 a, u32 b, float best) {
  for (u32 i = 0; i <= a; i++) {
    u32 y = oy * g.sh() + i * g.dh() - g.ph;
    if (y >= g.h) continue;
    for (u32 j = 0; j < (i == a ? b : g.kw()); j++) {
      u32 column = ox * g.sw() + j * g.dw() - g.pw;
      if (column < g.w && same(x[(u64)y * g.w + column], best)) return false;
    }
  }
  return true;
}

// dx of one pixel; x, y and dy point at the plane.
template <int K, int S>
DEVICE float pixel_grad(const scalar* x, const scalar* y, const scalar* dy, Window<K, S> g, u32 row, u32 column) {
  float v = x[(u64)row * g.w + column], sum = 0;
  u32 ty = row + g.ph, tx = column + g.pw, x_first = first_window(tx, g.dw() * (g.kw() - 1) + 1, g.sw());
  u32 y_end = end_window(ty, g.sh(), g.oh), x_end = end_window(tx, g.sw(), g.ow);
  for (u32 oy = first_window(ty, g.dh() * (g.kh() - 1) + 1, g.sh()); oy < y_end; oy++) {
    u32 a = ty - oy * g.sh();
    if (a % g.dh() != 0) continue;
    for (u32 ox = x_first; ox < x_end; ox++) {
      u32 b = tx - ox * g.sw(), at = oy * g.ow + ox;
      if (b % g.dw() != 0 || !same(v, y[at])) continue;
      if (is_first(x, g, oy, ox, a / g.dh(), b / g.dw(), v)) sum += dy[at];
    }
  }
  return sum;
}

template <int K, int S>
DEVICE void max_pool_grad(const scalar* x, u64 x_stride, const scalar* y, u64 y_stride, const scalar* dy, u64 dy_stride,
                          scalar* dx, u64 dx_stride, u32 len, u32 tiles, u64 plane_magic, u64 row_magic, Window<K, S> g) {
  Tile t = tile_of<1>(tiles);
#pragma unroll 2
  for (int u = 0; u < Unroll<1>::count; u++) {
    u64 i = t.start + u * THREADS;
    if (i >= len) return;
    Pixel p = pixel_of((u32)i, g.h * g.w, plane_magic, g.w, row_magic);
    u64 above = (u64)p.plane * g.h * g.w, below = (u64)p.plane * g.oh * g.ow;
    dx[t.row * dx_stride + i] = pixel_grad(x + t.row * x_stride + above, y + t.row * y_stride + below,
                                           dy + t.row * dy_stride + below, g, p.y, p.x);
  }
}

#define FORWARD const scalar *x, u64 xs, scalar *y, u64 ys, u32 len, u32 tiles, u64 plane, u64 row, WINDOW_PARAMS
KERNEL max_pool2d(FORWARD) { max_pool(x, xs, y, ys, len, tiles, plane, row, WINDOW(0, 0)); }
KERNEL max_pool2d_k2s2(FORWARD) { max_pool(x, xs, y, ys, len, tiles, plane, row, WINDOW(2, 2)); }
KERNEL max_pool2d_k3s2(FORWARD) { max_pool(x, xs, y, ys, len, tiles, plane, row, WINDOW(3, 2)); }

#define BACKWARD                                                                                                         \
  const scalar *x, u64 xs, const scalar *y, u64 ys, const scalar *dy, u64 dys, scalar *dx, u64 dxs, u32 len, u32 tiles, \
      u64 plane, u64 row, WINDOW_PARAMS
KERNEL max_pool2d_grad(BACKWARD) { max_pool_grad(x, xs, y, ys, dy, dys, dx, dxs, len, tiles, plane, row, WINDOW(0, 0)); }
KERNEL max_pool2d_grad_k2s2(BACKWARD) {
  max_pool_grad(x, xs, y, ys, dy, dys, dx, dxs, len, tiles, plane, row, WINDOW(2, 2));
}
KERNEL max_pool2d_grad_k3s2(BACKWARD) {
  max_pool_grad(x, xs, y, ys, dy, dys, dx, dxs, len, tiles, plane, row, WINDOW(3, 2));
}

// The maximum as window_max has it, and the tap of the first pixel that is the same.
template <int K, int S>
DEVICE float window_place(const scalar* x, Window<K, S> g, u32 oy, u32 ox, u32& place) {
  float best = -__int_as_float(0x7f800000);
  place = NO_PLACE;
#pragma unroll
  for (u32 a = 0; a < g.kh(); a++) {
    u32 y = oy * g.sh() + a * g.dh() - g.ph;
#pragma unroll
    for (u32 b = 0; b < g.kw(); b++) {
      u32 column = ox * g.sw() + b * g.dw() - g.pw;
      if (y < g.h && column < g.w) {
        float v = x[(u64)y * g.w + column];
        if (v > best || place == NO_PLACE || (v != v && best == best)) place = a * g.kw() + b;
        if (v > best || v != v) best = v;
      }
    }
  }
  return best;
}

template <int K, int S>
DEVICE void max_pool_indices(const scalar* x, u64 x_stride, scalar* y, u64 y_stride, u8* indices, u64 indices_stride,
                             u32 len, u32 tiles, u64 plane_magic, u64 row_magic, Window<K, S> g) {
  Tile t = tile_of<1>(tiles);
#pragma unroll 2
  for (int u = 0; u < Unroll<1>::count; u++) {
    u64 i = t.start + u * THREADS;
    if (i >= len) return;
    Pixel p = pixel_of((u32)i, g.oh * g.ow, plane_magic, g.ow, row_magic);
    u32 place;
    y[t.row * y_stride + i] = window_place(x + t.row * x_stride + (u64)p.plane * g.h * g.w, g, p.y, p.x, place);
    indices[t.row * indices_stride + i] = (u8)place;
  }
}

// dx of one pixel; indices and dy point at the plane. The windows come in the order of pixel_grad.
template <int K, int S>
DEVICE float pixel_grad(const u8* indices, const scalar* dy, Window<K, S> g, u32 row, u32 column) {
  float sum = 0;
  u32 ty = row + g.ph, tx = column + g.pw, x_first = first_window(tx, g.dw() * (g.kw() - 1) + 1, g.sw());
  u32 y_end = end_window(ty, g.sh(), g.oh), x_end = end_window(tx, g.sw(), g.ow);
  for (u32 oy = first_window(ty, g.dh() * (g.kh() - 1) + 1, g.sh()); oy < y_end; oy++) {
    u32 a = ty - oy * g.sh();
    if (a % g.dh() != 0) continue;
    for (u32 ox = x_first; ox < x_end; ox++) {
      u32 b = tx - ox * g.sw(), at = oy * g.ow + ox;
      if (b % g.dw() == 0 && indices[at] == a / g.dh() * g.kw() + b / g.dw()) sum += dy[at];
    }
  }
  return sum;
}

template <int K, int S>
DEVICE void max_pool_indices_grad(const u8* indices, u64 indices_stride, const scalar* dy, u64 dy_stride, scalar* dx,
                                  u64 dx_stride, u32 len, u32 tiles, u64 plane_magic, u64 row_magic, Window<K, S> g) {
  Tile t = tile_of<1>(tiles);
#pragma unroll 2
  for (int u = 0; u < Unroll<1>::count; u++) {
    u64 i = t.start + u * THREADS;
    if (i >= len) return;
    Pixel p = pixel_of((u32)i, g.h * g.w, plane_magic, g.w, row_magic);
    u64 below = (u64)p.plane * g.oh * g.ow;
    dx[t.row * dx_stride + i] =
        pixel_grad(indices + t.row * indices_stride + below, dy + t.row * dy_stride + below, g, p.y, p.x);
  }
}

#define INDICES_FORWARD                                                                                               \
  const scalar *x, u64 xs, scalar *y, u64 ys, u8 *indices, u64 is, u32 len, u32 tiles, u64 plane, u64 row, WINDOW_PARAMS
KERNEL max_pool2d_indices(INDICES_FORWARD) {
  max_pool_indices(x, xs, y, ys, indices, is, len, tiles, plane, row, WINDOW(0, 0));
}
KERNEL max_pool2d_indices_k2s2(INDICES_FORWARD) {
  max_pool_indices(x, xs, y, ys, indices, is, len, tiles, plane, row, WINDOW(2, 2));
}
KERNEL max_pool2d_indices_k3s2(INDICES_FORWARD) {
  max_pool_indices(x, xs, y, ys, indices, is, len, tiles, plane, row, WINDOW(3, 2));
}

#define INDICES_BACKWARD                                                                                        \
  const u8 *indices, u64 is, const scalar *dy, u64 dys, scalar *dx, u64 dxs, u32 len, u32 tiles, u64 plane, u64 row, \
      WINDOW_PARAMS
KERNEL max_pool2d_indices_grad(INDICES_BACKWARD) {
  max_pool_indices_grad(indices, is, dy, dys, dx, dxs, len, tiles, plane, row, WINDOW(0, 0));
}
KERNEL max_pool2d_indices_grad_k2s2(INDICES_BACKWARD) {
  max_pool_indices_grad(indices, is, dy, dys, dx, dxs, len, tiles, plane, row, WINDOW(2, 2));
}
KERNEL max_pool2d_indices_grad_k3s2(INDICES_BACKWARD) {
  max_pool_indices_grad(indices, is, dy, dys, dx, dxs, len, tiles, plane, row, WINDOW(3, 2));
}
