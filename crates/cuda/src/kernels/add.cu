// y = a + b.

template <int V>
DEVICE void add(const scalar* a, u64 a_stride, const scalar* b, u64 b_stride, scalar* y, u64 y_stride, u64 len, u32 tiles) {
  Tile t = tile_of<V>(tiles);
  const scalar* const in[2] = {a + t.row * a_stride, b + t.row * b_stride};
  scalar* const out[1] = {y + t.row * y_stride};
  map_tile<V>(in, out, t.start, len, [](const float (&v)[2], float (&r)[1]) { r[0] = v[0] + v[1]; });
}

KERNEL add_v4(const scalar* a, u64 as, const scalar* b, u64 bs, scalar* y, u64 ys, u64 len, u32 tiles) {
  add<4>(a, as, b, bs, y, ys, len, tiles);
}
KERNEL add_v1(const scalar* a, u64 as, const scalar* b, u64 bs, scalar* y, u64 ys, u64 len, u32 tiles) {
  add<1>(a, as, b, bs, y, ys, len, tiles);
}
