// Casts between f32 and half precision, between orders, and of padding: `to` from f32, `from` into f32, `move` within the type.
//
// Between orders a tile of channels × pixels goes through shared memory, so that both sides are read and written along their
// own order. Padding channels are written as zeros.

template <class T> DEVICE void load8(const T* at, float (&v)[8]) { (*(const PackOf<T, 8>*)at).get(v); }
DEVICE void load8(const float* at, float (&v)[8]) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    PackOf<float, 4> half = ((const PackOf<float, 4>*)at)[h];
#pragma unroll
    for (int l = 0; l < 4; l++) v[4 * h + l] = half.lane[l];
  }
}
template <class T> DEVICE void store8(T* at, const float (&v)[8]) {
  PackOf<T, 8> pack;
  pack.put(v);
  *(PackOf<T, 8>*)at = pack;
}
DEVICE void store8(float* at, const float (&v)[8]) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    PackOf<float, 4> half;
#pragma unroll
    for (int l = 0; l < 4; l++) half.lane[l] = v[4 * h + l];
    ((PackOf<float, 4>*)at)[h] = half;
  }
}

// Rows of the same length on both sides.
template <int V, class S, class D> DEVICE void cast_rows(const S* x, u64 xs, D* y, u64 ys, const Rows& rows) {
  float v[TURN][V];
#pragma unroll
  for (int u = 0; u < TURN; u++) {
    u32 p = (blockIdx.x * TURN + u) * THREADS + threadIdx.x;
    Place at = place_of<V>(p, rows);
    const S* from = x + at.row * xs + at.i;
    if (p >= rows.total) break;
    if (V == 8 && at.i + 8 <= rows.len) {
      load8(from, (float(&)[8])v[u]);
    } else {
#pragma unroll
      for (int l = 0; l < V; l++) v[u][l] = at.i + l < rows.len ? (float)from[l] : 0.f;
    }
  }
#pragma unroll
  for (int u = 0; u < TURN; u++) {
    u32 p = (blockIdx.x * TURN + u) * THREADS + threadIdx.x;
    if (p >= rows.total) return;
    Place at = place_of<V>(p, rows);
    D* to = y + at.row * ys + at.i;
    if (V == 8 && at.i + 8 <= rows.len) {
      store8(to, (const float(&)[8])v[u]);
    } else {
#pragma unroll
      for (int l = 0; l < V; l++)
        if (at.i + l < rows.len) to[l] = v[u][l];
    }
  }
}

// Rows whose lengths differ by padding: a thread an element.
template <class S, class D> DEVICE void cast_padded(const S* x, u64 xs, D* y, u64 ys, u64 total, u32 channels, u32 stored) {
  u64 e = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (e >= total) return;
  u64 row = e / stored;
  u32 c = (u32)(e - row * stored);
  y[row * ys + c] = c < channels ? (float)x[row * xs + c] : 0.f;
}

// A block's tile of `tc` channels × `tp` pixels of one image; `stored` channels lie innermost, `channels` of them are not padding.
#define TILES u32 channels, u32 stored, u32 hw, u32 tc, u32 tp, u64 by_pixels, u64 by_packs, u32 across, u32 down
#define TILES_PASSED channels, stored, hw, tc, tp, by_pixels, by_packs, across, down
#define TILE_ELEMENTS 2048
struct Turned {
  u64 n;
  u32 c0, p0, pitch;
  DEVICE Turned(u32 tc, u32 tp, u32 across, u32 down) : pitch(tp | 1) {
    u32 b = blockIdx.x / across;
    c0 = (blockIdx.x - b * across) * tc;
    n = b / down;
    p0 = (u32)(b - n * down) * tp;
  }
};

