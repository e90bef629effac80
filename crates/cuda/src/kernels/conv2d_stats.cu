// Mean and biased variance of each channel from the sums of its `count` numbers and of their squares, a thread a channel. Sums
// of squares that rounding left below the square of the sum make no variance below 0; what is no number stays none.
KERNEL conv2d_stats(const float* sum, const float* squares, u32 channels, double count, float* mean, float* variance) {
  u32 c = blockIdx.x * THREADS + threadIdx.x;
  if (c >= channels) return;
  double m = sum[c] / count, v = squares[c] / count - m * m;
  mean[c] = (float)m;
  variance[c] = (float)(v > 0 || v != v ? v : 0);
}
