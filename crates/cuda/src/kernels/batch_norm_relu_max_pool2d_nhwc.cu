// Batch norm of x [N, h, w, C], ReLU and max pooling in one pass, and their gradient in two, so that the map between them is never
// made, nor its gradient. Windows are K × K, K 2 or 3, at a stride of 2. What is compared and what is added up is rounded as
// batch_norm_nhwc.cu and max_pool2d_nhwc.cu would store it; their rules hold: NaN wins, the first maximum in scan order counts.

#define NO_PLACE 255

// Sizes of the image and of the pooled map, the padding; divisors by what a walk has in an image and in a row.
#define SIZES u32 h, u32 w, u32 oh, u32 ow, u32 ph, u32 pw, u64 by_plane, u64 by_row
#define SIZES_PASSED (Sizes{h, w, oh, ow, ph, pw, by_plane, by_row})
struct Sizes {
  u32 h, w, oh, ow, ph, pw;
  u64 by_plane, by_row;
};

// ---- forward --------------------------------------------------------------------------------------------------------

// The maximum of each lane's window, and its first tap.
template <int V, int K>
DEVICE void best_of(const Pack<V> (&tap)[K * K], u32 inside, float (&best)[V], u32 (&place)[V]) {
#pragma unroll
  for (int l = 0; l < V; l++) {
    best[l] = -__int_as_float(0x7f800000);
    place[l] = NO_PLACE;
  }
#pragma unroll
  for (int t = 0; t < K * K; t++) {
    if (!(inside >> t & 1)) continue;
    float v[V];
    tap[t].get(v);
#pragma unroll
    for (int l = 0; l < V; l++) {
      if (v[l] > best[l] || place[l] == NO_PLACE || (v[l] != v[l] && best[l] == best[l])) place[l] = t;
      if (v[l] > best[l] || v[l] != v[l]) best[l] = v[l];
    }
  }
}

// A window of one channel, and one of a pack's: of those all pairs are compared at once, and a tap that equals the maximum is its
// place. A NaN, which equals nothing, sends the thread the long way.
template <int K> DEVICE void pool(Pack<1> (&tap)[K * K], u32 inside, scalar* y, u8* places) {
  float best[1];
  u32 place[1];
  best_of<1, K>(tap, inside, best, place);
  Pack<1> pack;
  pack.put(best);
  store<1>(y, pack);
  places[0] = (u8)place[0];
}
template <int K> DEVICE void pool(Pack<PACK> (&tap)[K * K], u32 inside, scalar* y, u8* places) {
  const int WORDS = PACK / 2;
  u32 numbers = ~0u, place[WORDS];
  Pack<PACK> best;
#pragma unroll
  for (int w = 0; w < WORDS; w++) {
    best.word[w] = scalar::lowest();
    place[w] = NO_PLACE * 0x10001u;
#pragma unroll
    for (int t = 0; t < K * K; t++)
      if (inside >> t & 1) best.word[w] = scalar::larger(best.word[w], tap[t].word[w]);
    numbers &= scalar::equal(best.word[w], best.word[w]);
  }
  if (numbers != ~0u) {
    float value[PACK];
    u32 first[PACK];
    best_of<PACK, K>(tap, inside, value, first);
    best.put(value);
#pragma unroll
    for (int l = 0; l < PACK; l++) places[l] = (u8)first[l];
    store<PACK>(y, best);
    return;
  }
  store<PACK>(y, best);
  // The first comes last, over later ones.
#pragma unroll
  for (int t = K * K - 1; t >= 0; t--) {
    if (!(inside >> t & 1)) continue;
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
      u32 equal = scalar::equal(tap[t].word[w], best.word[w]);
      place[w] = (place[w] & ~equal) | (equal & (u32)t * 0x10001u);
    }
  }
  u64 low = __byte_perm(place[0], place[1], 0x6420), high = __byte_perm(place[2], place[3], 0x6420);
  *(u64*)places = high << 32 | low;
}

#define FORWARD const scalar *x, u64 xs, COEFFICIENTS, scalar *y, u64 ys, u8 *indices, COLUMNS, float eps, SIZES
#define FORWARD_PASSED \
  x, xs, mean, variance, gamma, beta, y, ys, indices, COLUMNS_PASSED, eps, h, w, oh, ow, ph, pw, by_plane, by_row