template <int W, class S, class D> DEVICE void cast_nhwc(const S* x, u64 xs, D* y, u64 ys, TILES) {
  __shared__ float tile[2 * TILE_ELEMENTS];
  Turned t(tc, tp, across, down);
  for (u32 e = threadIdx.x; e < tc * tp; e += THREADS) {
    u32 c = divide(e, by_pixels), p = e - c * tp;
    bool inside = t.c0 + c < channels && t.p0 + p < hw;
    tile[c * t.pitch + p] = inside ? (float)x[t.n * xs + (u64)(t.c0 + c) * hw + t.p0 + p] : 0.f;
  }
  __syncthreads();
  u32 packs = tc / W;
  for (u32 e = threadIdx.x; e < tp * packs; e += THREADS) {
    u32 p = divide(e, by_packs), c = (e - p * packs) * W;
    if (t.p0 + p >= hw || t.c0 + c >= stored) continue;
    D* to = y + (t.n * hw + t.p0 + p) * ys + t.c0 + c;
    float v[W];
#pragma unroll
    for (int l = 0; l < W; l++) v[l] = tile[(c + l) * t.pitch + p];
    if (W == 8) store8(to, (const float(&)[8])v);
    else to[0] = v[0];
  }
}

template <int W, class S, class D> DEVICE void cast_nchw(const S* x, u64 xs, D* y, u64 ys, TILES) {
  __shared__ float tile[2 * TILE_ELEMENTS];
  Turned t(tc, tp, across, down);
  u32 packs = tc / W;
  for (u32 e = threadIdx.x; e < tp * packs; e += THREADS) {
    u32 p = divide(e, by_packs), c = (e - p * packs) * W;
    if (t.p0 + p >= hw || t.c0 + c >= stored) continue;
    const S* from = x + (t.n * hw + t.p0 + p) * xs + t.c0 + c;
    float v[W];
    if (W == 8) load8(from, (float(&)[8])v);
    else v[0] = from[0];
#pragma unroll
    for (int l = 0; l < W; l++) tile[(c + l) * t.pitch + p] = v[l];
  }
  __syncthreads();
  for (u32 e = threadIdx.x; e < tc * tp; e += THREADS) {
    u32 c = divide(e, by_pixels), p = e - c * tp;
    if (t.c0 + c < channels && t.p0 + p < hw) y[t.n * ys + (u64)(t.c0 + c) * hw + t.p0 + p] = tile[c * t.pitch + p];
  }
}

KERNEL cast_to_packed(const float* x, u64 xs, scalar* y, u64 ys, WALK) { cast_rows<8>(x, xs, y, ys, WALKING); }
KERNEL cast_to_single(const float* x, u64 xs, scalar* y, u64 ys, WALK) { cast_rows<1>(x, xs, y, ys, WALKING); }
KERNEL cast_from_packed(const scalar* x, u64 xs, float* y, u64 ys, WALK) { cast_rows<8>(x, xs, y, ys, WALKING); }
KERNEL cast_from_single(const scalar* x, u64 xs, float* y, u64 ys, WALK) { cast_rows<1>(x, xs, y, ys, WALKING); }
KERNEL cast_move_packed(const scalar* x, u64 xs, scalar* y, u64 ys, WALK) { cast_rows<8>(x, xs, y, ys, WALKING); }
KERNEL cast_move_single(const scalar* x, u64 xs, scalar* y, u64 ys, WALK) { cast_rows<1>(x, xs, y, ys, WALKING); }

#define PADDED u64 total, u32 channels, u32 stored
KERNEL cast_to_padded(const float* x, u64 xs, scalar* y, u64 ys, PADDED) { cast_padded(x, xs, y, ys, total, channels, stored); }
KERNEL cast_from_padded(const scalar* x, u64 xs, float* y, u64 ys, PADDED) { cast_padded(x, xs, y, ys, total, channels, stored); }
KERNEL cast_move_padded(const scalar* x, u64 xs, scalar* y, u64 ys, PADDED) { cast_padded(x, xs, y, ys, total, channels, stored); }

