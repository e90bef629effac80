// Batch normalisation of x [N, C, hw]: statistics, normalisation, gradient, running statistics.
//
// Both reductions read their maps once. Sums of squares are exact products in double, so the variance of a channel far
// from zero keeps its digits.

DEVICE void store_statistics(double sum, double squares, u64 count, u32 c, float* mean, float* variance) {
  double m = count ? sum / count : 0, v = count ? squares / count - m * m : 0;
  mean[c] = (float)m;
  variance[c] = (float)(v > 0 || v != v ? v : 0);
}

template <int V>
DEVICE void stats(const scalar* x, u64 stride, u32 channels, u32 packs, u64 total, u32 splits, double* partial, float* mean,
                  float* variance) {
  Stretch part(channels, splits, total);
  const scalar* const in[1] = {x + (u64)part.c * packs * V};
  const u64 strides[1] = {stride};
  double sum[2] = {0, 0};
  sum_channel<V>(in, strides, packs, part.begin, part.end, [](const float (&v)[1], double (&s)[2]) {
    double d = v[0];
    s[0] += d;
    s[1] = fma(d, d, s[1]);
  }, sum);
  block_sum(sum);
  if (threadIdx.x == 0) {
    if (splits == 1) {
      store_statistics(sum[0], sum[1], total * V, part.c, mean, variance);
    } else {
      double* to = partial + ((u64)part.c * splits + part.s) * 2;
      to[0] = sum[0];
      to[1] = sum[1];
    }
  }
}

KERNEL batch_norm_stats_v4(const scalar* x, u64 stride, u32 channels, u32 packs, u64 total, u32 splits, double* partial,
                           float* mean, float* variance) {
  stats<4>(x, stride, channels, packs, total, splits, partial, mean, variance);
}
KERNEL batch_norm_stats_v1(const scalar* x, u64 stride, u32 channels, u32 packs, u64 total, u32 splits, double* partial,
                           float* mean, float* variance) {
  stats<1>(x, stride, channels, packs, total, splits, partial, mean, variance);
}

// One warp a channel.
KERNEL batch_norm_stats_finish(const double* partial, u32 channels, u32 splits, u64 count, float* mean, float* variance) {
  u32 c = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (c >= channels) return;
  double sum[2];
  sum_partials(partial, c, splits, sum);
  if (threadIdx.x % 32 == 0) store_statistics(sum[0], sum[1], count, c, mean, variance);
}

// y = (x − mean) · scale + beta, scale = gamma / √(variance + eps).
struct Normalise {
  float mean, scale, beta;
  DEVICE float operator()(const float (&x)[1]) const { return fmaf(x[0] - mean, scale, beta); }
};

struct NormaliseRelu {
  Normalise y;
  DEVICE float operator()(const float (&x)[1]) const {
    float v = y(x);
    return v <= 0.f ? 0.f : v;
  }
};

// With a residual; and what of dy goes through the ReLU after y. The second input is the residual, or dy.
struct NormaliseAdd {
  Normalise y;
  DEVICE float operator()(const float (&x)[2]) const {
    const float only[1] = {x[0]};
    return y(only) + x[1];
  }
};
struct NormaliseGate {
  Normalise y;
  DEVICE float operator()(const float (&x)[2]) const {
    const float only[1] = {x[0]};
    return y(only) <= 0.f ? 0.f : x[1];
  }
};

#define COEFFICIENTS const float *mean, const float *variance, const float *gamma, const float *beta
DEVICE Normalise normalise_of(COEFFICIENTS, u32 c, float eps) {
  return Normalise{mean[c], gamma[c] * rsqrtf(variance[c] + eps), beta[c]};
}

