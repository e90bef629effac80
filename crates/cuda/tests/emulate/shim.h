// Enough of CUDA to run the kernels on the CPU: a block at a time, its threads as fibers, each until it meets a barrier.
// __shared__ becomes static because blocks run one after the other. Speed does not matter here.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <utility>
#include <vector>
using std::max;
using std::min;

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define DYNAMIC_SHARED(name) float* name = (float*)dynamic_shared

struct Index { unsigned x, y, z; };
static Index blockIdx, threadIdx, blockDim, gridDim;
static char dynamic_shared[48 << 10];

enum State { READY, AT_WARP, AT_BLOCK, DONE };
struct Fiber { ucontext_t context; State state; };
static std::vector<Fiber> fibers;
static std::vector<char> stacks;
static ucontext_t scheduler;
static unsigned current;
static const size_t STACK = 64 << 10;

static void wait_in(State state) {
  fibers[current].state = state;
  swapcontext(&fibers[current].context, &scheduler);
}
static void __syncthreads() { wait_in(AT_BLOCK); }

// Blocks run one after the other, so each sees what those before it wrote and counted.
static unsigned count_in(unsigned* at, unsigned last) {
  unsigned before = *at;
  *at = before >= last ? 0 : before + 1;
  return before;
}

static double exchange[1024];
template <class T> static T __shfl_xor_sync(unsigned, T value, int lanes) {
  exchange[current] = value;
  wait_in(AT_WARP);
  T other = (T)exchange[current ^ lanes];
  wait_in(AT_WARP);
  return other;
}
static unsigned __ballot_sync(unsigned, bool value) {
  exchange[current] = value;
  wait_in(AT_WARP);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; lane++) bits |= (unsigned)(exchange[current / 32 * 32 + lane] != 0) << lane;
  wait_in(AT_WARP);
  return bits;
}
static int __popc(unsigned bits) { return __builtin_popcount(bits); }
static unsigned __umulhi(unsigned a, unsigned b) { return ((unsigned long long)a * b) >> 32; }
static float __int_as_float(int bits) { float f; memcpy(&f, &bits, 4); return f; }
static float __uint_as_float(unsigned bits) { return __int_as_float((int)bits); }
static int __float_as_int(float f) { int bits; memcpy(&bits, &f, 4); return bits; }
#define rsqrtf(x) (1.f / sqrtf(x))

