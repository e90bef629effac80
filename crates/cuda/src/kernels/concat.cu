// Copies rows from one distance to another: a part of a concat or split that does not already lie where it belongs.

template <int V> DEVICE void copy_rows(const scalar* x, u64 xs, scalar* y, u64 ys, const Rows& rows) {
  const scalar* const in[1] = {x};
  scalar* const out[1] = {y};
  const u64 from[1] = {xs}, to[1] = {ys};
  map_rows<V>(in, from, out, to, rows, [](const float (&v)[1], float (&r)[1]) { r[0] = v[0]; });
}

KERNEL copy_rows_packed(const scalar* x, u64 xs, scalar* y, u64 ys, WALK) { copy_rows<PACK>(x, xs, y, ys, WALKING); }
KERNEL copy_rows_single(const scalar* x, u64 xs, scalar* y, u64 ys, WALK) { copy_rows<1>(x, xs, y, ys, WALKING); }
