// Batch normalisation of x [rows, C], with ReLU and a residual in the same pass where an op has them: statistics, forward,
// gradients. y = x · a + b with a = gamma / √(variance + eps), b = beta − mean · a; forward and backward make both alike, so
// that backward finds the sign that forward saw.

// ---- statistics -----------------------------------------------------------------------------------------------------

// Sums of x − k and its square, k the channel's number in the first row: a channel far from zero keeps its digits. What the end
// needs is read before the sums are added up.
template <int V>
DEVICE void stats(const scalar* x, u64 xs, COLUMNS, double* partial, float* mean, float* variance, double inverse_rows) {
  Dealt at(COLUMNS_PASSED, TALL);
  const scalar* const in[1] = {x};
  const u64 strides[1] = {xs};
  Turns<V, 1, Nothing> turns(in, strides, at, Nothing());
  float sum[2][V], k[V];
#pragma unroll
  for (int l = 0; l < V; l++) sum[0][l] = sum[1][l] = k[l] = 0.f;
  if (at.turns > 0) load<V>(x + (u64)at.pack * V).get(k);
  turns.each([&](u64, const float (&v)[1][V], u32) {
#pragma unroll
    for (int l = 0; l < V; l++) {
      float d = v[0][l] - k[l];
      sum[0][l] += d;
      sum[1][l] = fmaf(d, d, sum[1][l]);
    }
  });
  Adder<TALL, V> adder(at);
  float first = adder.writes && rows ? (float)x[adder.channel] : 0.f;
  sum_columns<TALL, V>(sum, at, partial, [&](u32 c, const double (&sum)[2]) {
    double m = sum[0] * inverse_rows, v = sum[1] * inverse_rows - m * m;
    mean[c] = (float)(first + m);
    variance[c] = (float)(v > 0 || v != v ? v : 0);
  });
}
#define STATS const scalar *x, u64 xs, COLUMNS, double *partial, float *mean, float *variance, double inverse_rows
#define STATS_PASSED x, xs, COLUMNS_PASSED, partial, mean, variance, inverse_rows
TALL_KERNEL batch_norm_stats_packed(STATS) { stats<PACK>(STATS_PASSED); }
TALL_KERNEL batch_norm_stats_single(STATS) { stats<1>(STATS_PASSED); }

// ---- forward --------------------------------------------------------------------------------------------------------

template <int V, bool RELU>
DEVICE void normalise(const scalar* x, u64 xs, COEFFICIENTS, scalar* y, u64 ys, COLUMNS, float eps) {
  Piece at(COLUMNS_PASSED, FORWARD_FROM_END);
  const scalar* const in[1] = {x};
  const u64 strides[1] = {xs};
  Turns<V, 1, Nothing> turns(in, strides, at, Nothing());
  float ab[2][V];
  lines<V>(mean, variance, gamma, beta, eps, at, ab);
  turns.each([&](u64 row, const float (&v)[1][V], u32) {
    float r[V];
#pragma unroll
    for (int l = 0; l < V; l++) {
      r[l] = fmaf(v[0][l], ab[0][l], ab[1][l]);
      if (RELU) r[l] = relu_of(r[l]);
    }
    store_columns<V>(y, ys, row, at, r);
  });
}
#define FORWARD const scalar *x, u64 xs, COEFFICIENTS, scalar *y, u64 ys, COLUMNS, float eps
#define FORWARD_PASSED x, xs, mean, variance, gamma, beta, y, ys, COLUMNS_PASSED, eps
KERNEL batch_norm_packed(FORWARD) { normalise<PACK, false>(FORWARD_PASSED); }
KERNEL batch_norm_single(FORWARD) { normalise<1, false>(FORWARD_PASSED); }
KERNEL batch_norm_relu_packed(FORWARD) { normalise<PACK, true>(FORWARD_PASSED); }
KERNEL batch_norm_relu_single(FORWARD) { normalise<1, true>(FORWARD_PASSED); }

