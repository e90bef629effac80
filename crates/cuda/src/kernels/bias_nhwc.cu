// The bias of a convolution with channels innermost or of a linear layer, added after it, with ReLU where an op has it, and its
// gradient: sums of columns.

template <int V, bool RELU> DEVICE void bias_add(scalar* y, u64 ys, const float* bias, COLUMNS) {
  Piece at(COLUMNS_PASSED);
  const scalar* const in[1] = {y};
  const u64 strides[1] = {ys};
  Turns<V, 1, Nothing> turns(in, strides, at, Nothing());
  float b[1][V];
  by_channel<V>(at, [&](u32 c, float (&made)[1]) { made[0] = bias[c]; }, b);
  turns.each([&](u64 row, const float (&v)[1][V], u32) {
    float r[V];
#pragma unroll
    for (int l = 0; l < V; l++) {
      r[l] = v[0][l] + b[0][l];
      if (RELU) r[l] = r[l] <= 0.f ? 0.f : r[l];
    }
    store_columns<V>(y, ys, row, at, r);
  });
}
KERNEL bias_add_packed(scalar* y, u64 ys, const float* bias, COLUMNS) { bias_add<PACK, false>(y, ys, bias, COLUMNS_PASSED); }
KERNEL bias_add_single(scalar* y, u64 ys, const float* bias, COLUMNS) { bias_add<1, false>(y, ys, bias, COLUMNS_PASSED); }
KERNEL bias_relu_packed(scalar* y, u64 ys, const float* bias, COLUMNS) { bias_add<PACK, true>(y, ys, bias, COLUMNS_PASSED); }
KERNEL bias_relu_single(scalar* y, u64 ys, const float* bias, COLUMNS) { bias_add<1, true>(y, ys, bias, COLUMNS_PASSED); }

#define BIAS_GRAD const scalar *dy, u64 dys, COLUMNS, double *partial, float *db
#define BIAS_GRAD_PASSED dy, dys, COLUMNS_PASSED, partial, db
template <int V> DEVICE void bias_grad(BIAS_GRAD) {
  Dealt at(COLUMNS_PASSED, TALL);
  const scalar* const in[1] = {dy};
  const u64 strides[1] = {dys};
  Turns<V, 1, Nothing> turns(in, strides, at, Nothing());
  float sum[1][V];
#pragma unroll
  for (int l = 0; l < V; l++) sum[0][l] = 0.f;
  turns.each([&](u64, const float (&v)[1][V], u32) {
#pragma unroll
    for (int l = 0; l < V; l++) sum[0][l] += v[0][l];
  });
  sum_columns<TALL, V>(sum, at, partial, [&](u32 c, const double (&sum)[1]) { db[c] = (float)sum[0]; });
}
TALL_KERNEL bias_grad_packed(BIAS_GRAD) { bias_grad<PACK>(BIAS_GRAD_PASSED); }
TALL_KERNEL bias_grad_single(BIAS_GRAD) { bias_grad<1>(BIAS_GRAD_PASSED); }

// What of dy goes through where y is above 0, written as dz, and its sums.
#define RELU_BIAS_GRAD \
  const scalar *y, u64 ys, const scalar *dy, u64 dys, scalar *dz, u64 dzs, COLUMNS, double *partial, float *db
#define RELU_BIAS_GRAD_PASSED y, ys, dy, dys, dz, dzs, COLUMNS_PASSED, partial, db
template <int V> DEVICE void relu_bias_grad(RELU_BIAS_GRAD) {
  Dealt at(COLUMNS_PASSED, TALL);
  const scalar* const in[2] = {y, dy};
  const u64 strides[2] = {ys, dys};
  Turns<V, 2, Nothing, 2> turns(in, strides, at, Nothing());
  float sum[1][V];
#pragma unroll
  for (int l = 0; l < V; l++) sum[0][l] = 0.f;
  turns.each([&](u64 row, const float (&v)[2][V], u32) {
    float d[V];
#pragma unroll
    for (int l = 0; l < V; l++) {
      d[l] = v[0][l] <= 0.f ? 0.f : v[1][l];
      sum[0][l] += d[l];
    }
    store_columns<V>(dz, dzs, row, at, d);
  });
  sum_columns<TALL, V>(sum, at, partial, [&](u32 c, const double (&sum)[1]) { db[c] = (float)sum[0]; });
}
TALL_KERNEL relu_bias_grad_packed(RELU_BIAS_GRAD) { relu_bias_grad<PACK>(RELU_BIAS_GRAD_PASSED); }
TALL_KERNEL relu_bias_grad_single(RELU_BIAS_GRAD) { relu_bias_grad<1>(RELU_BIAS_GRAD_PASSED); }
