// Local response normalisation across channels: y = x / s^beta, s[c] = k + alpha/size · Σ x[c']² over the window of c.
//
// A thread stands at one pixel and walks a chunk of channels, so neighbouring threads read neighbouring pixels and a
// window's rows are still in the first cache when the walk meets them again. The window reaches `low` channels back and
// `high` on. blockIdx.x = (sample · chunks + chunk) · tiles + tile.

struct Position {
  u64 sample;
  u32 pixel, first, end;
  DEVICE Position(u32 channels, u32 tiles, u32 chunks, u32 chunk) {
    u32 rest = blockIdx.x / tiles;
    pixel = (blockIdx.x - rest * tiles) * blockDim.x + threadIdx.x;
    sample = rest / chunks;
    first = (rest - (u32)sample * chunks) * chunk;
    end = first + chunk < channels ? first + chunk : channels;
  }
};

// s at channel c; x points at the pixel in channel 0.
DEVICE float scale_at(const scalar* x, u32 hw, u32 channels, i32 c, i32 low, i32 high, float k, float alpha) {
  float sum = 0;
  for (i32 j = max(c - low, 0); j <= min(c + high, (i32)channels - 1); j++) {
    float v = x[(u64)j * hw];
    sum = fmaf(v, v, sum);
  }
  return fmaf(alpha, sum, k);
}

// s^−beta. The paper's exponent needs two roots only.
DEVICE float inverse_power(float s, float beta) {
  if (beta == 0.75f) {
    float root = sqrtf(s);
    return 1.f / (root * sqrtf(root));
  }
  return powf(s, -beta);
}

KERNEL local_response_norm(const scalar* x, u64 xs, scalar* y, u64 ys, u32 channels, u32 hw, u32 tiles, u32 chunks,
                           u32 chunk, u32 size, float k, float alpha, float beta) {
  Position at(channels, tiles, chunks, chunk);
  if (at.pixel >= hw) return;
  const scalar* from = x + at.sample * xs + at.pixel;
  scalar* to = y + at.sample * ys + at.pixel;
  i32 low = size / 2, high = (size - 1) / 2;
  for (u32 c = at.first; c < at.end; c++) {
    to[(u64)c * hw] = from[(u64)c * hw] * inverse_power(scale_at(from, hw, channels, c, low, high, k, alpha), beta);
  }
}

// dx[c] = dy[c] s[c]^−beta − 2 alpha beta/size · x[c] · Σ dy[j] x[j] s[j]^(−beta−1) over the windows j that hold c, which
// are c − high to c + low. Each thread keeps the last `size` terms and powers in a ring of its own in shared memory.
KERNEL local_response_norm_grad(const scalar* x, u64 xs, const scalar* dy, u64 dys, scalar* dx, u64 dxs, u32 channels, u32 hw,
                                u32 tiles, u32 chunks, u32 chunk, u32 size, float k, float alpha, float beta) {
  DYNAMIC_SHARED(ring);
  Position at(channels, tiles, chunks, chunk);
  if (at.pixel >= hw) return;
  const scalar* from = x + at.sample * xs + at.pixel;
  const scalar* above = dy + at.sample * dys + at.pixel;
  scalar* to = dx + at.sample * dxs + at.pixel;
  float* terms = ring + threadIdx.x;
  float* powers = terms + size * blockDim.x;
  i32 low = size / 2, high = (size - 1) / 2, first = at.first, end = at.end;
  u32 slot = 0;  // where channel j goes; channel j − i went to slot − i, modulo size
  for (i32 j = first - high; j < end + low; j++) {
    float term = 0, power = 0;
    if (j >= 0 && j < (i32)channels) {
      float s = scale_at(from, hw, channels, j, low, high, k, alpha);
      power = inverse_power(s, beta);
      term = above[(u64)j * hw] * from[(u64)j * hw] * power / s;
    }
    terms[slot * blockDim.x] = term;
    powers[slot * blockDim.x] = power;
    i32 c = j - low;
    if (c >= first) {
      float sum = 0;
      for (u32 i = 0; i < size; i++) {
        u32 oldest = slot + 1 + i;
        sum += terms[(oldest < size ? oldest : oldest - size) * blockDim.x];
      }
      u32 own = slot >= (u32)low ? slot - low : slot + size - low;
      float direct = above[(u64)c * hw] * powers[own * blockDim.x];
      to[(u64)c * hw] = fmaf(-2.f * alpha * beta * from[(u64)c * hw], sum, direct);
    }
    slot = slot + 1 < size ? slot + 1 : 0;
  }
}