// y = max(x · a + b + r, 0).
#define ADD_FORWARD const scalar *x, u64 xs, COEFFICIENTS, const scalar *r, u64 rs, scalar *y, u64 ys, u8 *mask
WIDE_KERNEL batch_norm_add_relu_packed(ADD_FORWARD, COLUMNS, float eps) {
  Piece at(COLUMNS_PASSED, FORWARD_FROM_END);
  const scalar* const in[2] = {x, r};
  const u64 strides[2] = {xs, rs};
  Turns<PACK, 2, Nothing> turns(in, strides, at, Nothing());
  float ab[2][PACK];
  lines<PACK>(mean, variance, gamma, beta, eps, at, ab);
  turns.each([&](u64 row, const float (&v)[2][PACK], u32) {
    float s[PACK];
    u32 bits = 0;
#pragma unroll
    for (int l = 0; l < PACK; l++) {
      float sum = fmaf(v[0][l], ab[0][l], ab[1][l]) + v[1][l];
      bits |= (u32)!(sum <= 0.f) << l;
      s[l] = relu_of(sum);
    }
    store_columns<PACK>(y, ys, row, at, s);
    write_mask(mask, row, at, bits);
  });
}

// A thread a byte of the mask, whatever channels its eight elements belong to.
KERNEL batch_norm_add_relu_single(ADD_FORWARD, u32 channels, u64 sample, u64 bytes, u64 total, float eps) {
  u64 byte = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (byte >= total) return;
  u64 n = byte / bytes, first = (byte - n * bytes) * 8;
  u32 bits = 0;
  for (u32 l = 0; l < 8 && first + l < sample; l++) {
    u64 e = n * sample + first + l, row = e / channels;
    u32 c = (u32)(e - row * channels);
    Line line = line_of(mean[c], variance[c], gamma[c], beta[c], eps);
    float sum = fmaf(x[row * xs + c], line.a, line.b) + (float)r[row * rs + c];
    bits |= (u32)!(sum <= 0.f) << l;
    y[row * ys + c] = relu_of(sum);
  }
  mask[byte] = (u8)bits;
}

// ---- gradients ------------------------------------------------------------------------------------------------------

// Which elements of dy go through: all, or those above 0 by x and its line.
enum Gate { OPEN, BY_SIGN };

template <int GATE> DEVICE float through(float x, float dy, float a, float b) {
  return GATE == BY_SIGN && fmaf(x, a, b) <= 0.f ? 0.f : dy;
}

#define MAPS const scalar *x, u64 xs, const scalar *dy, u64 dys
#define MAPS_PASSED x, xs, dy, dys

// Sums of what goes through, and of it times x − k.
template <int V> struct GradSums {
  float sum[2][V];
  DEVICE GradSums() {
#pragma unroll
    for (int l = 0; l < V; l++) sum[0][l] = sum[1][l] = 0.f;
  }
  DEVICE void add(int l, float x, float d, float k) {
    sum[0][l] += d;
    sum[1][l] = fmaf(d, x - k, sum[1][l]);
  }
};

// What becomes of the sums: dbeta = Σ dy; dgamma = Σ dy · (x − mean) / √(variance + eps), where `taken` has been taken off x.
#define PARAMETERS const float *mean, const float *variance, float *dgamma, float *dbeta, float eps
#define PARAMETERS_PASSED mean, variance, dgamma, dbeta, eps
template <int T, int V, bool TAKEN>
DEVICE void finish_grad(const GradSums<V>& sums, const Columns& at, double* partial, PARAMETERS) {
  Adder<T, V> adder(at);
  float m = !TAKEN && adder.writes ? mean[adder.channel] : 0.f, v = adder.writes ? variance[adder.channel] : 0.f;
  sum_columns<T, V>(sums.sum, at, partial, [&](u32 c, const double (&sum)[2]) {
    double about = TAKEN ? sum[1] : sum[1] - m * sum[0];
    dgamma[c] = (float)(about / sqrt((double)v + eps));
    dbeta[c] = (float)sum[0];
  });
}

// The mean of a thread's channels.
template <int V> DEVICE void means(const float* mean, const Columns& at, float (&k)[1][V]) {
  by_channel<V>(at, [&](u32 c, float (&made)[1]) { made[0] = mean[c]; }, k);
}