// Half precision, rounded to nearest, ties to even; what is no number comes out as the GPU has it.
static unsigned bf16_bits(float v) {
  unsigned bits = (unsigned)__float_as_int(v);
  return v != v ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static unsigned f16_bits(float v) {
  if (v != v) return 0x7fff;
  unsigned sign = (unsigned)__float_as_int(v) >> 31 << 15;
  float size = fabsf(v);
  if (size >= 65520.f) return sign | 0x7c00;
  int exponent;
  frexpf(size, &exponent);
  int unit = size == 0.f || exponent - 11 < -24 ? -24 : exponent - 11;
  unsigned units = (unsigned)nearbyintf(ldexpf(size, -unit));  // of the last place; a carry runs into the exponent
  return sign | ((unsigned)(unit + 24) << 10) + units;
}
static float f16_float(unsigned bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float size = exponent == 31 ? (fraction ? NAN : INFINITY) : ldexpf(exponent ? 1024 + fraction : fraction, (exponent ? exponent : 1) - 25);
  return bits >> 15 & 1 ? -size : size;
}
static unsigned bf16_pair(float low, float high) { return bf16_bits(low) | bf16_bits(high) << 16; }
static unsigned f16_pair(float low, float high) { return f16_bits(low) | f16_bits(high) << 16; }
static void f16_floats(unsigned pair, float& low, float& high) { low = f16_float(pair & 0xffff), high = f16_float(pair >> 16); }

template <class F> static unsigned halves(unsigned a, unsigned b, F f) { return f(a & 0xffff, b & 0xffff) | f(a >> 16, b >> 16) << 16; }
static unsigned larger_bits(unsigned a, unsigned b, float x, float y) {
  if (x != x || y != y) return 0x7fff;
  return x > y || (x == y && b >> 15) ? a : b;
}
static float bf16_float(unsigned bits) { return __uint_as_float(bits << 16); }
static unsigned bf16_sum(unsigned a, unsigned b) {
  return bf16_pair(bf16_float(a & 0xffff) + bf16_float(b & 0xffff), bf16_float(a >> 16) + bf16_float(b >> 16));
}
static unsigned f16_sum(unsigned a, unsigned b) {
  return f16_pair(f16_float(a & 0xffff) + f16_float(b & 0xffff), f16_float(a >> 16) + f16_float(b >> 16));
}
static unsigned bf16_max(unsigned a, unsigned b) {
  return halves(a, b, [](unsigned a, unsigned b) { return larger_bits(a, b, bf16_float(a), bf16_float(b)); });
}
static unsigned f16_max(unsigned a, unsigned b) {
  return halves(a, b, [](unsigned a, unsigned b) { return larger_bits(a, b, f16_float(a), f16_float(b)); });
}
static unsigned bf16_equal(unsigned a, unsigned b) {
  return halves(a, b, [](unsigned a, unsigned b) { return bf16_float(a) == bf16_float(b) ? 0xffffu : 0u; });
}
static unsigned f16_equal(unsigned a, unsigned b) {
  return halves(a, b, [](unsigned a, unsigned b) { return f16_float(a) == f16_float(b) ? 0xffffu : 0u; });
}
static unsigned __byte_perm(unsigned a, unsigned b, unsigned select) {
  unsigned long long both = a | (unsigned long long)b << 32;
  unsigned out = 0;
  for (int i = 0; i < 4; i++) out |= (unsigned)(both >> 8 * (select >> 4 * i & 7) & 255) << 8 * i;
  return out;
}

// Lets the threads of [first, first + n) that wait in `state` go on, if all that are left wait there.
static bool release(unsigned first, unsigned n, State state) {
  bool any = false;
  for (unsigned t = first; t < first + n; t++) {
    if (fibers[t].state == DONE) continue;
    if (fibers[t].state != state) return false;
    any = true;
  }
  for (unsigned t = first; t < first + n; t++) if (fibers[t].state == state) fibers[t].state = READY;
  return any;
}

typedef void (*Thunk)(const unsigned long long*);
static Thunk thunk;
static const unsigned long long* slots;
static void enter() {
  thunk(slots);
  fibers[current].state = DONE;
}

static void run_block(unsigned threads) {
  for (unsigned t = 0; t < threads; t++) {
    Fiber& fiber = fibers[t];
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = &stacks[t * STACK];
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = &scheduler;
    fiber.state = READY;
    makecontext(&fiber.context, enter, 0);
  }
  for (;;) {
    bool ran = false, left = false;
    for (unsigned t = 0; t < threads; t++) {
      left |= fibers[t].state != DONE;
      if (fibers[t].state != READY) continue;
      ran = true;
      current = t;
      threadIdx = {t, 0, 0};
      swapcontext(&scheduler, &fibers[t].context);
    }
    if (!left) return;
    for (unsigned w = 0; w < threads; w += 32) ran |= release(w, min(32u, threads - w), AT_WARP);
    if (!ran && !release(0, threads, AT_BLOCK)) {
      fprintf(stderr, "threads of one block wait at different barriers\n");
      abort();
    }
  }
}

template <class T> static T argument(const unsigned long long* slot) {
  T value;
  memcpy(&value, slot, sizeof(T));
  return value;
}
// Slots of a parameter: a structure takes as many as it has words.
template <class T> static constexpr unsigned words() { return (sizeof(T) + 7) / 8; }
template <class... A, size_t... I>
static void call(void (*kernel)(A...), const unsigned long long* s, std::index_sequence<I...>) {
  unsigned sizes[] = {words<A>()..., 0}, at[sizeof...(A) + 1] = {0};
  for (size_t i = 0; i < sizeof...(A); i++) at[i + 1] = at[i] + sizes[i];
  kernel(argument<A>(s + at[I])...);
}
template <class... A> static void call(void (*kernel)(A...), const unsigned long long* s) {
  call(kernel, s, std::index_sequence_for<A...>());
}
template <class... A> static constexpr unsigned arity(void (*)(A...)) { return (0 + ... + words<A>()); }

static int run_grid(Thunk function, unsigned expected, unsigned blocks, unsigned threads, const unsigned long long* args,
                    unsigned given) {
  if (expected != given) return 2;
  thunk = function;
  slots = args;
  fibers.resize(threads);
  stacks.resize(threads * STACK);
  gridDim = {blocks, 1, 1};
  blockDim = {threads, 1, 1};
  for (unsigned b = 0; b < blocks; b++) {
    blockIdx = {b, 0, 0};
    memset(dynamic_shared, 0xff, sizeof dynamic_shared);
    run_block(threads);
  }
  return 0;
}
