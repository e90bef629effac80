// Images of bytes as numbers. Every byte of a channel is looked up among 256 numbers that the launch brings along, rounded as
// the CPU rounds them. A block works in one plane [h · w] of one sample; what it writes is moved by 16 bytes, what it reads by as
// many bytes as that is numbers.

#define CHANNELS 3
struct Levels { float of[CHANNELS][256]; };

template <int V> struct alignas(V) Bytes { u8 byte[V]; };

// Planes of `channels` channels from the operands' first on, cut into `tiles` each.
template <int V>
DEVICE void normalise(const Levels& levels, const u8* x, u64 xs, scalar* y, u64 ys, u32 hw, u32 channels, u32 tiles) {
  __shared__ float level[256];
  u32 plane = blockIdx.x / tiles, tile = blockIdx.x - plane * tiles, n = plane / channels, c = plane - n * channels;
  level[threadIdx.x] = levels.of[c][threadIdx.x];
  __syncthreads();
  const u8* from = x + n * xs + (u64)c * hw;
  scalar* to = y + n * ys + (u64)c * hw;
  Bytes<V> in[WALKED];
#pragma unroll
  for (int u = 0; u < WALKED; u++) {
    u32 i = ((tile * WALKED + u) * THREADS + threadIdx.x) * V;
    if (i < hw) in[u] = *(const Bytes<V>*)(from + i);
  }
#pragma unroll
  for (int u = 0; u < WALKED; u++) {
    u32 i = ((tile * WALKED + u) * THREADS + threadIdx.x) * V;
    if (i >= hw) return;
    float v[V];
#pragma unroll
    for (int l = 0; l < V; l++) v[l] = level[in[u].byte[l]];
    Pack<V> out;
    out.put(v);
    store<V>(to + i, out);
  }
}

#define PLANES const __grid_constant__ Levels levels, const u8 *x, u64 xs, scalar *y, u64 ys, u32 hw, u32 channels, u32 tiles
KERNEL normalise_packed(PLANES) { normalise<PACK>(levels, x, xs, y, ys, hw, channels, tiles); }
KERNEL normalise_single(PLANES) { normalise<1>(levels, x, xs, y, ys, hw, channels, tiles); }