#define SUMS MAPS, const float *gamma, const float *beta, COLUMNS, double *partial, PARAMETERS
#define SUMS_PASSED MAPS_PASSED, gamma, beta, COLUMNS_PASSED, partial, PARAMETERS_PASSED
template <int V> DEVICE void open_sums(SUMS) {
  Dealt at(COLUMNS_PASSED, TALL_PAIR);
  const scalar* const in[2] = {x, dy};
  const u64 strides[2] = {xs, dys};
  Turns<V, 2, Nothing, 2> turns(in, strides, at, Nothing());
  float k[1][V];
  means<V>(mean, at, k);
  GradSums<V> sums;
  turns.each([&](u64, const float (&v)[2][V], u32) {
#pragma unroll
    for (int l = 0; l < V; l++) sums.add(l, v[0][l], v[1][l], k[0][l]);
  });
  finish_grad<TALL_PAIR, V, true>(sums, at, partial, PARAMETERS_PASSED);
}
TALL_PAIR_KERNEL batch_norm_grad_sums_packed(SUMS) { open_sums<PACK>(SUMS_PASSED); }
TALL_PAIR_KERNEL batch_norm_grad_sums_single(SUMS) { open_sums<1>(SUMS_PASSED); }

// Of half precision the mean's share is taken off in double, at the end: more threads fit than with another number a channel, and
// it has no channels so far from zero beside their deviation that f32 would lose digits of the difference.
template <int V> DEVICE void sums_by_sign(SUMS) {
  Dealt at(COLUMNS_PASSED, TALL);
  const scalar* const in[2] = {x, dy};
  const u64 strides[2] = {xs, dys};
  Turns<V, 2, Nothing, FEW> turns(in, strides, at, Nothing());
  float ab[2][V];
  lines<V>(mean, variance, gamma, beta, eps, at, ab);
  const bool TAKEN = sizeof(scalar) == 4;
  float k[1][V];
  if (TAKEN) means<V>(mean, at, k);
  GradSums<V> sums;
  turns.each([&](u64, const float (&v)[2][V], u32) {
#pragma unroll
    for (int l = 0; l < V; l++) {
      float d = through<BY_SIGN>(v[0][l], v[1][l], ab[0][l], ab[1][l]);
      sums.add(l, v[0][l], d, TAKEN ? k[0][l] : 0.f);
    }
  });
  finish_grad<TALL, V, TAKEN>(sums, at, partial, PARAMETERS_PASSED);
}
TALL_KERNEL batch_norm_relu_grad_sums_packed(SUMS) { sums_by_sign<PACK>(SUMS_PASSED); }
TALL_KERNEL batch_norm_relu_grad_sums_single(SUMS) { sums_by_sign<1>(SUMS_PASSED); }

// The same sums of dy, or dy + second, where the mask has a bit. What goes through is written as dr and summed as written.
template <int V, int N>
DEVICE void gated_sums(const scalar* const (&in)[N], const u64 (&strides)[N], const u8* mask, u64 hw, u64 bytes, scalar* dr,
                       u64 drs, COLUMNS, double* partial, PARAMETERS) {
  Dealt at(COLUMNS_PASSED, TALL_PAIR);
  Turns<V, N, Bits<V>, 2> turns(in, strides, at, Bits<V>{mask, at.pack, packs, hw, bytes});
  float k[1][V];
  means<V>(mean, at, k);
  GradSums<V> sums;
  turns.each([&](u64 row, const float (&v)[N][V], u32 bits) {
    float d[V];
#pragma unroll
    for (int l = 0; l < V; l++) {
      // The sum is rounded before it is gated, as by an addition of its own.
      float dy = N == 3 ? (float)(scalar)(v[1][l] + v[N - 1][l]) : v[1][l];
      d[l] = bits >> l & 1 ? dy : 0.f;
      sums.add(l, v[0][l], d[l], k[0][l]);
    }
    store_columns<V>(dr, drs, row, at, d);
  });
  finish_grad<TALL_PAIR, V, true>(sums, at, partial, PARAMETERS_PASSED);
}
#define GATED                                                                                                  \
  MAPS, const scalar *second, u64 seconds, const u8 *mask, u64 hw, u64 bytes, scalar *dr, u64 drs, COLUMNS, \
      double *partial, PARAMETERS
