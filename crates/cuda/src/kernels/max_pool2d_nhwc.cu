// Max pooling of x [N, h, w, C] and its gradient, a thread a pack of channels of one pixel. The rules are max_pool2d.cu's: padding
// acts as −∞, NaN wins, the first maximum in scan order gets the gradient, which is gathered.

#define NO_PLACE 255

DEVICE bool same(float a, float b) { return a == b || (a != a && b != b); }

template <int V> DEVICE void read(const scalar* at, float (&v)[V]) { load<V>(at).get(v); }
template <int V> DEVICE void write(scalar* at, const float (&v)[V]) {
  Pack<V> pack;
  pack.put(v);
  store<V>(at, pack);
}

// The places of a pack's windows, a byte each, moved by one access.
struct alignas(PACK) Bytes { u32 word[PACK / 4]; };
template <int V> DEVICE void write_bytes(u8* at, const u32 (&v)[V]) {
  if (V == 1) {
    at[0] = (u8)v[0];
    return;
  }
  Bytes bytes = {};
#pragma unroll
  for (int l = 0; l < V; l++) bytes.word[l / 4] |= v[l] << (l % 4 * 8);
  *(Bytes*)at = bytes;
}
template <int V> DEVICE void read_bytes(const u8* at, u32 (&v)[V]) {
  if (V == 1) {
    v[0] = at[0];
    return;
  }
  Bytes bytes = *(const Bytes*)at;
#pragma unroll
  for (int l = 0; l < V; l++) v[l] = bytes.word[l / 4] >> (l % 4 * 8) & 255;
}

// The maximum of each lane's window, and the tap of the first pixel that has it. x points at the image and the channels.
template <int V, int K, int S>
DEVICE void window_max(const scalar* x, u64 xs, Window<K, S> g, u32 oy, u32 ox, float (&best)[V], u32 (&place)[V]) {
#pragma unroll
  for (int l = 0; l < V; l++) {
    best[l] = -__int_as_float(0x7f800000);
    place[l] = NO_PLACE;
  }
#pragma unroll
  for (u32 a = 0; a < g.kh(); a++) {
    u32 y = oy * g.sh() + a * g.dh() - g.ph;  // wraps when above the image, and then is not below h
#pragma unroll
    for (u32 b = 0; b < g.kw(); b++) {
      u32 column = ox * g.sw() + b * g.dw() - g.pw;
      if (y >= g.h || column >= g.w) continue;
      float v[V];
      read<V>(x + ((u64)y * g.w + column) * xs, v);
#pragma unroll
      for (int l = 0; l < V; l++) {
        if (v[l] > best[l] || place[l] == NO_PLACE || (v[l] != v[l] && best[l] == best[l])) place[l] = a * g.kw() + b;
        if (v[l] > best[l] || v[l] != v[l]) best[l] = v[l];
      }
    }
  }
}

template <int V, int K, int S, bool INDICES>
DEVICE void max_pool(const scalar* x, u64 xs, scalar* y, u64 ys, u8* indices, PIXELS, Window<K, S> g) {
  Spot at(PIXELS_PASSED, g.oh, g.ow);
  if (!at.active) return;
  float best[V];
  u32 place[V];
  window_max<V>(x + (u64)at.n * g.h * g.w * xs + at.pack * V, xs, g, at.y, at.x, best, place);
  write<V>(y + at.pixel * ys + at.pack * V, best);
  if (INDICES) write_bytes<V>(indices + (at.pixel * packs + at.pack) * V, place);
}