template <int V, class K>
DEVICE void normalise(const scalar* x, u64 xs, COEFFICIENTS, scalar* y, u64 ys, u32 len, u32 hw, u64 magic, u32 tiles,
                      float eps) {
  Tile t = tile_of<V>(tiles);
  const scalar* const in[1] = {x + t.row * xs};
  map_channels<V>(in, y + t.row * ys, t.start, len, hw, magic, [=](u32 c) {
    return K{normalise_of(mean, variance, gamma, beta, c, eps)};
  });
}
template <int V, class K>
DEVICE void normalise_two(const scalar* x, u64 xs, COEFFICIENTS, const scalar* r, u64 rs, scalar* y, u64 ys, u32 len, u32 hw,
                          u64 magic, u32 tiles, float eps) {
  Tile t = tile_of<V>(tiles);
  const scalar* const in[2] = {x + t.row * xs, r + t.row * rs};
  map_channels<V>(in, y + t.row * ys, t.start, len, hw, magic, [=](u32 c) {
    return K{normalise_of(mean, variance, gamma, beta, c, eps)};
  });
}

#define FORWARD const scalar *x, u64 xs, COEFFICIENTS, scalar *y, u64 ys, u32 len, u32 hw, u64 magic, u32 tiles, float eps
#define FORWARD_PASSED x, xs, mean, variance, gamma, beta, y, ys, len, hw, magic, tiles, eps
KERNEL batch_norm_v4(FORWARD) { normalise<4, Normalise>(FORWARD_PASSED); }
KERNEL batch_norm_v1(FORWARD) { normalise<1, Normalise>(FORWARD_PASSED); }
KERNEL batch_norm_relu_v4(FORWARD) { normalise<4, NormaliseRelu>(FORWARD_PASSED); }
KERNEL batch_norm_relu_v1(FORWARD) { normalise<1, NormaliseRelu>(FORWARD_PASSED); }

#define TWO \
  const scalar *x, u64 xs, COEFFICIENTS, const scalar *r, u64 rs, scalar *y, u64 ys, u32 len, u32 hw, u64 magic, u32 tiles, \
      float eps
#define TWO_PASSED x, xs, mean, variance, gamma, beta, r, rs, y, ys, len, hw, magic, tiles, eps
KERNEL batch_norm_add_v4(TWO) { normalise_two<4, NormaliseAdd>(TWO_PASSED); }
KERNEL batch_norm_add_v1(TWO) { normalise_two<1, NormaliseAdd>(TWO_PASSED); }
KERNEL batch_norm_gate_v4(TWO) { normalise_two<4, NormaliseGate>(TWO_PASSED); }
KERNEL batch_norm_gate_v1(TWO) { normalise_two<1, NormaliseGate>(TWO_PASSED); }

// dbeta = Σ dy; dgamma = Σ dy · (x − mean) / √(variance + eps).
DEVICE void store_sums(double dy, double dot, double variance, float eps, u32 c, float* dgamma, float* dbeta) {
  dgamma[c] = (float)(dot / sqrt(variance + eps));
  dbeta[c] = (float)dy;
}

template <int V>
DEVICE void grad_sums(const scalar* x, u64 x_stride, const scalar* dy, u64 dy_stride, const float* mean,
                      const float* variance, u32 channels, u32 packs, u64 total, u32 splits, double* partial, float* dgamma,
                      float* dbeta, float eps) {
  Stretch part(channels, splits, total);
  u64 channel = (u64)part.c * packs * V;
  const scalar* const in[2] = {x + channel, dy + channel};
  const u64 strides[2] = {x_stride, dy_stride};
  double sum[2] = {0, 0}, m = mean[part.c];
  sum_channel<V>(in, strides, packs, part.begin, part.end, [=](const float (&v)[2], double (&s)[2]) {
    double d = v[1];
    s[0] += d;
    s[1] = fma(d, v[0] - m, s[1]);
  }, sum);
  block_sum(sum);
  if (threadIdx.x == 0) {
    if (splits == 1) {
      store_sums(sum[0], sum[1], variance[part.c], eps, part.c, dgamma, dbeta);
    } else {
      double* to = partial + ((u64)part.c * splits + part.s) * 2;
      to[0] = sum[0];
      to[1] = sum[1];
    }
  }
}

