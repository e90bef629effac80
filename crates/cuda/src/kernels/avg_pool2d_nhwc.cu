// Average pooling of x [N, h, w, C] and its gradient, which gathers from the windows over a pixel; a thread a pack of channels.

// What window (oy, ox) is divided by: its size within the padded image, or within the image.
DEVICE float divisor(Window<0, 0> g, u32 oy, u32 ox, u32 count_include_pad) {
  i32 y0 = (i32)(oy * g.sh_) - (i32)g.ph, x0 = (i32)(ox * g.sw_) - (i32)g.pw;
  i32 y1 = min(y0 + (i32)g.kh_, (i32)(g.h + g.ph)), x1 = min(x0 + (i32)g.kw_, (i32)(g.w + g.pw));
  if (!count_include_pad) {
    y0 = max(y0, 0);
    x0 = max(x0, 0);
    y1 = min(y1, (i32)g.h);
    x1 = min(x1, (i32)g.w);
  }
  return (float)((y1 - y0) * (x1 - x0));
}

template <int V>
DEVICE void pool(const scalar* x, u64 xs, scalar* y, u64 ys, PIXELS, Window<0, 0> g, u32 count_include_pad) {
  Spot at(PIXELS_PASSED, g.oh, g.ow);
  if (!at.active) return;
  const scalar* from = x + (u64)at.n * g.h * g.w * xs + at.pack * V;
  float sum[V];
#pragma unroll
  for (int l = 0; l < V; l++) sum[l] = 0.f;
  for (u32 a = 0; a < g.kh_; a++) {
    u32 row = at.y * g.sh_ + a - g.ph;  // wraps when above the image
    if (row >= g.h) continue;
    for (u32 b = 0; b < g.kw_; b++) {
      u32 column = at.x * g.sw_ + b - g.pw;
      if (column >= g.w) continue;
      float v[V];
      load<V>(from + ((u64)row * g.w + column) * xs).get(v);
#pragma unroll
      for (int l = 0; l < V; l++) sum[l] += v[l];
    }
  }
  float count = divisor(g, at.y, at.x, count_include_pad);
#pragma unroll
  for (int l = 0; l < V; l++) sum[l] /= count;
  Pack<V> pack;
  pack.put(sum);
  store<V>(y + at.pixel * ys + at.pack * V, pack);
}

template <int V>
DEVICE void pool_grad(const scalar* dy, u64 dys, scalar* dx, u64 dxs, PIXELS, Window<0, 0> g, u32 count_include_pad) {
  Spot at(PIXELS_PASSED, g.h, g.w);
  if (!at.active) return;
  const scalar* from = dy + (u64)at.n * g.oh * g.ow * dys + at.pack * V;
  u32 ty = at.y + g.ph, tx = at.x + g.pw;
  u32 y_end = end_window(ty, g.sh_, g.oh), x_end = end_window(tx, g.sw_, g.ow);
  float sum[V];
#pragma unroll
  for (int l = 0; l < V; l++) sum[l] = 0.f;
  for (u32 oy = first_window(ty, g.kh_, g.sh_); oy < y_end; oy++) {
    for (u32 ox = first_window(tx, g.kw_, g.sw_); ox < x_end; ox++) {
      float d[V], count = divisor(g, oy, ox, count_include_pad);
      load<V>(from + ((u64)oy * g.ow + ox) * dys).get(d);
#pragma unroll
      for (int l = 0; l < V; l++) sum[l] += d[l] / count;
    }
  }
  Pack<V> pack;
  pack.put(sum);
  store<V>(dx + at.pixel * dxs + at.pack * V, pack);
}

#define FORWARD const scalar *x, u64 xs, scalar *y, u64 ys, PIXELS, WINDOW_PARAMS, u32 count_include_pad
KERNEL avg_pool2d_packed(FORWARD) { pool<PACK>(x, xs, y, ys, PIXELS_PASSED, WINDOW(0, 0), count_include_pad); }
KERNEL avg_pool2d_single(FORWARD) { pool<1>(x, xs, y, ys, PIXELS_PASSED, WINDOW(0, 0), count_include_pad); }
#define BACKWARD const scalar *dy, u64 dys, scalar *dx, u64 dxs, PIXELS, WINDOW_PARAMS, u32 count_include_pad
KERNEL avg_pool2d_grad_packed(BACKWARD) { pool_grad<PACK>(dy, dys, dx, dxs, PIXELS_PASSED, WINDOW(0, 0), count_include_pad); }
KERNEL avg_pool2d_grad_single(BACKWARD) { pool_grad<1>(dy, dys, dx, dxs, PIXELS_PASSED, WINDOW(0, 0), count_include_pad); }
