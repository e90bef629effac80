// Copies rows from one distance to another: a part of a concat or split that does not already lie where it belongs.

template <int V>
DEVICE void copy_rows(const scalar* x, u64 x_stride, scalar* y, u64 y_stride, u64 len, u32 tiles) {
  Tile t = tile_of<V>(tiles);
  const scalar* const in[1] = {x + t.row * x_stride};
  scalar* const out[1] = {y + t.row * y_stride};
  map_tile<V>(in, out, t.start, len, [](const float (&v)[1], float (&r)[1]) { r[0] = v[0]; });
}

KERNEL copy_rows_v4(const scalar* x, u64 xs, scalar* y, u64 ys, u64 len, u32 tiles) {
  copy_rows<4>(x, xs, y, ys, len, tiles);
}
KERNEL copy_rows_v1(const scalar* x, u64 xs, scalar* y, u64 ys, u64 len, u32 tiles) {
  copy_rows<1>(x, xs, y, ys, len, tiles);
}