template <int V, int K> DEVICE void norm_pool(FORWARD) {
  Piece at(COLUMNS_PASSED);
  float ab[2][V];
  lines<V>(mean, variance, gamma, beta, eps, at, ab);
  if (at.turns == 0) return;
#pragma unroll 1
  for (int u = 0; u < TURN; u++) {
    u64 row = at.row + u * at.height;
    if (row >= at.end) return;
    Pixel to = pixel_of((u32)row, oh * ow, by_plane, ow, by_row);
    const scalar* image = x + (u64)to.plane * h * w * xs + (u64)at.pack * V;
    Pack<V> tap[K * K];
    u32 inside = 0;
#pragma unroll
    for (int t = 0; t < K * K; t++) {
      u32 i = to.y * 2 + t / K - ph, j = to.x * 2 + t % K - pw;  // wrap above the image, and then are not inside
      if (i < h && j < w) {
        inside |= 1u << t;
        tap[t] = load<V>(image + ((u64)i * w + j) * xs);
      }
    }
#pragma unroll
    for (int t = 0; t < K * K; t++) {
      if (!(inside >> t & 1)) continue;
      float v[V];
      tap[t].get(v);
#pragma unroll
      for (int l = 0; l < V; l++) v[l] = relu_of(fmaf(v[l], ab[0][l], ab[1][l]));
      tap[t].put(v);
    }
    pool<K>(tap, inside, y + row * ys + (u64)at.pack * V, indices + (row * packs + at.pack) * V);
  }
}
WIDE_KERNEL batch_norm_pool_k2_packed(FORWARD) { norm_pool<PACK, 2>(FORWARD_PASSED); }
WIDE_KERNEL batch_norm_pool_k2_single(FORWARD) { norm_pool<1, 2>(FORWARD_PASSED); }
WIDE_KERNEL batch_norm_pool_k3_packed(FORWARD) { norm_pool<PACK, 3>(FORWARD_PASSED); }
WIDE_KERNEL batch_norm_pool_k3_single(FORWARD) { norm_pool<1, 3>(FORWARD_PASSED); }

// ---- gradients ------------------------------------------------------------------------------------------------------

// The 2 × 2 pixels that begin at an even place of the padded image, and the windows over them: one, or of 3 × 3 two by two. All of
// it is read at once. Rows of the walk are such cells; max_pool2d_nhwc.cu has the picture.
template <int V, int K> struct Cell {
  enum { W = K - 1 };
  Pack<V> d[W][W], x[4];
  u32 place[W][W][2], inside;
  u64 first;
  const Sizes& of;

  DEVICE Cell(u32 row, u32 pack, u32 packs, const scalar* map, u64 xs, const scalar* dy, u64 dys, const u8* indices, const Sizes& of)
      : inside(0), of(of) {
    u32 rows = (of.h + of.ph + 1) / 2, columns = (of.w + of.pw + 1) / 2;
    Pixel at = pixel_of(row, rows * columns, of.by_plane, columns, of.by_row);
#pragma unroll
    for (int i = 0; i < W; i++) {
#pragma unroll
      for (int j = 0; j < W; j++) {
        u32 oy = at.y + i - (W - 1), ox = at.x + j - (W - 1);  // wrap before the first window, and then are not below oh
        place[i][j][0] = place[i][j][1] = ~0u;
        if (oy < of.oh && ox < of.ow) {
          u64 window = ((u64)at.plane * of.oh + oy) * of.ow + ox;
          const u8* places = indices + (window * packs + pack) * V;
          if (V == 1) {
            place[i][j][0] = places[0];
          } else {
            u64 bytes = *(const u64*)places;
            place[i][j][0] = (u32)bytes;
            place[i][j][1] = (u32)(bytes >> 32);
          }
          d[i][j] = load<V>(dy + window * dys + (u64)pack * V);
        }
      }
    }
    // Pixel p is p / 2 rows of the image and p % 2 pixels after the first, which may lie before the image.
    first = ((u64)at.plane * of.h + at.y * 2) * of.w + at.x * 2 - ((u64)of.ph * of.w + of.pw);
#pragma unroll
    for (int p = 0; p < 4; p++) {
      u32 i = at.y * 2 + p / 2 - of.ph, j = at.x * 2 + p % 2 - of.pw;
      if (i < of.h && j < of.w) {
        inside |= 1u << p;
        x[p] = load<V>(map + pixel(p) * xs + (u64)pack * V);
      }
    }
  }
  DEVICE u64 pixel(int p) const { return first + p / 2 * of.w + p % 2; }

  // The gradient of the map between, as the pool would store it, where that is above 0: x · a + b is.
  DEVICE void gradient(int p, const float (&v)[V], const float (&a)[V], const float (&b)[V], float (&sum)[V]) const {
#pragma unroll
    for (int l = 0; l < V; l++) sum[l] = 0.f;
#pragma unroll
    for (int i = 0; i < W; i++) {
#pragma unroll
      for (int j = 0; j < W; j++) {
        const int r = p / 2 + 2 * (W - 1 - i), c = p % 2 + 2 * (W - 1 - j);
        if (r >= K || c >= K) continue;
        float given[V];
        d[i][j].get(given);
#pragma unroll
        for (int l = 0; l < V; l++)
          if ((place[i][j][l / 4] >> (l % 4 * 8) & 255) == r * K + c) sum[l] += given[l];
      }
    }
    Pack<V> stored;
    stored.put(sum);
    stored.get(sum);
#pragma unroll
    for (int l = 0; l < V; l++)
      if (fmaf(v[l], a[l], b[l]) <= 0.f) sum[l] = 0.f;
  }
};

#define MAPS const scalar *x, u64 xs, const scalar *dy, u64 dys, const u8 *indices, COEFFICIENTS
#define MAPS_PASSED x, xs, dy, dys, indices, mean, variance, gamma, beta

