// y = max(x, 0), and dx = dy where y is above 0. NaN goes through both.
//
// With a mask: bit e mod 8 of byte e / 8 of a row says whether element e lets the gradient through. Packs of 16 bytes are
// numbered so that those of a byte lie in adjacent lanes, which put it together among themselves; what does not lie in packs is
// done by a thread a byte.

DEVICE float relu_of(float v) { return v <= 0.f ? 0.f : v; }

template <int V> DEVICE void relu(const scalar* x, u64 xs, scalar* y, u64 ys, const Rows& rows) {
  const scalar* const in[1] = {x};
  scalar* const out[1] = {y};
  const u64 from[1] = {xs}, to[1] = {ys};
  map_rows<V>(in, from, out, to, rows, [](const float (&v)[1], float (&r)[1]) { r[0] = relu_of(v[0]); });
}

template <int V>
DEVICE void relu_grad(const scalar* y, u64 ys, const scalar* dy, u64 dys, scalar* dx, u64 dxs, const Rows& rows) {
  const scalar* const in[2] = {y, dy};
  scalar* const out[1] = {dx};
  const u64 from[2] = {ys, dys}, to[1] = {dxs};
  map_rows<V>(in, from, out, to, rows, [](const float (&v)[2], float (&r)[1]) { r[0] = v[0] <= 0.f ? 0.f : v[1]; });
}

KERNEL relu_packed(const scalar* x, u64 xs, scalar* y, u64 ys, WALK) { relu<PACK>(x, xs, y, ys, WALKING); }
KERNEL relu_single(const scalar* x, u64 xs, scalar* y, u64 ys, WALK) { relu<1>(x, xs, y, ys, WALKING); }
WIDE_KERNEL relu_grad_packed(const scalar* y, u64 ys, const scalar* dy, u64 dys, scalar* dx, u64 dxs, WALK) {
  relu_grad<PACK>(y, ys, dy, dys, dx, dxs, WALKING);
}
KERNEL relu_grad_single(const scalar* y, u64 ys, const scalar* dy, u64 dys, scalar* dx, u64 dxs, WALK) {
  relu_grad<1>(y, ys, dy, dys, dx, dxs, WALKING);
}

// A pack; beyond the end of the row zeros.
DEVICE Pack<PACK> load_until(const scalar* at, u64 i, u64 len) {
  if (i + PACK <= len) return load<PACK>(at + i);
  float v[PACK];
#pragma unroll
  for (int l = 0; l < PACK; l++) v[l] = i + l < len ? (float)at[i + l] : 0.f;
  Pack<PACK> pack;
  pack.put(v);
  return pack;
}

DEVICE void store_until(scalar* at, u64 i, u64 len, const float (&v)[PACK]) {
  if (i + PACK <= len) {
    Pack<PACK> pack;
    pack.put(v);
    return store<PACK>(at + i, pack);
  }
#pragma unroll
  for (int l = 0; l < PACK; l++)
    if (i + l < len) at[i + l] = v[l];
}

// The byte of elements i..i + 8, in the lane whose pack begins there; all lanes of the warp must come.
DEVICE u32 byte_of(u32 bits) { return PACK == 8 ? bits : bits | __shfl_xor_sync(0xffffffffu, bits, 1) << 4; }

KERNEL relu_mask_packed(const scalar* x, u64 xs, scalar* y, u64 ys, u8* mask, u64 ms, WALK) {
  const Rows rows = WALKING;
  Pack<PACK> a[WALKED];
#pragma unroll
  for (int u = 0; u < WALKED; u++) {
    u32 p = pack_of(u);
    Place at = place_of<PACK>(p, rows);
    if (p < rows.total) a[u] = load_until(x + at.row * xs, at.i, len);
  }
#pragma unroll
  for (int u = 0; u < WALKED; u++) {
    u32 p = pack_of(u);
    Place at = place_of<PACK>(p, rows);
    float v[PACK];
    a[u].get(v);
    u32 bits = 0;
#pragma unroll
    for (int l = 0; l < PACK; l++) {
      bits |= (u32)!(v[l] <= 0.f) << l;
      v[l] = relu_of(v[l]);
    }
    u32 byte = byte_of(p < rows.total ? bits : 0);
    if (p >= rows.total) continue;
    store_until(y + at.row * ys, at.i, len, v);
    if (at.i % 8 == 0 && at.i < len) mask[at.row * ms + at.i / 8] = (u8)byte;
  }
}

KERNEL relu_mask_grad_packed(const u8* mask, u64 ms, const scalar* dy, u64 dys, scalar* dx, u64 dxs, WALK) {
  const Rows rows = WALKING;
  Pack<PACK> a[WALKED];
  u32 bits[WALKED];
#pragma unroll
  for (int u = 0; u < WALKED; u++) {
    u32 p = pack_of(u);
    Place at = place_of<PACK>(p, rows);
    bits[u] = p < rows.total && at.i < len ? (u32)mask[at.row * ms + at.i / 8] >> (at.i % 8) : 0;
    if (p < rows.total) a[u] = load_until(dy + at.row * dys, at.i, len);
  }
#pragma unroll
  for (int u = 0; u < WALKED; u++) {
    u32 p = pack_of(u);
    if (p >= rows.total) return;
    Place at = place_of<PACK>(p, rows);
    float v[PACK];
    a[u].get(v);
#pragma unroll
    for (int l = 0; l < PACK; l++) v[l] = bits[u] >> l & 1 ? v[l] : 0.f;
    store_until(dx + at.row * dxs, at.i, len, v);
  }
}

// A thread a byte: samples of `sample` elements in rows of `row`, `bytes` of mask a sample.
#define BYTES u64 sample, u64 row, u64 bytes, u64 total
struct Byte {
  u64 n, first, byte, rows;
  DEVICE Byte(u64 sample, u64 row, u64 bytes)
      : n(0), first(0), byte((u64)blockIdx.x * THREADS + threadIdx.x), rows(sample / row) {
    n = byte / bytes;
    first = (byte - n * bytes) * 8;
  }
  DEVICE u64 at(u64 e, u64 row, u64 stride) const { return (n * rows + e / row) * stride + e % row; }
};

KERNEL relu_mask_single(const scalar* x, u64 xs, scalar* y, u64 ys, u8* mask, u64 ms, BYTES) {
  Byte b(sample, row, bytes);
  if (b.byte >= total) return;
  u32 bits = 0;
  for (u32 l = 0; l < 8 && b.first + l < sample; l++) {
    float v = x[b.at(b.first + l, row, xs)];
    bits |= (u32)!(v <= 0.f) << l;
    y[b.at(b.first + l, row, ys)] = relu_of(v);
  }
  mask[b.n * ms + b.first / 8] = (u8)bits;
}

KERNEL relu_mask_grad_single(const u8* mask, u64 ms, const scalar* dy, u64 dys, scalar* dx, u64 dxs, BYTES) {
  Byte b(sample, row, bytes);
  if (b.byte >= total) return;
  u32 bits = mask[b.n * ms + b.first / 8];
  for (u32 l = 0; l < 8 && b.first + l < sample; l++) {
    float v = dy[b.at(b.first + l, row, dys)];
    dx[b.at(b.first + l, row, dxs)] = bits >> l & 1 ? v : 0.f;
  }
}