// A word of a pack: an f32, or a pair of halves, of two zeros the positive one the larger. What is no number wins. `equal` has all
// bits of what is the same number, `all` a number below 65536 for each.
#ifdef ELEMENT_F32
#define WORDS PACK
struct Word {
  static DEVICE u32 lowest() { return 0xff800000u; }  // −∞
  static DEVICE u32 larger(u32 a, u32 b) {
    float x = __uint_as_float(a), y = __uint_as_float(b);
    return y > x || y != y ? b : a;
  }
  static DEVICE u32 equal(u32 a, u32 b) { return __uint_as_float(a) == __uint_as_float(b) ? ~0u : 0u; }
  static DEVICE u32 all(u32 v) { return v; }
};
DEVICE Bytes bytes_of(const u32 (&place)[WORDS]) {
  return {{__byte_perm(__byte_perm(place[0], place[1], 0x0040), __byte_perm(place[2], place[3], 0x0040), 0x5410)}};
}
#else
#define WORDS (PACK / 2)
struct Word {
  static DEVICE u32 lowest() { return scalar::lowest(); }
  static DEVICE u32 larger(u32 a, u32 b) { return scalar::larger(a, b); }
  static DEVICE u32 equal(u32 a, u32 b) { return scalar::equal(a, b); }
  static DEVICE u32 all(u32 v) { return v * 0x10001u; }
};
DEVICE Bytes bytes_of(const u32 (&place)[WORDS]) {
  return {{__byte_perm(place[0], place[1], 0x6420), __byte_perm(place[2], place[3], 0x6420)}};
}
#endif
struct alignas(16) Words { u32 word[WORDS]; };

// The same for K × K windows at a stride of 2, a word at a time: all of a window is read at once, the maximum's place is where
// a tap equals it. A NaN, which equals nothing, sends the thread the long way.
template <int K, bool INDICES>
DEVICE void max_pool_words(const scalar* x, u64 xs, scalar* y, u64 ys, u8* indices, PIXELS, Window<K, 2> g) {
  const int V = PACK;
  Spot at(PIXELS_PASSED, g.oh, g.ow);
  if (!at.active) return;
  const scalar* image = x + (u64)at.n * g.h * g.w * xs + at.pack * V;
  Words tap[K * K], best;
  u32 inside = 0;
#pragma unroll
  for (int t = 0; t < K * K; t++) {
    u32 row = at.y * 2 + t / K - g.ph, column = at.x * 2 + t % K - g.pw;
#pragma unroll
    for (int w = 0; w < WORDS; w++) tap[t].word[w] = Word::lowest();
    if (row < g.h && column < g.w) {
      inside |= 1u << t;
      tap[t] = *(const Words*)(image + ((u64)row * g.w + column) * xs);
    }
  }
  u32 place[WORDS], numbers = ~0u;
#pragma unroll
  for (int w = 0; w < WORDS; w++) {
    best.word[w] = tap[0].word[w];
#pragma unroll
    for (int t = 1; t < K * K; t++) best.word[w] = Word::larger(best.word[w], tap[t].word[w]);
    numbers &= Word::equal(best.word[w], best.word[w]);
    place[w] = Word::all(NO_PLACE);
  }
  scalar* to = y + at.pixel * ys + at.pack * V;
  u8* places = indices + (at.pixel * packs + at.pack) * V;
  if (numbers != ~0u) {
    float value[V];
    u32 first[V];
    window_max<V>(image, xs, g, at.y, at.x, value, first);
    write<V>(to, value);
    if (INDICES) write_bytes<V>(places, first);
    return;
  }
  *(Words*)to = best;
  if (INDICES) {
    // The first comes last, over later ones.
#pragma unroll
    for (int t = K * K - 1; t >= 0; t--) {
      if (!(inside >> t & 1)) continue;
#pragma unroll
      for (int w = 0; w < WORDS; w++) {
        u32 equal = Word::equal(tap[t].word[w], best.word[w]);
        place[w] = (place[w] & ~equal) | (equal & Word::all((u32)t));
      }
    }
    *(Bytes*)places = bytes_of(place);
  }
}

#define FORWARD const scalar *x, u64 xs, scalar *y, u64 ys, PIXELS, WINDOW_PARAMS
#define MAX_POOL(V) max_pool<V, 0, 0, false>(x, xs, y, ys, nullptr, PIXELS_PASSED, WINDOW(0, 0))
#define MAX_POOL_WORDS(K) max_pool_words<K, false>(x, xs, y, ys, nullptr, PIXELS_PASSED, WINDOW(K, 2))
KERNEL max_pool2d_packed(FORWARD) { MAX_POOL(PACK); }
KERNEL max_pool2d_single(FORWARD) { MAX_POOL(1); }
KERNEL max_pool2d_k2s2_packed(FORWARD) { MAX_POOL_WORDS(2); }
WIDE_KERNEL max_pool2d_k3s2_packed(FORWARD) { MAX_POOL_WORDS(3); }

