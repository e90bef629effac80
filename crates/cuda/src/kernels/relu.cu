// y = max(x, 0), and dx = dy where y is above 0. NaN goes through both.
//
// With a mask: bit e mod 8 of byte e / 8 of a row says whether element e lets the gradient through. A warp's elements are
// adjacent and begin at a multiple of 8, so its lanes put bytes together among themselves and every access stays as wide
// as without a mask.

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

// A pack; beyond the end of the row zeros.
template <int V> DEVICE Pack<V> load_until(const scalar* at, u64 i, u64 len) {
  if (i + V <= len) return load<V>(at + i);
  Pack<V> pack;
#pragma unroll
  for (int l = 0; l < V; l++) pack.lane[l] = i + l < len ? at[i + l] : 0.f;
  return pack;
}

template <int V> DEVICE void store_until(scalar* at, u64 i, u64 len, const Pack<V>& pack) {
  if (i + V <= len) return store<V>(at + i, pack);
#pragma unroll
  for (int l = 0; l < V; l++)
    if (i + l < len) at[i + l] = pack.lane[l];
}

// The byte of elements i..i + 8, in the lane whose pack begins there; all lanes of the warp must come.
template <int V> DEVICE u32 byte_of(u32 bits) {
  if (V == 1) return __ballot_sync(0xffffffffu, bits) >> (threadIdx.x % 32);
  return bits | __shfl_xor_sync(0xffffffffu, bits, 1) << 4;
}

template <int V>
DEVICE void relu_mask(const scalar* x, u64 x_stride, scalar* y, u64 y_stride, u8* mask, u64 mask_stride, u64 len,
                      u32 tiles) {
  Tile t = tile_of<V>(tiles);
  const scalar* from = x + t.row * x_stride;
  scalar* to = y + t.row * y_stride;
  u8* bytes = mask + t.row * mask_stride;
  Pack<V> a[Unroll<V>::count];
#pragma unroll
  for (int u = 0; u < Unroll<V>::count; u++) a[u] = load_until<V>(from, t.start + u * (THREADS * V), len);
#pragma unroll
  for (int u = 0; u < Unroll<V>::count; u++) {
    u64 i = t.start + u * (THREADS * V);
    u32 bits = 0;
#pragma unroll
    for (int l = 0; l < V; l++) {
      float v = a[u].lane[l];
      a[u].lane[l] = v <= 0.f ? 0.f : v;
      bits |= (u32)!(v <= 0.f) << l;
    }
    store_until<V>(to, i, len, a[u]);
    u32 byte = byte_of<V>(bits);
    if (i % 8 == 0 && i < len) bytes[i / 8] = (u8)byte;
  }
}

template <int V>
DEVICE void relu_mask_grad(const u8* mask, u64 mask_stride, const scalar* dy, u64 dy_stride, scalar* dx, u64 dx_stride,
                           u64 len, u32 tiles) {
  Tile t = tile_of<V>(tiles);
  const u8* bytes = mask + t.row * mask_stride;
  const scalar* from = dy + t.row * dy_stride;
  scalar* to = dx + t.row * dx_stride;
  Pack<V> a[Unroll<V>::count];
  u32 bits[Unroll<V>::count];
#pragma unroll
  for (int u = 0; u < Unroll<V>::count; u++) {
    u64 i = t.start + u * (THREADS * V);
    a[u] = load_until<V>(from, i, len);
    bits[u] = i < len ? (u32)bytes[i / 8] >> (i % 8) : 0;
  }
#pragma unroll
  for (int u = 0; u < Unroll<V>::count; u++) {
#pragma unroll
    for (int l = 0; l < V; l++) a[u].lane[l] = bits[u] >> l & 1 ? a[u].lane[l] : 0.f;
    store_until<V>(to, t.start + u * (THREADS * V), len, a[u]);
  }
}

#define MASK_FORWARD const scalar *x, u64 xs, scalar *y, u64 ys, u8 *mask, u64 ms, u64 len, u32 tiles
KERNEL relu_mask_v4(MASK_FORWARD) { relu_mask<4>(x, xs, y, ys, mask, ms, len, tiles); }
KERNEL relu_mask_v1(MASK_FORWARD) { relu_mask<1>(x, xs, y, ys, mask, ms, len, tiles); }
#define MASK_BACKWARD const u8 *mask, u64 ms, const scalar *dy, u64 dys, scalar *dx, u64 dxs, u64 len, u32 tiles
KERNEL relu_mask_grad_v4(MASK_BACKWARD) { relu_mask_grad<4>(mask, ms, dy, dys, dx, dxs, len, tiles); }
KERNEL relu_mask_grad_v1(MASK_BACKWARD) { relu_mask_grad<1>(mask, ms, dy, dys, dx, dxs, len, tiles); }
