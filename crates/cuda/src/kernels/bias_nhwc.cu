// The bias of a convolution with channels innermost or of a linear layer, added after it, with ReLU where an op has it, and its
// gradient: sums of columns.

template <int V, bool RELU> DEVICE void bias_add(scalar* y, u64 ys, const float* bias, COLUMNS) {
  Columns at(COLUMNS_PASSED);
  float b[V];
#pragma unroll
  for (int l = 0; l < V; l++) b[l] = 0.f;
  if (at.active) constants<V>(bias, at.pack, b);
  const scalar* const in[1] = {y};
  const u64 strides[1] = {ys};
  walk_columns<V>(in, strides, at, Nothing(), [&](u64 row, const float (&v)[1][V], u32) {
    float r[V];
#pragma unroll
    for (int l = 0; l < V; l++) {
      r[l] = v[0][l] + b[l];
      if (RELU) r[l] = r[l] <= 0.f ? 0.f : r[l];
    }
    store_columns<V>(y, ys, row, at, r);
  });
}
KERNEL bias_add_packed(scalar* y, u64 ys, const float* bias, COLUMNS) { bias_add<PACK, false>(y, ys, bias, COLUMNS_PASSED); }
KERNEL bias_add_single(scalar* y, u64 ys, const float* bias, COLUMNS) { bias_add<1, false>(y, ys, bias, COLUMNS_PASSED); }
KERNEL bias_relu_packed(scalar* y, u64 ys, const float* bias, COLUMNS) { bias_add<PACK, true>(y, ys, bias, COLUMNS_PASSED); }
KERNEL bias_relu_single(scalar* y, u64 ys, const float* bias, COLUMNS) { bias_add<1, true>(y, ys, bias, COLUMNS_PASSED); }

template <int V> DEVICE void bias_grad(const scalar* dy, u64 dys, COLUMNS, double* partial) {
  Columns at(COLUMNS_PASSED);
  float sum[1][V];
#pragma unroll
  for (int l = 0; l < V; l++) sum[0][l] = 0.f;
  const scalar* const in[1] = {dy};
  const u64 strides[1] = {dys};
  walk_columns<V>(in, strides, at, Nothing(), [&](u64, const float (&v)[1][V], u32) {
#pragma unroll
    for (int l = 0; l < V; l++) sum[0][l] += v[0][l];
  });
  store_partial<V>(sum, at, width, partial);
}
KERNEL bias_grad_packed(const scalar* dy, u64 dys, COLUMNS, double* partial) { bias_grad<PACK>(dy, dys, COLUMNS_PASSED, partial); }
KERNEL bias_grad_single(const scalar* dy, u64 dys, COLUMNS, double* partial) { bias_grad<1>(dy, dys, COLUMNS_PASSED, partial); }

// What of dy goes through where y is above 0, written as dz, and its sums.
template <int V>
DEVICE void relu_bias_grad(const scalar* y, u64 ys, const scalar* dy, u64 dys, scalar* dz, u64 dzs, COLUMNS, double* partial) {
  Columns at(COLUMNS_PASSED);
  float sum[1][V];
#pragma unroll
  for (int l = 0; l < V; l++) sum[0][l] = 0.f;
  const scalar* const in[2] = {y, dy};
  const u64 strides[2] = {ys, dys};
  walk_columns<V>(in, strides, at, Nothing(), [&](u64 row, const float (&v)[2][V], u32) {
    float d[V];
#pragma unroll
    for (int l = 0; l < V; l++) {
      d[l] = v[0][l] <= 0.f ? 0.f : v[1][l];
      sum[0][l] += d[l];
    }
    store_columns<V>(dz, dzs, row, at, d);
  });
  store_partial<V>(sum, at, width, partial);
}
#define RELU_BIAS_GRAD const scalar *y, u64 ys, const scalar *dy, u64 dys, scalar *dz, u64 dzs, COLUMNS, double *partial
#define RELU_BIAS_GRAD_PASSED y, ys, dy, dys, dz, dzs, COLUMNS_PASSED, partial
WIDE_KERNEL relu_bias_grad_packed(RELU_BIAS_GRAD) { relu_bias_grad<PACK>(RELU_BIAS_GRAD_PASSED); }
KERNEL relu_bias_grad_single(RELU_BIAS_GRAD) { relu_bias_grad<1>(RELU_BIAS_GRAD_PASSED); }

KERNEL bias_grad_finish(const double* partial, u32 channels, u32 stretches, float* db) {
  double sum[1];
  u32 c;
  sum_stretches(partial, channels, stretches, sum, c);
  if (threadIdx.x < 8 && c < channels) db[c] = (float)sum[0];
}