KERNEL batch_norm_grad_sums_v4(const scalar* x, u64 xs, const scalar* dy, u64 dys, const float* mean, const float* variance,
                               u32 channels, u32 packs, u64 total, u32 splits, double* partial, float* dgamma, float* dbeta,
                               float eps) {
  grad_sums<4>(x, xs, dy, dys, mean, variance, channels, packs, total, splits, partial, dgamma, dbeta, eps);
}
KERNEL batch_norm_grad_sums_v1(const scalar* x, u64 xs, const scalar* dy, u64 dys, const float* mean, const float* variance,
                               u32 channels, u32 packs, u64 total, u32 splits, double* partial, float* dgamma, float* dbeta,
                               float eps) {
  grad_sums<1>(x, xs, dy, dys, mean, variance, channels, packs, total, splits, partial, dgamma, dbeta, eps);
}

// One warp a channel.
KERNEL batch_norm_grad_finish(const double* partial, u32 channels, u32 splits, const float* variance, float* dgamma,
                              float* dbeta, float eps) {
  u32 c = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (c >= channels) return;
  double sum[2];
  sum_partials(partial, c, splits, sum);
  if (threadIdx.x % 32 == 0) store_sums(sum[0], sum[1], variance[c], eps, c, dgamma, dbeta);
}

// dx = gamma / σ · (dy − dbeta / M − (x − mean) / σ · dgamma / M), M the elements of a channel.
struct NormaliseGrad {
  float mean, scale, shift, slope;
  DEVICE float operator()(const float (&v)[2]) const { return scale * (v[1] - fmaf(v[0] - mean, slope, shift)); }
};

template <int V>
DEVICE void grad_apply(const scalar* x, u64 x_stride, const scalar* dy, u64 dy_stride, const float* mean,
                       const float* variance, const float* gamma, const float* dgamma, const float* dbeta, scalar* dx,
                       u64 dx_stride, u32 len, u32 hw, u64 magic, u32 tiles, float eps, float inverse_count) {
  Tile t = tile_of<V>(tiles);
  const scalar* const in[2] = {x + t.row * x_stride, dy + t.row * dy_stride};
  map_channels<V>(in, dx + t.row * dx_stride, t.start, len, hw, magic, [=](u32 c) {
    float inverse = rsqrtf(variance[c] + eps);
    return NormaliseGrad{mean[c], gamma[c] * inverse, dbeta[c] * inverse_count, dgamma[c] * inverse * inverse_count};
  });
}

KERNEL batch_norm_grad_v4(const scalar* x, u64 xs, const scalar* dy, u64 dys, const float* mean, const float* variance,
                          const float* gamma, const float* dgamma, const float* dbeta, scalar* dx, u64 dxs, u32 len, u32 hw,
                          u64 magic, u32 tiles, float eps, float inverse_count) {
  grad_apply<4>(x, xs, dy, dys, mean, variance, gamma, dgamma, dbeta, dx, dxs, len, hw, magic, tiles, eps, inverse_count);
}
KERNEL batch_norm_grad_v1(const scalar* x, u64 xs, const scalar* dy, u64 dys, const float* mean, const float* variance,
                          const float* gamma, const float* dgamma, const float* dbeta, scalar* dx, u64 dxs, u32 len, u32 hw,
                          u64 magic, u32 tiles, float eps, float inverse_count) {
  grad_apply<1>(x, xs, dy, dys, mean, variance, gamma, dgamma, dbeta, dx, dxs, len, hw, magic, tiles, eps, inverse_count);
}

// running ← (1 − momentum) · running + momentum · batch; unbias = count / (count − 1) for the variance.
struct Member {
  const float *mean, *variance, *running_mean, *running_variance;
  float *new_mean, *new_variance;
  u64 len, first;
};
KERNEL batch_norm_update(const __grid_constant__ Table<Member> table, u32 members, float keep, float momentum, float unbias) {
  Share share(table, members);
  const Member& of = table.of[share.member];
  u64 end = share.start + STRETCH < of.len ? share.start + STRETCH : of.len;
  for (u64 c = share.start + threadIdx.x; c < end; c += THREADS) {
    of.new_mean[c] = fmaf(momentum, of.mean[c], keep * of.running_mean[c]);
    of.new_variance[c] = fmaf(momentum, of.variance[c] * unbias, keep * of.running_variance[c]);
  }
}
