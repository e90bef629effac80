// Gradients of a scaled loss divided by its scale, many tensors in one launch, and whether all were finite.

// A gradient in one piece. In half precision where it is: [N, hw, channels] in memory where hw is not 0.
struct Member {
  const void* in;
  float* out;
  u64 len;
  u32 kind, hw, channels, unused;
  u64 first;
};
enum Kind { F32, BF16, F16 };

// guard' = guard, before any block of the next launch says otherwise.
KERNEL unscale_guard(const float* guard, float* found) {
  if (threadIdx.x == 0) *found = *guard;
}

// Eight numbers from element e on; beyond the end zeros.
template <class T> DEVICE void load_some(const Member& of, u64 e, float (&v)[8]) {
  const T* in = (const T*)of.in;
  if (!of.hw) {
    if (e + 8 <= of.len && (u64)of.in % 16 == 0) {
#pragma unroll
      for (int part = 0; part < (int)sizeof(T) / 2; part++) {
        const int N = 16 / (int)sizeof(T);
        float some[N];
        (*(const PackOf<T, N>*)(in + e + part * N)).get(some);
#pragma unroll
        for (int l = 0; l < N; l++) v[part * N + l] = some[l];
      }
      return;
    }
#pragma unroll
    for (int l = 0; l < 8; l++) v[l] = e + l < of.len ? (float)in[e + l] : 0.f;
    return;
  }
  u32 each = of.hw * of.channels, n = (u32)e / each, rest = (u32)e - n * each, c = rest / of.hw, p = rest - c * of.hw;
#pragma unroll
  for (int l = 0; l < 8; l++) {
    v[l] = e + l < of.len ? (float)in[((u64)n * of.hw + p) * of.channels + c] : 0.f;
    if (++p == of.hw) {
      p = 0;
      if (++c == of.channels) {
        c = 0;
        n++;
      }
    }
  }
}

// All loads of a thread precede its stores, so an output in f32 may lie over its input. Every thread that finds what is not finite
// writes the same word, so bits do not depend on who is last.
KERNEL unscale(const float* scale, float* found, const __grid_constant__ Table<Member> table, u32 members) {
  Share share(table, members);
  const Member& of = table.of[share.member];
  u64 e = share.start + threadIdx.x * 8;
  if (e >= of.len) return;
  float v[8], inverse = 1.f / *scale;
  if (of.kind == F32) load_some<float>(of, e, v);
  else if (of.kind == BF16) load_some<bf16>(of, e, v);
  else load_some<f16>(of, e, v);
  bool finite = true;
#pragma unroll
  for (int l = 0; l < 8; l++) {
    finite &= fabsf(v[l]) <= 3.402823466e38f;
    v[l] *= inverse;
  }
  if (e + 8 <= of.len && (u64)of.out % 16 == 0) {
#pragma unroll
    for (int part = 0; part < 2; part++) {
      PackOf<float, 4> pack;
      const float some[4] = {v[4 * part], v[4 * part + 1], v[4 * part + 2], v[4 * part + 3]};
      pack.put(some);
      ((PackOf<float, 4>*)(of.out + e))[part] = pack;
    }
  } else {
#pragma unroll
    for (int l = 0; l < 8; l++)
      if (e + l < of.len) of.out[e + l] = v[l];
  }
  if (!finite) *found = __int_as_float(0x7fc00000);
}
