// Adaptive average pooling of x [N, h, w, C]: output row i averages input rows ⌊i·h/oh⌋ up to ⌈(i+1)·h/oh⌉. A thread sums
// a pack of channels.

// Sizes are below 2¹⁵ (adaptive_avg_pool2d.rs), so that 32 bits hold their products.
DEVICE u32 region_start(u32 i, u32 in, u32 out) { return i * in / out; }
DEVICE u32 region_end(u32 i, u32 in, u32 out) { return ((i + 1) * in + out - 1) / out; }

// Pixels of a row that are read before the first is used.
#define AHEAD 8

template <int V>
DEVICE void pool(const scalar* x, u64 xs, scalar* y, u64 ys, PIXELS, u32 h, u32 w, u32 oh, u32 ow) {
  Spot at(PIXELS_PASSED, oh, ow);
  if (!at.active) return;
  const scalar* from = x + (u64)at.n * h * w * xs + at.pack * V;
  u32 y0 = region_start(at.y, h, oh), y1 = region_end(at.y, h, oh);
  u32 x0 = region_start(at.x, w, ow), x1 = region_end(at.x, w, ow);
  float sum[V];
#pragma unroll
  for (int l = 0; l < V; l++) sum[l] = 0.f;
  for (u32 a = y0; a < y1; a++) {
    for (u32 b = x0; b < x1; b += AHEAD) {
      Pack<V> some[AHEAD];
#pragma unroll
      for (u32 u = 0; u < AHEAD; u++)
        if (b + u < x1) some[u] = load<V>(from + ((u64)a * w + b + u) * xs);
#pragma unroll
      for (u32 u = 0; u < AHEAD; u++) {
        if (b + u >= x1) break;
        float v[V];
        some[u].get(v);
#pragma unroll
        for (int l = 0; l < V; l++) sum[l] += v[l];
      }
    }
  }
  float count = (float)((y1 - y0) * (x1 - x0));
  Pack<V> pack;
#pragma unroll
  for (int l = 0; l < V; l++) sum[l] /= count;
  pack.put(sum);
  store<V>(y + at.pixel * ys + at.pack * V, pack);
}

// A pixel lies in the regions ⌊y·oh/h⌋ up to ⌈(y+1)·oh/h⌉: the same rule with the sizes changed over.
template <int V>
DEVICE void pool_grad(const scalar* dy, u64 dys, scalar* dx, u64 dxs, PIXELS, u32 h, u32 w, u32 oh, u32 ow) {
  Spot at(PIXELS_PASSED, h, w);
  if (!at.active) return;
  const scalar* from = dy + (u64)at.n * oh * ow * dys + at.pack * V;
  float sum[V];
#pragma unroll
  for (int l = 0; l < V; l++) sum[l] = 0.f;
  for (u32 a = region_start(at.y, oh, h); a < region_end(at.y, oh, h); a++) {
    u32 rows = region_end(a, h, oh) - region_start(a, h, oh);
    for (u32 b = region_start(at.x, ow, w); b < region_end(at.x, ow, w); b++) {
      u32 columns = region_end(b, w, ow) - region_start(b, w, ow);
      float d[V];
      load<V>(from + ((u64)a * ow + b) * dys).get(d);
#pragma unroll
      for (int l = 0; l < V; l++) sum[l] += d[l] / (float)(rows * columns);
    }
  }
  Pack<V> pack;
  pack.put(sum);
  store<V>(dx + at.pixel * dxs + at.pack * V, pack);
}

// Where an image has one region, all its pixels get the same: a thread a row of them.
template <int V> DEVICE void spread(const scalar* dy, u64 dys, scalar* dx, u64 dxs, PIXELS, u32 h, u32 w) {
  Spot at(PIXELS_PASSED, h, 1);
  if (!at.active) return;
  float d[V];
  load<V>(dy + (u64)at.n * dys + at.pack * V).get(d);
#pragma unroll
  for (int l = 0; l < V; l++) d[l] = 0.f + d[l] / (float)(h * w);
  Pack<V> pack;
  pack.put(d);
  scalar* to = dx + at.pixel * w * dxs + at.pack * V;
  for (u32 b = 0; b < w; b++) store<V>(to + b * dxs, pack);
}

#define SIZES u32 h, u32 w, u32 oh, u32 ow
WIDE_KERNEL adaptive_avg_pool2d_packed(const scalar* x, u64 xs, scalar* y, u64 ys, PIXELS, SIZES) {
  pool<PACK>(x, xs, y, ys, PIXELS_PASSED, h, w, oh, ow);
}
KERNEL adaptive_avg_pool2d_single(const scalar* x, u64 xs, scalar* y, u64 ys, PIXELS, SIZES) {
  pool<1>(x, xs, y, ys, PIXELS_PASSED, h, w, oh, ow);
}
KERNEL adaptive_avg_pool2d_grad_packed(const scalar* dy, u64 dys, scalar* dx, u64 dxs, PIXELS, SIZES) {
  pool_grad<PACK>(dy, dys, dx, dxs, PIXELS_PASSED, h, w, oh, ow);
}
KERNEL adaptive_avg_pool2d_grad_single(const scalar* dy, u64 dys, scalar* dx, u64 dxs, PIXELS, SIZES) {
  pool_grad<1>(dy, dys, dx, dxs, PIXELS_PASSED, h, w, oh, ow);
}
KERNEL adaptive_avg_pool2d_spread_packed(const scalar* dy, u64 dys, scalar* dx, u64 dxs, PIXELS, SIZES) {
  spread<PACK>(dy, dys, dx, dxs, PIXELS_PASSED, h, w);
}
KERNEL adaptive_avg_pool2d_spread_single(const scalar* dy, u64 dys, scalar* dx, u64 dxs, PIXELS, SIZES) {
  spread<1>(dy, dys, dx, dxs, PIXELS_PASSED, h, w);
}
