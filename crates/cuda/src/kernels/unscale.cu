// Gradients of a scaled loss divided by its scale, many tensors in one launch, and whether all were finite.

#define MOST_UNSCALED 64
// In row t: elements, and the number of blocks up to and with this tensor; past the last tensor as in its row.
struct Unscaled {
  struct { const float* in; float* out; u64 len, blocks; } of[MOST_UNSCALED];
};

// guard' = guard, before any block of the next launch says otherwise.
KERNEL unscale_guard(const float* guard, float* found) {
  if (threadIdx.x == 0) *found = *guard;
}

// All loads of a thread precede its stores, so an output may lie over its input. Every thread that finds what is not finite
// writes the same word, so bits do not depend on who is last.
template <int V> DEVICE void unscale(const float* scale, float* found, const Unscaled& all) {
  u32 t = 0;
#pragma unroll
  for (u32 step = MOST_UNSCALED / 2; step > 0; step >>= 1)
    if (blockIdx.x >= all.of[t + step - 1].blocks) t += step;
  u64 before = t > 0 ? all.of[t - 1].blocks : 0, len = all.of[t].len;
  const float* in = all.of[t].in;
  float* out = all.of[t].out;
  u64 start = (blockIdx.x - before) * (THREADS * V * WALKED) + threadIdx.x * V;
  float inverse = 1.f / *scale;
  bool finite = true;
  Pack<V> a[WALKED];
#pragma unroll
  for (int u = 0; u < WALKED; u++) {
    u64 i = start + u * (THREADS * V);
    if (i + V <= len) a[u] = load<V>(in + i);
  }
#pragma unroll
  for (int u = 0; u < WALKED; u++) {
    u64 i = start + u * (THREADS * V);
    if (i + V <= len) {
#pragma unroll
      for (int l = 0; l < V; l++) {
        finite &= fabsf(a[u].lane[l]) <= 3.402823466e38f;
        a[u].lane[l] *= inverse;
      }
      store<V>(out + i, a[u]);
    } else {
      for (; i < len; i++) {
        float v = in[i];
        finite &= fabsf(v) <= 3.402823466e38f;
        out[i] = v * inverse;
      }
    }
  }
  if (!finite) *found = __int_as_float(0x7fc00000);
}

KERNEL unscale_packed(const float* scale, float* found, const __grid_constant__ Unscaled all) { unscale<4>(scale, found, all); }
KERNEL unscale_single(const float* scale, float* found, const __grid_constant__ Unscaled all) { unscale<1>(scale, found, all); }
