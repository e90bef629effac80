// Two batch norms of a and b [rows, C], their sum and ReLU in one pass, and both gradients in two. The second normalised map is
// rounded to what it would be stored as, so bits are those of batch_norm_nhwc.cu's kernels one after the other.

#define EPSILONS float eps_a, float eps_b

// Rows that gradients read before they use the first: two, and three or four maps of them, are as much as 64 KB on a multiprocessor.
#define ROWS_AHEAD 2

// Mean, variance, gamma, beta of one of the two.
struct Norm {
  const float *mean, *variance, *gamma, *beta;
  float eps;
  DEVICE Line line(u32 c) const { return line_of(mean[c], variance[c], gamma[c], beta[c], eps); }
};
#define NORM_A const float *mean_a, const float *variance_a, const float *gamma_a, const float *beta_a
#define NORM_B const float *mean_b, const float *variance_b, const float *gamma_b, const float *beta_b
#define NORM_A_PASSED (Norm{mean_a, variance_a, gamma_a, beta_a, eps_a})
#define NORM_B_PASSED (Norm{mean_b, variance_b, gamma_b, beta_b, eps_b})

// ---- forward --------------------------------------------------------------------------------------------------------

// y = max(a · p + q + (b · r + s), 0).
#define FORWARD const scalar *a, u64 as, NORM_A, const scalar *b, u64 bs, NORM_B, scalar *y, u64 ys, u8 *mask
WIDE_KERNEL batch_norm_pair_relu_packed(FORWARD, COLUMNS, EPSILONS) {
  Piece at(COLUMNS_PASSED, FORWARD_FROM_END);
  const scalar* const in[2] = {a, b};
  const u64 strides[2] = {as, bs};
  Turns<PACK, 2, Nothing> turns(in, strides, at, Nothing());
  float k[4][PACK];
  by_channel<PACK>(at, [&](u32 c, float (&made)[4]) {
    Line of_a = NORM_A_PASSED.line(c), of_b = NORM_B_PASSED.line(c);
    made[0] = of_a.a;
    made[1] = of_a.b;
    made[2] = of_b.a;
    made[3] = of_b.b;
  }, k);
  turns.each([&](u64 row, const float (&v)[2][PACK], u32) {
    float r[PACK], s[PACK];
    u32 bits = 0;
#pragma unroll
    for (int l = 0; l < PACK; l++) r[l] = fmaf(v[1][l], k[2][l], k[3][l]);
    Pack<PACK> stored;
    stored.put(r);
    stored.get(r);
#pragma unroll
    for (int l = 0; l < PACK; l++) {
      float sum = fmaf(v[0][l], k[0][l], k[1][l]) + r[l];
      bits |= (u32)!(sum <= 0.f) << l;
      s[l] = relu_of(sum);
    }
    store_columns<PACK>(y, ys, row, at, s);
    write_mask(mask, row, at, bits);
  });
}

// A thread a byte of the mask, whatever channels its eight elements belong to.
KERNEL batch_norm_pair_relu_single(FORWARD, u32 channels, u64 sample, u64 bytes, u64 total, EPSILONS) {
  u64 byte = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (byte >= total) return;
  u64 n = byte / bytes, first = (byte - n * bytes) * 8;
  u32 bits = 0;
  for (u32 l = 0; l < 8 && first + l < sample; l++) {
    u64 e = n * sample + first + l, row = e / channels;
    u32 c = (u32)(e - row * channels);
    Line of_a = NORM_A_PASSED.line(c), of_b = NORM_B_PASSED.line(c);
    float r = (float)(scalar)fmaf(b[row * bs + c], of_b.a, of_b.b);
    float sum = fmaf(a[row * as + c], of_a.a, of_a.b) + r;
    bits |= (u32)!(sum <= 0.f) << l;
    y[row * ys + c] = relu_of(sum);
  }
  mask[byte] = (u8)bits;
}

// ---- gradients ------------------------------------------------------------------------------------------------------

// What goes through of dy, or dy + second, is written as `through`; its sum is both norms' dbeta, and its sums times a − mean and
// b − mean become the dgammas. Each in the order of the gated sums and the open ones.
#define SUMS                                                                                                              \
  const scalar *a, u64 as, const scalar *b, u64 bs, const scalar *dy, u64 dys, const scalar *second, u64 seconds,          \
      const u8 *mask, u64 hw, u64 bytes, scalar *through, u64 throughs, COLUMNS, double *partial, const float *mean_a,      \
      const float *variance_a, float *dgamma_a, float *dbeta_a, const float *mean_b, const float *variance_b,              \
      float *dgamma_b, float *dbeta_b, EPSILONS
#define SUMS_PASSED                                                                                                     \
  mask, hw, bytes, through, throughs, COLUMNS_PASSED, partial, mean_a, variance_a, dgamma_a, dbeta_a, mean_b, variance_b, \
      dgamma_b, dbeta_b, eps_a, eps_b