#define INDICES_FORWARD const scalar *x, u64 xs, scalar *y, u64 ys, u8 *indices, PIXELS, WINDOW_PARAMS
#define MAX_POOL_INDICES(V) max_pool<V, 0, 0, true>(x, xs, y, ys, indices, PIXELS_PASSED, WINDOW(0, 0))
#define MAX_POOL_INDICES_WORDS(K) max_pool_words<K, true>(x, xs, y, ys, indices, PIXELS_PASSED, WINDOW(K, 2))
KERNEL max_pool2d_indices_packed(INDICES_FORWARD) { MAX_POOL_INDICES(PACK); }
KERNEL max_pool2d_indices_single(INDICES_FORWARD) { MAX_POOL_INDICES(1); }
KERNEL max_pool2d_indices_k2s2_packed(INDICES_FORWARD) { MAX_POOL_INDICES_WORDS(2); }
WIDE_KERNEL max_pool2d_indices_k3s2_packed(INDICES_FORWARD) { MAX_POOL_INDICES_WORDS(3); }

// True when no tap before (a, b) of window (oy, ox) holds its maximum too. x points at the image and the channel.
template <int K, int S>
DEVICE bool is_first(const scalar* x, u64 xs, Window<K, S> g, u32 oy, u32 ox, u32 a, u32 b, float best) {
  for (u32 i = 0; i <= a; i++) {
    u32 y = oy * g.sh() + i * g.dh() - g.ph;
    if (y >= g.h) continue;
    for (u32 j = 0; j < (i == a ? b : g.kw()); j++) {
      u32 column = ox * g.sw() + j * g.dw() - g.pw;
      if (column < g.w && same(x[((u64)y * g.w + column) * xs], best)) return false;
    }
  }
  return true;
}

// each(oy, ox, a, b) for the windows over a pixel whose tap (a, b) it is, in the order of the windows.
template <int K, int S, class F> DEVICE void windows_over(Window<K, S> g, u32 row, u32 column, F each) {
  u32 ty = row + g.ph, tx = column + g.pw, x_first = first_window(tx, g.dw() * (g.kw() - 1) + 1, g.sw());
  u32 y_end = end_window(ty, g.sh(), g.oh), x_end = end_window(tx, g.sw(), g.ow);
  for (u32 oy = first_window(ty, g.dh() * (g.kh() - 1) + 1, g.sh()); oy < y_end; oy++) {
    u32 a = ty - oy * g.sh();
    if (a % g.dh() != 0) continue;
    for (u32 ox = x_first; ox < x_end; ox++) {
      u32 b = tx - ox * g.sw();
      if (b % g.dw() == 0) each(oy, ox, a / g.dh(), b / g.dw());
    }
  }
}

template <int V, int K, int S>
DEVICE void max_pool_grad(const scalar* x, u64 xs, const scalar* y, u64 ys, const scalar* dy, u64 dys, scalar* dx, u64 dxs,
                          PIXELS, Window<K, S> g) {
  Spot at(PIXELS_PASSED, g.h, g.w);
  if (!at.active) return;
  u64 above = (u64)at.n * g.h * g.w, below = (u64)at.n * g.oh * g.ow;
  u32 c = at.pack * V;
  float v[V], sum[V];
  read<V>(x + at.pixel * xs + c, v);
#pragma unroll
  for (int l = 0; l < V; l++) sum[l] = 0.f;
  windows_over(g, at.y, at.x, [&](u32 oy, u32 ox, u32 a, u32 b) {
    float best[V], d[V];
    u64 window = below + oy * g.ow + ox;
    read<V>(y + window * ys + c, best);
    read<V>(dy + window * dys + c, d);
#pragma unroll
    for (int l = 0; l < V; l++) {
      if (same(v[l], best[l]) && is_first(x + above * xs + c + l, xs, g, oy, ox, a, b, v[l])) sum[l] += d[l];
    }
  });
  write<V>(dx + at.pixel * dxs + c, sum);
}

#define BACKWARD \
  const scalar *x, u64 xs, const scalar *y, u64 ys, const scalar *dy, u64 dys, scalar *dx, u64 dxs, PIXELS, WINDOW_PARAMS
