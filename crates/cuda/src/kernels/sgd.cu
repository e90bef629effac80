// Stochastic gradient descent in PyTorch's form for many parameters in one launch. Outputs lie over their inputs; lr and
// iteration are read here. A guard (null for none) that is not finite leaves everything as it was. dW is of the source's
// element type, weights and momentum are f32.

struct Member {
  const float* w;
  const scalar* dw;
  const float* m;  // null without momentum
  float* new_w;
  float* new_m;
  u64 len;
  Turning turning;  // of dW
  u64 first;
  DEVICE bool in_packs() const {
    u64 bits = (u64)w | (u64)m | (u64)new_w | (u64)new_m;
    return bits % 16 == 0 && (u64)dw % sizeof(PackOf<scalar, 4>) == 0;
  }
};

struct Step {
  float rate, decay, momentum, undamped;
  bool first, nesterov;
  DEVICE void plain(float& w, float dw) const { w = fmaf(-rate, fmaf(decay, w, dw), w); }
  DEVICE void with_momentum(float& w, float dw, float& m) const {
    float g = fmaf(decay, w, dw);
    m = first ? g : fmaf(momentum, m, undamped * g);
    w = fmaf(-rate, nesterov ? fmaf(momentum, m, g) : m, w);
  }
};

// A tile's gradients; in packs all are read before the first is kept.
template <int V> DEVICE void fill(const Member& of, u32 first, u32 count, scalar* tile) {
  const int N = V == 1 ? 2 : STRETCH / (V * THREADS);
#pragma unroll 1
  for (u32 begin = 0; begin < STRETCH / V; begin += N * THREADS) {
    Pack<V> packs[N];
    of.turning.each_pack<V, N>(begin, first, count, [&](int u, u32, u64 from) { packs[u] = load<V>(of.dw + from); });
    of.turning.each_pack<V, N>(begin, first, count, [&](int u, u32 to, u64) { store<V>(tile + to, packs[u]); });
  }
}

// Four elements.
struct Four {
  float w[4], dw[4], m[4];
  DEVICE void read(const Member& of, u64 e) {
    (*(const PackOf<float, 4>*)(of.w + e)).get(w);
    if (of.m) (*(const PackOf<float, 4>*)(of.m + e)).get(m);
    if (!of.turning.hw) (*(const PackOf<scalar, 4>*)(of.dw + e)).get(dw);
  }
  DEVICE void write(const Member& of, const Step& step, u64 e) {
#pragma unroll
    for (int l = 0; l < 4; l++) {
      if (of.m) step.with_momentum(w[l], dw[l], m[l]);
      else step.plain(w[l], dw[l]);
    }
    PackOf<float, 4> to;
    to.put(w);
    *(PackOf<float, 4>*)(of.new_w + e) = to;
    if (!of.m) return;
    to.put(m);
    *(PackOf<float, 4>*)(of.new_m + e) = to;
  }
};

DEVICE void one(const Member& of, const Step& step, u64 e) {
  float w = of.w[e], dw = of.dw[of.turning.place(e)], m = of.m ? of.m[e] : 0.f;
  if (of.m) step.with_momentum(w, dw, m);
  else step.plain(w, dw);
  of.new_w[e] = w;
  if (of.m) of.new_m[e] = m;
}

// Packs that a thread has in flight.
#define FOURS (STRETCH / (4 * THREADS))
KERNEL sgd(const __grid_constant__ Table<Member> table, u32 members, const float* lr, const u64* iteration, float decay,
           float momentum, float undamped, u32 nesterov, const float* guard) {
  Share share(table, members);
  const Member& of = table.of[share.member];
  const Turning& turning = of.turning;
  u64 start = (u64)share.block * turning.each(), end = start + turning.each() < of.len ? start + turning.each() : of.len;
  bool tiled = turning.hw != 0, packs = of.in_packs() && (!tiled || turning.across);
  Four four[FOURS];
#pragma unroll
  for (int u = 0; u < FOURS; u++) {
    u64 e = start + (u * THREADS + threadIdx.x) * 4;
    if (packs && e + 4 <= end) four[u].read(of, e);
  }
  // What all threads read is read while that is under way.
  Step step = {*lr, decay, momentum, undamped, *iteration == 0, nesterov != 0};
  if (packs && tiled) {
    __shared__ __align__(16) scalar tile[TILE];
    u32 first = share.block * turning.across, count = divide((u32)(end - start), turning.by_hw);
    if (turning.packs < turning.across) fill<PACK>(of, first, count, tile);
    else fill<1>(of, first, count, tile);
    __syncthreads();
#pragma unroll
    for (int u = 0; u < FOURS; u++) {
      u32 e = (u * THREADS + threadIdx.x) * 4;
      if (start + e + 4 <= end) turning.each_of_four(e, [&](int l, u32 at) { four[u].dw[l] = tile[at]; });
    }
  }
  if (!may_update(guard)) return;
  if (!packs) {
    for (u64 e = start + threadIdx.x; e < end; e += THREADS) one(of, step, e);
    return;
  }
#pragma unroll
  for (int u = 0; u < FOURS; u++) {
    u64 e = start + (u * THREADS + threadIdx.x) * 4;
    if (e + 4 <= end) four[u].write(of, step, e);
    else for (; e < end; e++) one(of, step, e);
  }
}
