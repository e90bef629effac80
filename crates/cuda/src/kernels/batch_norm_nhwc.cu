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

// Which elements of dy go through: all, those above 0 by x and its line, those by the mask.
enum Gate { OPEN, BY_SIGN, BY_MASK };

template <int V, int GATE> struct Through {
  float a[V], b[V];
  DEVICE float operator()(int l, float x, float dy, u32 bits) const {
    if (GATE == BY_SIGN) return fmaf(x, a[l], b[l]) <= 0.f ? 0.f : dy;
    if (GATE == BY_MASK) return bits >> l & 1 ? dy : 0.f;
    return dy;
  }
};

// The bits of a row's pack. A single element's bit is looked for in its sample's bytes.
template <int V> struct Bits {
  const u8* mask;
  u32 pack, packs;
  u64 hw, bytes;
  DEVICE u32 operator()(u64 row) const {
    if (!mask) return 0;
    if (V == 8) return mask[row * packs + pack];
    u64 n = row / hw, e = (row - n * hw) * packs + pack;
    return (u32)mask[n * bytes + e / 8] >> (e % 8);
  }
};

#define MAPS const scalar *x, u64 xs, const scalar *dy, u64 dys, const u8 *mask, u64 hw, u64 bytes
#define MAPS_PASSED x, xs, dy, dys, mask, hw, bytes

// Sums of what goes through, and of it times x − mean.
template <int V, int GATE> DEVICE void grad_sums(MAPS, COEFFICIENTS, COLUMNS, float eps, double* partial) {
  Columns at(COLUMNS_PASSED);
  Through<V, GATE> through;
  float m[V], sum[2][V];
  if (GATE == BY_SIGN) lines<V>(mean, variance, gamma, beta, eps, at, through.a, through.b);
#pragma unroll
  for (int l = 0; l < V; l++) {
    sum[0][l] = sum[1][l] = 0.f;
    m[l] = 0.f;
  }
  if (at.active) constants<V>(mean, at.pack, m);
  const scalar* const in[2] = {x, dy};
  const u64 strides[2] = {xs, dys};
  Bits<V> bits = {GATE == BY_MASK ? mask : nullptr, at.pack, packs, hw, bytes};
  walk_columns<V>(in, strides, at, bits, [&](u64, const float (&v)[2][V], u32 bits) {
#pragma unroll
    for (int l = 0; l < V; l++) {
      float d = through(l, v[0][l], v[1][l], bits);
      sum[0][l] += d;
      sum[1][l] = fmaf(d, v[0][l] - m[l], sum[1][l]);
    }
  });
  store_partial<V>(sum, at, width, partial);
}
#define SUMS MAPS, COEFFICIENTS, COLUMNS, float eps, double *partial
#define SUMS_PASSED MAPS_PASSED, mean, variance, gamma, beta, COLUMNS_PASSED, eps, partial
WIDE_KERNEL batch_norm_grad_sums_packed(SUMS) { grad_sums<PACK, OPEN>(SUMS_PASSED); }
WIDE_KERNEL batch_norm_grad_sums_single(SUMS) { grad_sums<1, OPEN>(SUMS_PASSED); }
WIDE_KERNEL batch_norm_relu_grad_sums_packed(SUMS) { grad_sums<PACK, BY_SIGN>(SUMS_PASSED); }
WIDE_KERNEL batch_norm_relu_grad_sums_single(SUMS) { grad_sums<1, BY_SIGN>(SUMS_PASSED); }
WIDE_KERNEL batch_norm_add_relu_grad_sums_packed(SUMS) { grad_sums<PACK, BY_MASK>(SUMS_PASSED); }
WIDE_KERNEL batch_norm_add_relu_grad_sums_single(SUMS) { grad_sums<1, BY_MASK>(SUMS_PASSED); }

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
// dr, where an op has one, is what of dy goes through.
template <int V, int GATE>
DEVICE void grad_apply(MAPS, COEFFICIENTS, const float* dgamma, const float* dbeta, scalar* dx, u64 dxs, scalar* dr, u64 drs,
                       COLUMNS, float eps, float inverse_count) {
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
  Bits<V> bits = {GATE == BY_MASK ? mask : nullptr, at.pack, packs, hw, bytes};
  walk_columns<V>(in, strides, at, bits, [&](u64 row, const float (&v)[2][V], u32 bits) {
    float d[V], to[V];
#pragma unroll
    for (int l = 0; l < V; l++) {
      d[l] = through(l, v[0][l], v[1][l], bits);
      to[l] = fmaf(d[l], p[l], fmaf(v[0][l], q[l], r[l]));
    }
    store_columns<V>(dx, dxs, row, at, to);
    if (GATE == BY_MASK) store_columns<V>(dr, drs, row, at, d);
  });
}
#define APPLY                                                                                                             \
  MAPS, COEFFICIENTS, const float *dgamma, const float *dbeta, scalar *dx, u64 dxs, scalar *dr, u64 drs, COLUMNS, float eps, \
      float inverse_count
#define APPLY_PASSED \
  MAPS_PASSED, mean, variance, gamma, beta, dgamma, dbeta, dx, dxs, dr, drs, COLUMNS_PASSED, eps, inverse_count
WIDE_KERNEL batch_norm_grad_packed(APPLY) { grad_apply<PACK, OPEN>(APPLY_PASSED); }
WIDE_KERNEL batch_norm_grad_single(APPLY) { grad_apply<1, OPEN>(APPLY_PASSED); }
WIDE_KERNEL batch_norm_relu_grad_packed(APPLY) { grad_apply<PACK, BY_SIGN>(APPLY_PASSED); }
WIDE_KERNEL batch_norm_relu_grad_single(APPLY) { grad_apply<1, BY_SIGN>(APPLY_PASSED); }
WIDE_KERNEL batch_norm_add_relu_grad_packed(APPLY) { grad_apply<PACK, BY_MASK>(APPLY_PASSED); }
WIDE_KERNEL batch_norm_add_relu_grad_single(APPLY) { grad_apply<1, BY_MASK>(APPLY_PASSED); }