#define GATED_PASSED in, strides, mask, hw, bytes, dr, drs, COLUMNS_PASSED, partial, PARAMETERS_PASSED
#define GATED_SUMS(V)                       \
  const scalar* const in[2] = {x, dy};      \
  const u64 strides[2] = {xs, dys};         \
  gated_sums<V>(GATED_PASSED)
#define GATED_SUMS2(V)                              \
  const scalar* const in[3] = {x, dy, second};      \
  const u64 strides[3] = {xs, dys, seconds};        \
  gated_sums<V>(GATED_PASSED)
TALL_PAIR_KERNEL batch_norm_gated_sums_packed(GATED) { GATED_SUMS(PACK); }
TALL_PAIR_KERNEL batch_norm_gated_sums_single(GATED) { GATED_SUMS(1); }
TALL_PAIR_KERNEL batch_norm_gated_sums2_packed(GATED) { GATED_SUMS2(PACK); }
TALL_PAIR_KERNEL batch_norm_gated_sums2_single(GATED) { GATED_SUMS2(1); }

// dx = gamma / σ · (dy − dbeta / M − (x − mean) / σ · dgamma / M), M the elements of a channel, as dy · p + x · q + r.
template <int V, int GATE>
DEVICE void grad_apply(MAPS, COEFFICIENTS, const float* dgamma, const float* dbeta, scalar* dx, u64 dxs, COLUMNS, float eps,
                       float inverse_count) {
  Piece at(COLUMNS_PASSED);
  const scalar* const in[2] = {x, dy};
  const u64 strides[2] = {xs, dys};
  Turns<V, 2, Nothing> turns(in, strides, at, Nothing());
  // p, q, r, and a and b where a sign is looked at.
  const int N = GATE == BY_SIGN ? 5 : 3;
  float k[N][V];
  by_channel<V>(at, [&](u32 c, float (&made)[N]) {
    float m = mean[c], g = gamma[c], inverse = rsqrtf(variance[c] + eps), slope = dgamma[c] * inverse * inverse_count;
    made[0] = g * inverse;
    made[1] = -made[0] * slope;
    made[2] = made[0] * fmaf(m, slope, -dbeta[c] * inverse_count);
    if (GATE == BY_SIGN) {
      Line line = line_of(m, variance[c], g, beta[c], eps);
      made[3 % N] = line.a;
      made[4 % N] = line.b;
    }
  }, k);
  turns.each([&](u64 row, const float (&v)[2][V], u32) {
    float to[V];
#pragma unroll
    for (int l = 0; l < V; l++) {
      float d = through<GATE>(v[0][l], v[1][l], k[3 % N][l], k[4 % N][l]);
      to[l] = fmaf(d, k[0][l], fmaf(v[0][l], k[1][l], k[2][l]));
    }
    store_columns<V>(dx, dxs, row, at, to);
  });
}
#define APPLY \
  MAPS, COEFFICIENTS, const float *dgamma, const float *dbeta, scalar *dx, u64 dxs, COLUMNS, float eps, float inverse_count
#define APPLY_PASSED \
  MAPS_PASSED, mean, variance, gamma, beta, dgamma, dbeta, dx, dxs, COLUMNS_PASSED, eps, inverse_count
WIDE_KERNEL batch_norm_grad_packed(APPLY) { grad_apply<PACK, OPEN>(APPLY_PASSED); }
WIDE_KERNEL batch_norm_grad_single(APPLY) { grad_apply<1, OPEN>(APPLY_PASSED); }
WIDE_KERNEL batch_norm_relu_grad_packed(APPLY) { grad_apply<PACK, BY_SIGN>(APPLY_PASSED); }
WIDE_KERNEL batch_norm_relu_grad_single(APPLY) { grad_apply<1, BY_SIGN>(APPLY_PASSED); }
