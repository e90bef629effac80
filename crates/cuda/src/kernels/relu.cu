// y = max(x, 0), and dx = dy where y is not 0. NaN goes through both.

template <int V>
DEVICE void relu(const scalar* x, u64 x_stride, scalar* y, u64 y_stride, u64 len, u32 tiles) {
  Tile t = tile_of<V>(tiles);
  const scalar* const in[1] = {x + t.row * x_stride};
  scalar* const out[1] = {y + t.row * y_stride};
  map_tile<V>(in, out, t.start, len, [](const float (&v)[1], float (&r)[1]) { r[0] = v[0] <= 0.f ? 0.f : v[0]; });
}

template <int V>
DEVICE void relu_grad(const scalar* y, u64 y_stride, const scalar* dy, u64 dy_stride, scalar* dx, u64 dx_stride, u64 len,
                      u32 tiles) {
  Tile t = tile_of<V>(tiles);
  const scalar* const in[2] = {y + t.row * y_stride, dy + t.row * dy_stride};
  scalar* const out[1] = {dx + t.row * dx_stride};
  map_tile<V>(in, out, t.start, len, [](const float (&v)[2], float (&r)[1]) { r[0] = v[0] <= 0.f ? 0.f : v[1]; });
}

KERNEL relu_v4(const scalar* x, u64 xs, scalar* y, u64 ys, u64 len, u32 tiles) { relu<4>(x, xs, y, ys, len, tiles); }
KERNEL relu_v1(const scalar* x, u64 xs, scalar* y, u64 ys, u64 len, u32 tiles) { relu<1>(x, xs, y, ys, len, tiles); }
KERNEL relu_grad_v4(const scalar* y, u64 ys, const scalar* dy, u64 dys, scalar* dx, u64 dxs, u64 len, u32 tiles) {
  relu_grad<4>(y, ys, dy, dys, dx, dxs, len, tiles);
}
KERNEL relu_grad_v1(const scalar* y, u64 ys, const scalar* dy, u64 dys, scalar* dx, u64 dxs, u64 len, u32 tiles) {
  relu_grad<1>(y, ys, dy, dys, dx, dxs, len, tiles);
}
