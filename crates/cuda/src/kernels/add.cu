// y = a + b.

template <int V> DEVICE void add(const scalar* a, u64 as, const scalar* b, u64 bs, scalar* y, u64 ys, const Rows& rows) {
  const scalar* const in[2] = {a, b};
  scalar* const out[1] = {y};
  const u64 from[2] = {as, bs}, to[1] = {ys};
  map_rows<V>(in, from, out, to, rows, [](const float (&v)[2], float (&r)[1]) { r[0] = v[0] + v[1]; });
}

WIDE_KERNEL add_packed(const scalar* a, u64 as, const scalar* b, u64 bs, scalar* y, u64 ys, WALK) {
  add<PACK>(a, as, b, bs, y, ys, WALKING);
}
KERNEL add_single(const scalar* a, u64 as, const scalar* b, u64 bs, scalar* y, u64 ys, WALK) {
  add<1>(a, as, b, bs, y, ys, WALKING);
}