#define TO const float *x, u64 xs, scalar *y, u64 ys
#define FROM const scalar *x, u64 xs, float *y, u64 ys
#define MOVE const scalar *x, u64 xs, scalar *y, u64 ys
KERNEL cast_to_nhwc_packed(TO, TILES) { cast_nhwc<8>(x, xs, y, ys, TILES_PASSED); }
KERNEL cast_to_nhwc_single(TO, TILES) { cast_nhwc<1>(x, xs, y, ys, TILES_PASSED); }
KERNEL cast_from_nhwc_packed(FROM, TILES) { cast_nhwc<8>(x, xs, y, ys, TILES_PASSED); }
KERNEL cast_from_nhwc_single(FROM, TILES) { cast_nhwc<1>(x, xs, y, ys, TILES_PASSED); }
KERNEL cast_move_nhwc_packed(MOVE, TILES) { cast_nhwc<8>(x, xs, y, ys, TILES_PASSED); }
KERNEL cast_move_nhwc_single(MOVE, TILES) { cast_nhwc<1>(x, xs, y, ys, TILES_PASSED); }
KERNEL cast_to_nchw_packed(TO, TILES) { cast_nchw<8>(x, xs, y, ys, TILES_PASSED); }
KERNEL cast_to_nchw_single(TO, TILES) { cast_nchw<1>(x, xs, y, ys, TILES_PASSED); }
KERNEL cast_from_nchw_packed(FROM, TILES) { cast_nchw<8>(x, xs, y, ys, TILES_PASSED); }
KERNEL cast_from_nchw_single(FROM, TILES) { cast_nchw<1>(x, xs, y, ys, TILES_PASSED); }
KERNEL cast_move_nchw_packed(MOVE, TILES) { cast_nchw<8>(x, xs, y, ys, TILES_PASSED); }
KERNEL cast_move_nchw_single(MOVE, TILES) { cast_nchw<1>(x, xs, y, ys, TILES_PASSED); }

// Many weights W [O, channels, hw] at once, each in one piece, into their own order or, where hw is not 0, into [O, hw, stored].
struct Member {
  const float* x;
  scalar* y;
  u64 len;  // stored elements of y
  u32 stored, unused;
  Turning turning;  // of y; without tiles where channels are padded
  u64 first;
  DEVICE float at(u32 e) const {
    u32 hw = turning.hw, channels = turning.channels;
    if (!hw) return x[e];
    u32 each = hw * stored, o = e / each, rest = e - o * each, p = rest / stored, c = rest - p * stored;
    return c < channels ? x[((u64)o * channels + c) * hw + p] : 0.f;
  }
};

// A block's tile: `size` elements from `start` on.
template <int V> DEVICE void cast_tile(const Member& of, u32 block, u64 start, u32 size, scalar* tile) {
  const Turning& turning = of.turning;
  const int FOURS = STRETCH / (4 * THREADS);
  float v[FOURS][4];
#pragma unroll
  for (int u = 0; u < FOURS; u++) {
    u32 e = (u * THREADS + threadIdx.x) * 4;
    if (e + 4 <= size) (*(const PackOf<float, 4>*)(of.x + start + e)).get(v[u]);
    else
#pragma unroll
      for (int l = 0; l < 4; l++) v[u][l] = e + l < size ? of.x[start + e + l] : 0.f;
  }
#pragma unroll
  for (int u = 0; u < FOURS; u++) {
    u32 e = (u * THREADS + threadIdx.x) * 4;
    turning.each_of_four(e, [&](int l, u32 at) {
      if (e + l < size) tile[at] = v[u][l];
    });
  }
  __syncthreads();
  u32 count = divide(size, turning.by_hw);
  turning.each_pack<V, STRETCH / (V * THREADS)>(0, block * turning.across, count, [&](int, u32 from, u64 to) {
    store<V>(of.y + to, load<V>(tile + from));
  });
}

KERNEL cast_weights(const __grid_constant__ Table<Member> table, u32 members) {
  Share share(table, members);
  const Member& of = table.of[share.member];
  if (of.turning.across) {
    __shared__ __align__(16) scalar tile[TILE];
    u64 each = of.turning.each(), start = share.block * each, rest = of.len - start;
    u32 size = (u32)(rest < each ? rest : each);
    if (of.turning.packs < of.turning.across) cast_tile<PACK>(of, share.block, start, size, tile);
    else cast_tile<1>(of, share.block, start, size, tile);
    return;
  }
  bool packs = ((u64)of.x | (u64)of.y) % 16 == 0;
#pragma unroll
  for (int u = 0; u < STRETCH / (8 * THREADS); u++) {
    u64 e = share.start + (u * THREADS + threadIdx.x) * 8;
    if (packs && e + 8 <= of.len) {
      float v[8];
      if (of.turning.hw) {
#pragma unroll
        for (int l = 0; l < 8; l++) v[l] = of.at((u32)e + l);
      } else {
        load8(of.x + e, v);
      }
      store8(of.y + e, v);
    } else {
      for (u64 end = e + 8 < of.len ? e + 8 : of.len; e < end; e++) of.y[e] = of.at((u32)e);
    }
  }
}
