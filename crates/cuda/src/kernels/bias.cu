// The bias of a convolution or a linear layer, added after it, and its gradient: the sum over all but the channels.

struct BiasAdd {
  float bias;
  DEVICE float operator()(const float (&x)[1]) const { return x[0] + bias; }
};

// y [N, C, hw] += bias [C].
template <int V>
DEVICE void bias_add(scalar* y, u64 y_stride, const float* bias, u32 len, u32 hw, u64 magic, u32 tiles) {
  Tile t = tile_of<V>(tiles);
  scalar* row = y + t.row * y_stride;
  const scalar* const in[1] = {row};
  map_channels<V>(in, row, t.start, len, hw, magic, [=](u32 c) { return BiasAdd{bias[c]}; });
}

KERNEL bias_add_v4(scalar* y, u64 ys, const float* bias, u32 len, u32 hw, u64 magic, u32 tiles) {
  bias_add<4>(y, ys, bias, len, hw, magic, tiles);
}
KERNEL bias_add_v1(scalar* y, u64 ys, const float* bias, u32 len, u32 hw, u64 magic, u32 tiles) {
  bias_add<1>(y, ys, bias, len, hw, magic, tiles);
}

// Sums of stretches of dy's channels; with one stretch a channel the result itself.
template <int V>
DEVICE void bias_grad(const scalar* dy, u64 stride, u32 channels, u32 packs, u64 total, u32 splits, double* partial,
                      float* db) {
  Stretch part(channels, splits, total);
  const scalar* const in[1] = {dy + (u64)part.c * packs * V};
  const u64 strides[1] = {stride};
  double sum[1] = {0};
  sum_channel<V>(in, strides, packs, part.begin, part.end, [](const float (&x)[1], double (&s)[1]) { s[0] += x[0]; }, sum);
  block_sum(sum);
  if (threadIdx.x == 0) {
    if (splits == 1) db[part.c] = (float)sum[0];
    else partial[(u64)part.c * splits + part.s] = sum[0];
  }
}

KERNEL bias_grad_v4(const scalar* dy, u64 stride, u32 channels, u32 packs, u64 total, u32 splits, double* partial, float* db) {
  bias_grad<4>(dy, stride, channels, packs, total, splits, partial, db);
}
KERNEL bias_grad_v1(const scalar* dy, u64 stride, u32 channels, u32 packs, u64 total, u32 splits, double* partial, float* db) {
  bias_grad<1>(dy, stride, channels, packs, total, splits, partial, db);
}

// One warp a channel.
KERNEL bias_grad_finish(const double* partial, u32 channels, u32 splits, float* db) {
  u32 c = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (c >= channels) return;
  double sum[1];
  sum_partials(partial, c, splits, sum);
  if (threadIdx.x % 32 == 0) db[c] = (float)sum[0];
}

// dy [N, C] without pixels: 32 columns a block, so that reads stay coalesced; 8 threads share a column's rows.
KERNEL bias_grad_columns(const scalar* dy, u64 stride, u64 rows, u32 channels, float* db) {
  __shared__ double sums[THREADS];
  u32 lane = threadIdx.x % 32, c = blockIdx.x * 32 + lane;
  double sum = 0;
  if (c < channels) {
    for (u64 n = threadIdx.x / 32; n < rows; n += THREADS / 32) sum += dy[n * stride + c];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x < 32 && c < channels) {
    for (int w = 1; w < THREADS / 32; w++) sum += sums[w * 32 + lane];
    db[c] = (float)sum;
  }
}
