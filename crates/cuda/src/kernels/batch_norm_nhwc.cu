// Batch normalisation of x [rows, C], with ReLU and a residual in the same pass where an op has them: statistics, forward,
// gradients. y = x · a + b with a = gamma / √(variance + eps), b = beta − mean · a; forward and backward make both alike, so
// that backward finds the sign that forward saw.

// ---- statistics -----------------------------------------------------------------------------------------------------

// Sums of x − k and its square, k the channel's number in the first row: a channel far from zero keeps its digits.
template <int V>
DEVICE void stats(const scalar* x, u64 xs, COLUMNS, double* partial) {
  Columns at(COLUMNS_PASSED);
  float sum[2][V], k[V];
#pragma unroll
  for (int l = 0; l < V; l++) {
    sum[0][l] = sum[1][l] = 0.f;
    k[l] = 0.f;
  }
  if (at.active && rows > 0) load<V>(x + (u64)at.pack * V).get(k);
  const scalar* const in[1] = {x};
  const u64 strides[1] = {xs};
  walk_columns<V>(in, strides, at, Nothing(), [&](u64, const float (&v)[1][V], u32) {
#pragma unroll
    for (int l = 0; l < V; l++) {
      float d = v[0][l] - k[l];
      sum[0][l] += d;
      sum[1][l] = fmaf(d, d, sum[1][l]);
    }
  });
  store_partial<V>(sum, at, width, partial);
}
KERNEL batch_norm_stats_packed(const scalar* x, u64 xs, COLUMNS, double* partial) {
  stats<PACK>(x, xs, COLUMNS_PASSED, partial);
}
KERNEL batch_norm_stats_single(const scalar* x, u64 xs, COLUMNS, double* partial) {
  stats<1>(x, xs, COLUMNS_PASSED, partial);
}

KERNEL batch_norm_stats_finish(const double* partial, u32 channels, u32 stretches, const scalar* x, u64 count, float* mean,
                               float* variance) {
  double sum[2];
  u32 c;
  sum_stretches(partial, channels, stretches, sum, c);
  if (threadIdx.x >= 8 || c >= channels) return;
  double m = count ? sum[0] / count : 0, v = count ? sum[1] / count - m * m : 0;
  mean[c] = (float)(count ? (double)(float)x[c] + m : 0);
  variance[c] = (float)(v > 0 || v != v ? v : 0);
}

// ---- forward --------------------------------------------------------------------------------------------------------

// A channel's a and b.
struct Line { float a, b; };
DEVICE Line line_of(float mean, float variance, float gamma, float beta, float eps) {
  float a = gamma * rsqrtf(variance + eps);
  return {a, fmaf(-mean, a, beta)};
}

#define COEFFICIENTS const float *mean, const float *variance, const float *gamma, const float *beta
template <int V>
DEVICE void lines(COEFFICIENTS, float eps, const Columns& at, float (&a)[V], float (&b)[V]) {
#pragma unroll
  for (int l = 0; l < V; l++) a[l] = b[l] = 0.f;
  if (!at.active) return;
#pragma unroll
  for (int l = 0; l < V; l++) {
    u32 c = at.pack * V + l;
    Line line = line_of(mean[c], variance[c], gamma[c], beta[c], eps);
    a[l] = line.a;
    b[l] = line.b;
  }
}

DEVICE float relu_of(float v) { return v <= 0.f ? 0.f : v; }

