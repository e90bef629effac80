// Softmax and cross-entropy over rows of K logits: mean loss, and dlogits of the mean loss. A block takes a row.
//
// Rows of the ignored label count for nothing; a mean over no rows is NaN, its gradient 0. A label outside 0..K makes the
// loss NaN instead of a read outside the row.

DEVICE bool counts(i32 label, i32 ignore) { return label != ignore; }

// Loss of each row into row_loss [N].
KERNEL softmax_cross_entropy_rows(const scalar* x, u64 stride, const i32* labels, double* row_loss, u32 classes, i32 ignore,
                                  float smoothing) {
  const scalar* row = x + blockIdx.x * stride;
  float largest = -__int_as_float(0x7f800000);
  for (u32 k = threadIdx.x; k < classes; k += THREADS) largest = fmaxf(largest, row[k]);
  largest = block_max(largest);
  double sum[2] = {0, 0};  // of exponentials, of logits
  for (u32 k = threadIdx.x; k < classes; k += THREADS) {
    float v = row[k];
    sum[0] += expf(v - largest);
    sum[1] += v;
  }
  block_sum(sum);
  if (threadIdx.x != 0) return;
  i32 label = labels[blockIdx.x];
  double loss = 0;
  if (counts(label, ignore)) {
    double own = (u32)label < classes ? (double)row[label] : __int_as_float(0x7fc00000);
    double target = (1.0 - smoothing) * own + (smoothing > 0.f ? smoothing * sum[1] / classes : 0.0);
    loss = largest + log(sum[0]) - target;
  }
  row_loss[blockIdx.x] = loss;
}

// The mean over rows that count; one block.
KERNEL softmax_cross_entropy_mean(const double* row_loss, const i32* labels, float* loss, u32 rows, i32 ignore) {
  double sum[2] = {0, 0};
  for (u32 n = threadIdx.x; n < rows; n += THREADS) {
    sum[0] += row_loss[n];
    sum[1] += counts(labels[n], ignore);
  }
  block_sum(sum);
  if (threadIdx.x == 0) *loss = (float)(sum[0] / sum[1]);
}

// 1 / (rows that count) times the scale (null for none), or 0 without any; one block.
KERNEL softmax_cross_entropy_weight(const i32* labels, float* weight, u32 rows, i32 ignore, const float* scale) {
  double sum[1] = {0};
  for (u32 n = threadIdx.x; n < rows; n += THREADS) sum[0] += counts(labels[n], ignore);
  block_sum(sum);
  if (threadIdx.x == 0) *weight = sum[0] > 0 ? (float)((scale ? *scale : 1.f) / sum[0]) : 0.f;
}

// dx = weight · (softmax − target); may lie over x, which a block has read before it writes.
KERNEL softmax_cross_entropy_grad(const scalar* x, u64 xs, const i32* labels, const float* weight, scalar* dx, u64 dxs,
                                  u32 classes, i32 ignore, float smoothing) {
  __shared__ float factor;
  const scalar* row = x + blockIdx.x * xs;
  scalar* to = dx + blockIdx.x * dxs;
  float largest = -__int_as_float(0x7f800000);
  for (u32 k = threadIdx.x; k < classes; k += THREADS) largest = fmaxf(largest, row[k]);
  largest = block_max(largest);
  double sum[1] = {0};
  for (u32 k = threadIdx.x; k < classes; k += THREADS) sum[0] += expf(row[k] - largest);
  block_sum(sum);
  if (threadIdx.x == 0) factor = (float)(1.0 / sum[0]);
  __syncthreads();
  i32 label = labels[blockIdx.x];
  float scale = counts(label, ignore) ? *weight : 0.f, everywhere = smoothing / classes;
  for (u32 k = threadIdx.x; k < classes; k += THREADS) {
    float target = everywhere + (k == (u32)label ? 1.f - smoothing : 0.f);
    float slope = fmaf(expf(row[k] - largest), factor, -target);
    to[k] = scale != 0.f ? scale * slope : 0.f;
  }
}