template <int V, int N>
DEVICE void pair_sums(const scalar* const (&in)[N], const u64 (&strides)[N], const u8* mask, u64 hw, u64 bytes,
                      scalar* through, u64 throughs, COLUMNS, double* partial, const float* mean_a, const float* variance_a,
                      float* dgamma_a, float* dbeta_a, const float* mean_b, const float* variance_b, float* dgamma_b,
                      float* dbeta_b, EPSILONS) {
  Dealt at(COLUMNS_PASSED, TALL_PAIR);
  Turns<V, N, Bits<V>, 1> turns(in, strides, at, Bits<V>{mask, at.pack, packs, hw, bytes});
  float k[2][V], sum[3][V];
  by_channel<V>(at, [&](u32 c, float (&made)[2]) {
    made[0] = mean_a[c];
    made[1] = mean_b[c];
  }, k);
#pragma unroll
  for (int l = 0; l < V; l++) sum[0][l] = sum[1][l] = sum[2][l] = 0.f;
  turns.each([&](u64 row, const float (&v)[N][V], u32 bits) {
    float d[V];
#pragma unroll
    for (int l = 0; l < V; l++) {
      // The sum is rounded before it is gated, as by an addition of its own.
      float dy = N == 4 ? (float)(scalar)(v[2][l] + v[N - 1][l]) : v[2][l];
      d[l] = bits >> l & 1 ? dy : 0.f;
      sum[0][l] += d[l];
      sum[1][l] = fmaf(d[l], v[0][l] - k[0][l], sum[1][l]);
      sum[2][l] = fmaf(d[l], v[1][l] - k[1][l], sum[2][l]);
    }
    store_columns<V>(through, throughs, row, at, d);
  });
  sum_columns<TALL_PAIR, V>(sum, at, partial, [&](u32 c, const double (&sum)[3]) {
    dgamma_a[c] = (float)(sum[1] / sqrt((double)variance_a[c] + eps_a));
    dgamma_b[c] = (float)(sum[2] / sqrt((double)variance_b[c] + eps_b));
    dbeta_a[c] = dbeta_b[c] = (float)sum[0];
  });
}
#define PAIR_SUMS(V)                       \
  const scalar* const in[3] = {a, b, dy};  \
  const u64 strides[3] = {as, bs, dys};    \
  pair_sums<V>(in, strides, SUMS_PASSED)
#define PAIR_SUMS2(V)                              \
  const scalar* const in[4] = {a, b, dy, second};  \
  const u64 strides[4] = {as, bs, dys, seconds};   \
  pair_sums<V>(in, strides, SUMS_PASSED)
TALL_PAIR_KERNEL batch_norm_pair_sums_packed(SUMS) { PAIR_SUMS(PACK); }
TALL_PAIR_KERNEL batch_norm_pair_sums_single(SUMS) { PAIR_SUMS(1); }
TALL_PAIR_KERNEL batch_norm_pair_sums2_packed(SUMS) { PAIR_SUMS2(PACK); }
TALL_PAIR_KERNEL batch_norm_pair_sums2_single(SUMS) { PAIR_SUMS2(1); }

// p, q, r of a channel: dx = d · p + x · q + r, as batch_norm_nhwc.cu has it.
DEVICE void slopes(const Norm& of, const float* dgamma, const float* dbeta, float inverse_count, u32 c, float* made) {
  float inverse = rsqrtf(of.variance[c] + of.eps), slope = dgamma[c] * inverse * inverse_count;
  made[0] = of.gamma[c] * inverse;
  made[1] = -made[0] * slope;
  made[2] = made[0] * fmaf(of.mean[c], slope, -dbeta[c] * inverse_count);
}

// d, which lies where db will, to both gradients.
#define APPLY                                                                                                               \
  const scalar *a, u64 as, const scalar *b, u64 bs, NORM_A, NORM_B, const float *dgamma_a, const float *dbeta_a,           \
      const float *dgamma_b, const float *dbeta_b, scalar *da, u64 das, scalar *db, u64 dbs, COLUMNS, EPSILONS, float inverse_count
#define APPLY_PASSED                                                                                                      \
  a, as, b, bs, mean_a, variance_a, gamma_a, beta_a, mean_b, variance_b, gamma_b, beta_b, dgamma_a, dbeta_a, dgamma_b,      \
      dbeta_b, da, das, db, dbs, COLUMNS_PASSED, eps_a, eps_b, inverse_count
template <int V> DEVICE void pair_apply(APPLY) {
  Piece at(COLUMNS_PASSED);
  const scalar* const in[3] = {a, b, db};
  const u64 strides[3] = {as, bs, dbs};
  Turns<V, 3, Nothing, ROWS_AHEAD> turns(in, strides, at, Nothing());
  float k[6][V];
  by_channel<V>(at, [&](u32 c, float (&made)[6]) {
    slopes(NORM_A_PASSED, dgamma_a, dbeta_a, inverse_count, c, made);
    slopes(NORM_B_PASSED, dgamma_b, dbeta_b, inverse_count, c, made + 3);
  }, k);
  turns.each([&](u64 row, const float (&v)[3][V], u32) {
    float to[V];
#pragma unroll
    for (int l = 0; l < V; l++) to[l] = fmaf(v[2][l], k[0][l], fmaf(v[0][l], k[1][l], k[2][l]));
    store_columns<V>(da, das, row, at, to);
#pragma unroll
    for (int l = 0; l < V; l++) to[l] = fmaf(v[2][l], k[3][l], fmaf(v[1][l], k[4][l], k[5][l]));
    store_columns<V>(db, dbs, row, at, to);
  });
}
WIDE_KERNEL batch_norm_pair_grad_packed(APPLY) { pair_apply<PACK>(APPLY_PASSED); }
WIDE_KERNEL batch_norm_pair_grad_single(APPLY) { pair_apply<1>(APPLY_PASSED); }