template <int V, bool RELU>
DEVICE void normalise(const scalar* x, u64 xs, COEFFICIENTS, scalar* y, u64 ys, COLUMNS, float eps) {
  Columns at(COLUMNS_PASSED);
  float a[V], b[V];
  lines<V>(mean, variance, gamma, beta, eps, at, a, b);
  const scalar* const in[1] = {x};
  const u64 strides[1] = {xs};
  walk_columns<V>(in, strides, at, Nothing(), [&](u64 row, const float (&v)[1][V], u32) {
    float r[V];
#pragma unroll
    for (int l = 0; l < V; l++) {
      r[l] = fmaf(v[0][l], a[l], b[l]);
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

// y = max(x · a + b + r, 0). A pack's signs are one byte of the mask.
#define ADD_FORWARD const scalar *x, u64 xs, COEFFICIENTS, const scalar *r, u64 rs, scalar *y, u64 ys, u8 *mask
WIDE_KERNEL batch_norm_add_relu_packed(ADD_FORWARD, COLUMNS, float eps) {
  Columns at(COLUMNS_PASSED);
  float a[PACK], b[PACK];
  lines<PACK>(mean, variance, gamma, beta, eps, at, a, b);
  const scalar* const in[2] = {x, r};
  const u64 strides[2] = {xs, rs};
  walk_columns<PACK>(in, strides, at, Nothing(), [&](u64 row, const float (&v)[2][PACK], u32) {
    float s[PACK];
    u32 bits = 0;
#pragma unroll
    for (int l = 0; l < PACK; l++) {
      float sum = fmaf(v[0][l], a[l], b[l]) + v[1][l];
      bits |= (u32)!(sum <= 0.f) << l;
      s[l] = relu_of(sum);
    }
    store_columns<PACK>(y, ys, row, at, s);
    mask[row * packs + at.pack] = (u8)bits;
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

template <int V, int GATE> struct Through {
  float a[V], b[V];
  DEVICE float operator()(int l, float x, float dy) const {
    return GATE == BY_SIGN && fmaf(x, a[l], b[l]) <= 0.f ? 0.f : dy;
  }
};

#define MAPS const scalar *x, u64 xs, const scalar *dy, u64 dys
#define MAPS_PASSED x, xs, dy, dys

// Sums of what goes through, and of it times x − mean.
template <int V> struct GradSums {
  float m[V], sum[2][V];
  DEVICE GradSums(const float* mean, const Columns& at) {
#pragma unroll
    for (int l = 0; l < V; l++) {
      sum[0][l] = sum[1][l] = 0.f;
      m[l] = 0.f;
    }
    if (at.active) constants<V>(mean, at.pack, m);
  }
  DEVICE void add(int l, float x, float d) {
    sum[0][l] += d;
    sum[1][l] = fmaf(d, x - m[l], sum[1][l]);
  }
};

template <int V, int GATE> DEVICE void grad_sums(MAPS, COEFFICIENTS, COLUMNS, float eps, double* partial) {
  Columns at(COLUMNS_PASSED);
  Through<V, GATE> through;
  if (GATE == BY_SIGN) lines<V>(mean, variance, gamma, beta, eps, at, through.a, through.b);
  GradSums<V> sums(mean, at);
  const scalar* const in[2] = {x, dy};
  const u64 strides[2] = {xs, dys};
  walk_columns<V>(in, strides, at, Nothing(), [&](u64, const float (&v)[2][V], u32) {
#pragma unroll
    for (int l = 0; l < V; l++) sums.add(l, v[0][l], through(l, v[0][l], v[1][l]));
  });
  store_partial<V>(sums.sum, at, width, partial);
}
#define SUMS MAPS, COEFFICIENTS, COLUMNS, float eps, double *partial
#define SUMS_PASSED MAPS_PASSED, mean, variance, gamma, beta, COLUMNS_PASSED, eps, partial
WIDE_KERNEL batch_norm_grad_sums_packed(SUMS) { grad_sums<PACK, OPEN>(SUMS_PASSED); }
WIDE_KERNEL batch_norm_grad_sums_single(SUMS) { grad_sums<1, OPEN>(SUMS_PASSED); }
WIDE_KERNEL batch_norm_relu_grad_sums_packed(SUMS) { grad_sums<PACK, BY_SIGN>(SUMS_PASSED); }
WIDE_KERNEL batch_norm_relu_grad_sums_single(SUMS) { grad_sums<1, BY_SIGN>(SUMS_PASSED); }

// The bits of a row's pack. A single element's bit is looked for in its sample's bytes.
template <int V> struct Bits {
  const u8* mask;
  u32 pack, packs;
  u64 hw, bytes;
  DEVICE u32 operator()(u64 row) const {
    if (V == 8) return mask[row * packs + pack];
    u64 n = row / hw, e = (row - n * hw) * packs + pack;
    return (u32)mask[n * bytes + e / 8] >> (e % 8);
  }
};

// The same sums of dy, or dy + second, where the mask has a bit. What goes through is written as dr and summed as written.
template <int V, int N>
DEVICE void gated_sums(const scalar* const (&in)[N], const u64 (&strides)[N], const u8* mask, u64 hw, u64 bytes,
                       const float* mean, scalar* dr, u64 drs, COLUMNS, double* partial) {
  Columns at(COLUMNS_PASSED);
  GradSums<V> sums(mean, at);
  Bits<V> bits = {mask, at.pack, packs, hw, bytes};
  walk_columns<V>(in, strides, at, bits, [&](u64 row, const float (&v)[N][V], u32 bits) {
    float d[V];
#pragma unroll
    for (int l = 0; l < V; l++) {
      // The sum is rounded before it is gated, as by an addition of its own.
      float dy = N == 3 ? (float)(scalar)(v[1][l] + v[N - 1][l]) : v[1][l];
      d[l] = bits >> l & 1 ? dy : 0.f;
      sums.add(l, v[0][l], d[l]);
    }
    store_columns<V>(dr, drs, row, at, d);
  });
  store_partial<V>(sums.sum, at, width, partial);
}
#define GATED                                                                                                          \
  MAPS, const scalar *second, u64 seconds, const u8 *mask, u64 hw, u64 bytes, const float *mean, scalar *dr, u64 drs, COLUMNS, \
      double *partial
#define GATED_SUMS(V)                       \
  const scalar* const in[2] = {x, dy};      \
  const u64 strides[2] = {xs, dys};         \
  gated_sums<V>(in, strides, mask, hw, bytes, mean, dr, drs, COLUMNS_PASSED, partial)
#define GATED_SUMS2(V)                              \
  const scalar* const in[3] = {x, dy, second};      \
  const u64 strides[3] = {xs, dys, seconds};        \
  gated_sums<V>(in, strides, mask, hw, bytes, mean, dr, drs, COLUMNS_PASSED, partial)
WIDE_KERNEL batch_norm_gated_sums_packed(GATED) { GATED_SUMS(PACK); }
WIDE_KERNEL batch_norm_gated_sums_single(GATED) { GATED_SUMS(1); }
WIDE_KERNEL batch_norm_gated_sums2_packed(GATED) { GATED_SUMS2(PACK); }
WIDE_KERNEL batch_norm_gated_sums2_single(GATED) { GATED_SUMS2(1); }

// dbeta = Σ dy; dgamma = Σ dy · (x − mean) / √(variance + eps).
KERNEL batch_norm_grad_finish(const double* partial, u32 channels, u32 stretches, const float* variance, float* dgamma,
                              float* dbeta, float eps) {
  double sum[2];
  u32 c;
  sum_stretches(partial, channels, stretches, sum, c);
  if (threadIdx.x >= 8 || c >= channels) return;
  dgamma[c] = (float)(sum[1] / sqrt((double)variance[c] + eps));
  dbeta[c] = (float)sum[0];
}

// dx = gamma / σ · (dy − dbeta / M − (x − mean) / σ · dgamma / M), M the elements of a channel, as dy · p + x · q + r.
template <int V, int GATE>
DEVICE void grad_apply(MAPS, COEFFICIENTS, const float* dgamma, const float* dbeta, scalar* dx, u64 dxs, COLUMNS, float eps,
                       float inverse_count) {
  Columns at(COLUMNS_PASSED);
  Through<V, GATE> through;
  float p[V], q[V], r[V];
  if (GATE == BY_SIGN) lines<V>(mean, variance, gamma, beta, eps, at, through.a, through.b);
#pragma unroll
  for (int l = 0; l < V; l++) {
    u32 c = at.active ? at.pack * V + l : 0;
    float inverse = rsqrtf(variance[c] + eps), slope = dgamma[c] * inverse * inverse_count;
    p[l] = gamma[c] * inverse;
    q[l] = -p[l] * slope;
    r[l] = p[l] * fmaf(mean[c], slope, -dbeta[c] * inverse_count);
  }
  const scalar* const in[2] = {x, dy};
  const u64 strides[2] = {xs, dys};
  walk_columns<V>(in, strides, at, Nothing(), [&](u64 row, const float (&v)[2][V], u32) {
    float to[V];
#pragma unroll
    for (int l = 0; l < V; l++) to[l] = fmaf(through(l, v[0][l], v[1][l]), p[l], fmaf(v[0][l], q[l], r[l]));
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
