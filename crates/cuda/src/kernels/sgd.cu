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
  u32 hw, channels;  // of W [O, channels, hw], when dW lies as [O, hw, channels]; else hw is 0
  u64 first;
  // Where the gradient of weight e lies.
  DEVICE u64 place(u64 e) const {
    if (!hw) return e;
    u32 channel = (u32)e / hw, p = (u32)e - channel * hw, o = channel / channels;
    return ((u64)o * hw + p) * channels + channel - o * channels;
  }
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

// A stretch's gradients when dW lies as [O, hw, channels]: read along that order, kept by pixel, so that neither side of the
// turn leaves lines half used. Channels of all filters are numbered through, o · channels + c, as W has them.
#define MOST_PIXELS 256
struct Turned {
  const scalar* tile;
  u32 first, count, hw;  // channels of the tile, and pixels
  DEVICE Turned(const Member& of, u64 start, u64 end, scalar* to) : tile(to), first((u32)start / of.hw), hw(of.hw) {
    count = (u32)(end - 1) / hw - first + 1;
    for (u32 i = threadIdx.x; i < count * hw; i += THREADS) {
      u32 p = i / count, channel = first + i - p * count, o = channel / of.channels;
      to[i] = of.dw[((u64)o * hw + p) * of.channels + channel - o * of.channels];
    }
    __syncthreads();
  }
  DEVICE void get(u64 e, float (&dw)[4]) const {
    u32 channel = (u32)e / hw, p = (u32)e - channel * hw, k = channel - first;
#pragma unroll
    for (int l = 0; l < 4; l++) {
      dw[l] = tile[p * count + k];
      if (++p == hw) {
        p = 0;
        k++;
      }
    }
  }
};

// Four elements.
struct Four {
  float w[4], dw[4], m[4];
  DEVICE void read(const Member& of, u64 e) {
    (*(const PackOf<float, 4>*)(of.w + e)).get(w);
    if (of.m) (*(const PackOf<float, 4>*)(of.m + e)).get(m);
    if (!of.hw) (*(const PackOf<scalar, 4>*)(of.dw + e)).get(dw);
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
  float w = of.w[e], dw = of.dw[of.place(e)], m = of.m ? of.m[e] : 0.f;
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
  u64 end = share.start + STRETCH < of.len ? share.start + STRETCH : of.len;
  bool packs = of.in_packs() && of.hw <= MOST_PIXELS;
  Four four[FOURS];
#pragma unroll
  for (int u = 0; u < FOURS; u++) {
    u64 e = share.start + (u * THREADS + threadIdx.x) * 4;
    if (packs && e + 4 <= end) four[u].read(of, e);
  }
  if (packs && of.hw) {
    __shared__ scalar tile[STRETCH + 2 * MOST_PIXELS];
    Turned turned(of, share.start, end, tile);
#pragma unroll
    for (int u = 0; u < FOURS; u++) {
      u64 e = share.start + (u * THREADS + threadIdx.x) * 4;
      if (e + 4 <= end) turned.get(e, four[u].dw);
    }
  }
  // What all threads read is read while that is under way.
  Step step = {*lr, decay, momentum, undamped, *iteration == 0, nesterov != 0};
  if (!may_update(guard)) return;
  if (!packs) {
    for (u64 e = share.start + threadIdx.x; e < end; e += THREADS) one(of, step, e);
    return;
  }
#pragma unroll
  for (int u = 0; u < FOURS; u++) {
    u64 e = share.start + (u * THREADS + threadIdx.x) * 4;
    if (e + 4 <= end) four[u].write(of, step, e);
    else for (; e < end; e++) one(of, step, e);
  }
}