// Sums of what goes through, and of it times x, from which the mean's share is taken at the end.
#define SUMS MAPS, COLUMNS, double *partial, float *dgamma, float *dbeta, float eps, SIZES
#define SUMS_PASSED MAPS_PASSED, COLUMNS_PASSED, partial, dgamma, dbeta, eps, h, w, oh, ow, ph, pw, by_plane, by_row
template <int V, int K> DEVICE void pool_sums(SUMS) {
  Dealt at(COLUMNS_PASSED, TALL_LINED);
  const Sizes of = SIZES_PASSED;
  float ab[2][V], sum[2][V];
  lines<V>(mean, variance, gamma, beta, eps, at, ab);
#pragma unroll
  for (int l = 0; l < V; l++) sum[0][l] = sum[1][l] = 0.f;
  // Cells are counted in 31 bits.
  u32 row = (u32)at.row, end = (u32)at.end;
  for (u32 turns = at.turns; turns > 0; turns--) {
#pragma unroll 1
    for (u32 u = 0; u < TURN; u++) {
      if (row + u * at.height >= end) break;
      Cell<V, K> cell(row + u * at.height, at.pack, packs, x, xs, dy, dys, indices, of);
#pragma unroll
      for (int p = 0; p < 4; p++) {
        if (!(cell.inside >> p & 1)) continue;
        float v[V], through[V];
        cell.x[p].get(v);
        cell.gradient(p, v, ab[0], ab[1], through);
#pragma unroll
        for (int l = 0; l < V; l++) {
          sum[0][l] += through[l];
          sum[1][l] = fmaf(through[l], v[l], sum[1][l]);
        }
      }
    }
    row += (u32)at.leap;
  }
  sum_columns<TALL_LINED, V>(sum, at, tiles, partial, [&](u32 c, const double (&sum)[2]) {
    dgamma[c] = (float)((sum[1] - mean[c] * sum[0]) / sqrt((double)variance[c] + eps));
    dbeta[c] = (float)sum[0];
  });
}
TALL_LINED_KERNEL batch_norm_pool_k2_sums_packed(SUMS) { pool_sums<PACK, 2>(SUMS_PASSED); }
TALL_LINED_KERNEL batch_norm_pool_k2_sums_single(SUMS) { pool_sums<1, 2>(SUMS_PASSED); }
TALL_LINED_KERNEL batch_norm_pool_k3_sums_packed(SUMS) { pool_sums<PACK, 3>(SUMS_PASSED); }
TALL_LINED_KERNEL batch_norm_pool_k3_sums_single(SUMS) { pool_sums<1, 3>(SUMS_PASSED); }

// dx = through · p + x · q + r, as batch_norm_nhwc.cu has it.
#define APPLY MAPS, const float *dgamma, const float *dbeta, scalar *dx, u64 dxs, COLUMNS, float eps, float inverse_count, SIZES
#define APPLY_PASSED \
  MAPS_PASSED, dgamma, dbeta, dx, dxs, COLUMNS_PASSED, eps, inverse_count, h, w, oh, ow, ph, pw, by_plane, by_row
template <int V, int K> DEVICE void pool_apply(APPLY) {
  Piece at(COLUMNS_PASSED);
  const Sizes of = SIZES_PASSED;
  float k[5][V];
  by_channel<V>(at, [&](u32 c, float (&made)[5]) {
    float m = mean[c], g = gamma[c], inverse = rsqrtf(variance[c] + eps), slope = dgamma[c] * inverse * inverse_count;
    Line line = line_of(m, variance[c], g, beta[c], eps);
    made[0] = g * inverse;
    made[1] = -made[0] * slope;
    made[2] = made[0] * fmaf(m, slope, -dbeta[c] * inverse_count);
    made[3] = line.a;
    made[4] = line.b;
  }, k);
  if (at.turns == 0) return;
#pragma unroll 1
  for (int u = 0; u < TURN; u++) {
    u64 row = at.row + u * at.height;
    if (row >= at.end) return;
    Cell<V, K> cell((u32)row, at.pack, packs, x, xs, dy, dys, indices, of);
#pragma unroll
    for (int p = 0; p < 4; p++) {
      if (!(cell.inside >> p & 1)) continue;
      float v[V], through[V], to[V];
      cell.x[p].get(v);
      cell.gradient(p, v, k[3], k[4], through);
#pragma unroll
      for (int l = 0; l < V; l++) to[l] = fmaf(through[l], k[0][l], fmaf(v[l], k[1][l], k[2][l]));
      store_columns<V>(dx, dxs, cell.pixel(p), at, to);
    }
  }
}
WIDE_KERNEL batch_norm_pool_k2_grad_packed(APPLY) { pool_apply<PACK, 2>(APPLY_PASSED); }
WIDE_KERNEL batch_norm_pool_k2_grad_single(APPLY) { pool_apply<1, 2>(APPLY_PASSED); }
WIDE_KERNEL batch_norm_pool_k3_grad_packed(APPLY) { pool_apply<PACK, 3>(APPLY_PASSED); }
WIDE_KERNEL batch_norm_pool_k3_grad_single(APPLY) { pool_apply<1, 3>(APPLY_PASSED); }