#define MAX_POOL_GRAD(V, K, S) max_pool_grad<V>(x, xs, y, ys, dy, dys, dx, dxs, PIXELS_PASSED, WINDOW(K, S))
WIDE_KERNEL max_pool2d_grad_packed(BACKWARD) { MAX_POOL_GRAD(PACK, 0, 0); }
KERNEL max_pool2d_grad_single(BACKWARD) { MAX_POOL_GRAD(1, 0, 0); }
KERNEL max_pool2d_grad_k2s2_packed(BACKWARD) { MAX_POOL_GRAD(PACK, 2, 2); }
KERNEL max_pool2d_grad_k3s2_packed(BACKWARD) { MAX_POOL_GRAD(PACK, 3, 2); }

template <int V, int K, int S>
DEVICE void max_pool_indices_grad(const u8* indices, const scalar* dy, u64 dys, scalar* dx, u64 dxs, PIXELS, Window<K, S> g) {
  Spot at(PIXELS_PASSED, g.h, g.w);
  if (!at.active) return;
  u64 below = (u64)at.n * g.oh * g.ow;
  u32 c = at.pack * V;
  float sum[V];
#pragma unroll
  for (int l = 0; l < V; l++) sum[l] = 0.f;
  windows_over(g, at.y, at.x, [&](u32 oy, u32 ox, u32 a, u32 b) {
    float d[V];
    u32 place[V], tap = a * g.kw() + b;
    u64 window = below + oy * g.ow + ox;
    read_bytes<V>(indices + (window * packs + at.pack) * V, place);
    read<V>(dy + window * dys + c, d);
#pragma unroll
    for (int l = 0; l < V; l++)
      if (place[l] == tap) sum[l] += d[l];
  });
  write<V>(dx + at.pixel * dxs + c, sum);
}

// The same for K × K windows at a stride of 2, K 2 or 3: a thread has the 2 × 2 pixels that begin at an even place of the padded
// image. One window lies over them, or of 3 × 3 two by two; each is read once, all at the same time.
//
//   padded rows   0 1 2 3 4 …     cell q has rows 2q and 2q + 1
//   window q − 1    └─a=2┘        row 2q is a = 2 of window q − 1 and a = 0 of window q
//   window q          └─a=0,1─    row 2q + 1 is a = 1 of window q alone
template <int K>
DEVICE void max_pool_cell_grad(const u8* indices, const scalar* dy, u64 dys, scalar* dx, u64 dxs, PIXELS, Window<K, 2> g) {
  const int V = PACK, W = K - 1;  // W windows along each axis.
  Spot at(PIXELS_PASSED, (g.h + g.ph + 1) / 2, (g.w + g.pw + 1) / 2);
  if (!at.active) return;
  Pack<V> d[W][W];
  Bytes place[W][W];
#pragma unroll
  for (int i = 0; i < W; i++) {
#pragma unroll
    for (int j = 0; j < W; j++) {
      u32 oy = at.y + i - (W - 1), ox = at.x + j - (W - 1);  // wrap before the first window, and then are not below oh
#pragma unroll
      for (int w = 0; w < V / 4; w++) place[i][j].word[w] = ~0u;
      if (oy < g.oh && ox < g.ow) {
        u64 window = ((u64)at.n * g.oh + oy) * g.ow + ox;
        place[i][j] = *(const Bytes*)(indices + (window * packs + at.pack) * V);
        d[i][j] = load<V>(dy + window * dys + at.pack * V);
      }
    }
  }
#pragma unroll
  for (int pixel = 0; pixel < 4; pixel++) {
    u32 y = at.y * 2 + pixel / 2 - g.ph, x = at.x * 2 + pixel % 2 - g.pw;
    float sum[V];
#pragma unroll
    for (int l = 0; l < V; l++) sum[l] = 0.f;
#pragma unroll
    for (int i = 0; i < W; i++) {
#pragma unroll
      for (int j = 0; j < W; j++) {
        const int a = pixel / 2 + 2 * (W - 1 - i), b = pixel % 2 + 2 * (W - 1 - j);
        if (a >= K || b >= K) continue;
        float given[V];
        d[i][j].get(given);
#pragma unroll
        for (int l = 0; l < V; l++)
          if ((place[i][j].word[l / 4] >> (l % 4 * 8) & 255) == a * K + b) sum[l] += given[l];
      }
    }
    if (y < g.h && x < g.w) write<V>(dx + (((u64)at.n * g.h + y) * g.w + x) * dxs + at.pack * V, sum);
  }
}

