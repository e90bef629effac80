// Element types: f32, and the two-byte numbers of half precision, which are widened when read and rounded when written (to
// nearest, ties to even). ELEMENT_BF16 or ELEMENT_F16 chooses the type of a source's feature maps.

typedef unsigned char u8;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;

#define DEVICE __device__ __forceinline__

// Two numbers at once, the lower half of a word first. Where the tests run kernels on the CPU, their shim has these.
#ifdef __CUDACC__
DEVICE u32 bf16_pair(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
DEVICE u32 f16_pair(float low, float high) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
DEVICE void f16_floats(u32 pair, float& low, float& high) {
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(low), "=f"(high) : "r"(pair));
}
// The sum of each half.
DEVICE u32 bf16_sum(u32 a, u32 b) {
  u32 sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(0x3f803f80u), "r"(b));  // a · 1 + b
  return sum;
}
DEVICE u32 f16_sum(u32 a, u32 b) {
  u32 sum;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}
// The larger of each half; what is no number wins.
DEVICE u32 bf16_max(u32 a, u32 b) {
  u32 larger;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}
DEVICE u32 f16_max(u32 a, u32 b) {
  u32 larger;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}
// All bits of each half where it is the same number; both zeros are.
DEVICE u32 bf16_equal(u32 a, u32 b) {
#if __CUDA_ARCH__ >= 900
  u32 equal;
  asm("set.eq.u32.bf16x2 %0, %1, %2;" : "=r"(equal) : "r"(a), "r"(b));
  return equal;
#else
  bool low = __uint_as_float(a << 16) == __uint_as_float(b << 16);
  bool high = __uint_as_float(a & 0xffff0000u) == __uint_as_float(b & 0xffff0000u);
  return (low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u);
#endif
}
DEVICE u32 f16_equal(u32 a, u32 b) {
  u32 equal;
  asm("set.eq.u32.f16x2 %0, %1, %2;" : "=r"(equal) : "r"(a), "r"(b));
  return equal;
}
#endif

struct bf16 {
  unsigned short bits;
  bf16() = default;
  DEVICE bf16(float v) : bits((unsigned short)bf16_pair(v, 0.f)) {}
  DEVICE operator float() const { return __uint_as_float((u32)bits << 16); }
  static DEVICE u32 pair(float low, float high) { return bf16_pair(low, high); }
  static DEVICE void floats(u32 pair, float& low, float& high) {
    low = __uint_as_float(pair << 16);
    high = __uint_as_float(pair & 0xffff0000u);
  }
  static DEVICE u32 sum(u32 a, u32 b) { return bf16_sum(a, b); }
  static DEVICE u32 larger(u32 a, u32 b) { return bf16_max(a, b); }
  static DEVICE u32 equal(u32 a, u32 b) { return bf16_equal(a, b); }
  static DEVICE u32 lowest() { return 0xff80ff80u; }  // −∞ twice
};

struct f16 {
  unsigned short bits;
  f16() = default;
  DEVICE f16(float v) : bits((unsigned short)f16_pair(v, 0.f)) {}
  DEVICE operator float() const {
    float low, high;
    f16_floats(bits, low, high);
    return low;
  }
  static DEVICE u32 pair(float low, float high) { return f16_pair(low, high); }
  static DEVICE void floats(u32 pair, float& low, float& high) { f16_floats(pair, low, high); }
  static DEVICE u32 sum(u32 a, u32 b) { return f16_sum(a, b); }
  static DEVICE u32 larger(u32 a, u32 b) { return f16_max(a, b); }
  static DEVICE u32 equal(u32 a, u32 b) { return f16_equal(a, b); }
  static DEVICE u32 lowest() { return 0xfc00fc00u; }
};

// V elements of a type, moved by one access.
template <class T, int V> struct alignas(V * sizeof(T)) PackOf {
  u32 word[V / 2];
  DEVICE void get(float (&v)[V]) const {
#pragma unroll
    for (int w = 0; w < V / 2; w++) T::floats(word[w], v[2 * w], v[2 * w + 1]);
  }
  DEVICE void put(const float (&v)[V]) {
#pragma unroll
    for (int w = 0; w < V / 2; w++) word[w] = T::pair(v[2 * w], v[2 * w + 1]);
  }
};
template <int V> struct alignas(V * 4) PackOf<float, V> {
  float lane[V];
  DEVICE void get(float (&v)[V]) const {
#pragma unroll
    for (int l = 0; l < V; l++) v[l] = lane[l];
  }
  DEVICE void put(const float (&v)[V]) {
#pragma unroll
    for (int l = 0; l < V; l++) lane[l] = v[l];
  }
};
template <class T> struct PackOf<T, 1> {
  T one;
  DEVICE void get(float (&v)[1]) const { v[0] = one; }
  DEVICE void put(const float (&v)[1]) { one = v[0]; }
};
template <> struct PackOf<float, 1> {
  float lane[1];
  DEVICE void get(float (&v)[1]) const { v[0] = lane[0]; }
  DEVICE void put(const float (&v)[1]) { lane[0] = v[0]; }
};

// The element type of a source's feature maps; statistics and parameters are float, sums double.
#if defined(ELEMENT_BF16)
typedef bf16 scalar;
#elif defined(ELEMENT_F16)
typedef f16 scalar;
#else
#define ELEMENT_F32
typedef float scalar;
#endif

// Elements in 16 bytes.
#define PACK (16 / (int)sizeof(scalar))

template <int V> using Pack = PackOf<scalar, V>;
template <int V> DEVICE Pack<V> load(const scalar* at) { return *(const Pack<V>*)at; }
template <int V> DEVICE void store(scalar* at, const Pack<V>& pack) { *(Pack<V>*)at = pack; }

