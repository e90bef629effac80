// Rows whose largest logit, the first on ties, is the label's. A block takes a row.

KERNEL accuracy_rows(const scalar* x, u64 stride, const i32* labels, u32* hits, u32 classes) {
  const scalar* row = x + blockIdx.x * stride;
  u32 label = (u32)labels[blockIdx.x];
  float own = label < classes ? row[label] : 0.f;
  double beaten[1] = {label < classes ? 0.0 : 1.0};
  for (u32 k = threadIdx.x; k < classes; k += THREADS) {
    bool below = k < label ? row[k] < own : row[k] <= own;
    if (!below) beaten[0] += 1.0;
  }
  block_sum(beaten);
  if (threadIdx.x == 0) hits[blockIdx.x] = beaten[0] == 0.0;
}

// The number of hits; one block.
KERNEL accuracy_count(const u32* hits, float* count, u32 rows) {
  double sum[1] = {0};
  for (u32 n = threadIdx.x; n < rows; n += THREADS) sum[0] += hits[n];
  block_sum(sum);
  if (threadIdx.x == 0) *count = (float)sum[0];
}