#define INDICES_BACKWARD const u8 *indices, const scalar *dy, u64 dys, scalar *dx, u64 dxs, PIXELS, WINDOW_PARAMS
#define MAX_POOL_INDICES_GRAD(V) max_pool_indices_grad<V>(indices, dy, dys, dx, dxs, PIXELS_PASSED, WINDOW(0, 0))
#define MAX_POOL_CELL_GRAD(K) max_pool_cell_grad<K>(indices, dy, dys, dx, dxs, PIXELS_PASSED, WINDOW(K, 2))
KERNEL max_pool2d_indices_grad_packed(INDICES_BACKWARD) { MAX_POOL_INDICES_GRAD(PACK); }
KERNEL max_pool2d_indices_grad_single(INDICES_BACKWARD) { MAX_POOL_INDICES_GRAD(1); }
KERNEL max_pool2d_indices_grad_k2s2_packed(INDICES_BACKWARD) { MAX_POOL_CELL_GRAD(2); }
WIDE_KERNEL max_pool2d_indices_grad_k3s2_packed(INDICES_BACKWARD) { MAX_POOL_CELL_GRAD(3); }

// The places of a pack's 2 × 2 windows, two bits each.
template <int V> struct Places {
  const u8* indices;
  u32 pack, packs;
  DEVICE u32 operator()(u64 row) const {
    const u8* at = indices + (row * packs + pack) * V;
    if (V == 1) return at[0];
    Bytes bytes = *(const Bytes*)at;
    u32 all = 0;
#pragma unroll
    for (int w = 0; w < V / 4; w++) {
      u32 four = bytes.word[w];
      all |= ((four & 3) | (four >> 6 & 12) | (four >> 12 & 48) | (four >> 18 & 192)) << 8 * w;
    }
    return all;
  }
};

// What of dy goes through where y is above 0, written to each 2 × 2 window's place in dz with zeros at the other three, and its
// sums. Windows lie side by side over all of dz, so window (q, x) of all rows of windows has pixels (2q, 2x) to (2q + 1, 2x + 1).
#define RELU_BIAS                                                                                                             \
  const scalar *y, u64 ys, const scalar *dy, u64 dys, const u8 *indices, scalar *dz, u64 dzs, COLUMNS, u32 columns, u64 by_columns, \
      double *partial, float *db
#define RELU_BIAS_PASSED y, ys, dy, dys, indices, dz, dzs, COLUMNS_PASSED, columns, by_columns, partial, db
template <int V> DEVICE void relu_bias_grad(RELU_BIAS) {
  Dealt at(COLUMNS_PASSED, TALL_PAIR);
  const scalar* const in[2] = {y, dy};
  const u64 strides[2] = {ys, dys};
  Turns<V, 2, Places<V>, FEW> turns(in, strides, at, Places<V>{indices, at.pack, packs});
  float sum[1][V];
#pragma unroll
  for (int l = 0; l < V; l++) sum[0][l] = 0.f;
  turns.each([&](u64 row, const float (&v)[2][V], u32 places) {
    float d[V];
#pragma unroll
    for (int l = 0; l < V; l++) {
      d[l] = v[0][l] <= 0.f ? 0.f : v[1][l];
      sum[0][l] += d[l];
    }
    u32 q = divide((u32)row, by_columns);
    u64 pixel = 2 * (row + (u64)q * columns);
#pragma unroll
    for (int tap = 0; tap < 4; tap++) {
      float here[V];
#pragma unroll
      for (int l = 0; l < V; l++) here[l] = (places >> 2 * l & 3) == tap ? d[l] : 0.f;
      store_columns<V>(dz, dzs, pixel + tap / 2 * 2 * columns + tap % 2, at, here);
    }
  });
  sum_columns<TALL_PAIR, V>(sum, at, partial, [&](u32 c, const double (&sum)[1]) { db[c] = (float)sum[0]; });
}
TALL_PAIR_KERNEL max_pool2d_relu_bias_grad_packed(RELU_BIAS) { relu_bias_grad<PACK>(RELU_BIAS_PASSED); }
TALL_PAIR_KERNEL max_pool2d_relu_bias_grad_single(RELU_BIAS) { relu_bias_grad<1>(RELU_BIAS_PASSED); }
