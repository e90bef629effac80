// Batch norm of x [N, h, w, C], ReLU and max pooling in one pass, and their gradient in two, so that the map between them is never
// made, nor its gradient. Windows are K × K, K 2 or 3, at a stride of 2. What is compared and what is added up is rounded as
// batch_norm_nhwc.cu and max_pool2d_nhwc.cu would store it; their rules hold: NaN wins, the first maximum in scan order counts.
//
// Instructions take about as long as memory does here. So rounded numbers stay two halves a word where they are compared, chosen
// or added in pairs, and what a thread needs next is on its way while it works.

// A number below 2^16 twice.
#define BOTH(v) ((u32)(v) * 0x10001u)

// A pack's numbers, two a word. Of a single one the upper half is whatever it is.
template <int V> struct Halves {
  enum { WORDS = V == 1 ? 1 : V / 2 };
  u32 word[WORDS];
  DEVICE void get(float (&v)[V]) const {
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
      float low, high;
      scalar::floats(word[w], low, high);
      v[w * 2] = low;
      if (V > 1) v[w * 2 + (V > 1)] = high;
    }
  }
};
DEVICE Halves<1> halves(const Pack<1>& pack) { return {{pack.one.bits}}; }
DEVICE Halves<PACK> halves(const Pack<PACK>& pack) { return {{pack.word[0], pack.word[1], pack.word[2], pack.word[3]}}; }
DEVICE void store_halves(scalar* at, const Halves<1>& halves) { at->bits = (unsigned short)halves.word[0]; }
DEVICE void store_halves(scalar* at, const Halves<PACK>& halves) {
  store<PACK>(at, Pack<PACK>{{halves.word[0], halves.word[1], halves.word[2], halves.word[3]}});
}

// Sizes of the image and of the pooled map, the padding. Rows of a walk are columns of `down` windows or cells, or of what is left
// below the others: `pieces` in all of the map's height. Divisors by what a walk has in an image and in a row.
#define SIZES u32 h, u32 w, u32 oh, u32 ow, u32 ph, u32 pw, u32 down, u32 pieces, u64 by_plane, u64 by_row
#define SIZES_PASSED h, w, oh, ow, ph, pw, down, pieces, by_plane, by_row
struct Sizes { u32 h, w, oh, ow, ph, pw, down, pieces; u64 by_plane, by_row; };

// ---- forward --------------------------------------------------------------------------------------------------------
//
// A thread walks down a column of windows, by two rows of the image a window. Of 3 × 3 the third is the one that the window before
// ended with, of which its maximum and place are kept.
//
//   image rows    0 1 2 3 4 …     Taps of two rows are on their way: a row's registers are loaded again, two rows further down,
//   window 0      └───┘           as soon as its numbers have been compared.
//   window 1          └───┘

// Of each channel the maximum of a row's taps, or of a window's, and the first tap that has it.
template <int V> struct Best { Halves<V> value, place; };

// Where all bits of a half of `where` are set that of b, else of a.
DEVICE u32 chosen(u32 where, u32 a, u32 b) { return (a & ~where) | (where & b); }

template <int V> DEVICE Halves<V> normalised(const Pack<V>& x, const float (&ab)[2][V]) {
  float v[V];
  x.get(v);
#pragma unroll
  for (int l = 0; l < V; l++) v[l] = relu_of(fmaf(v[l], ab[0][l], ab[1][l]));
  Pack<V> y;
  y.put(v);
  return halves(y);
}

// Of a row's taps, which are numbered `place` and further. Beside the image a tap is the one at its edge again, number and all; of
// a row that is not of the image none is a window's maximum.
template <int V, int K>
DEVICE Best<V> best_of_row(const Pack<V> (&tap)[K], bool inside, const float (&ab)[2][V], const u32 (&place)[K], u32 further) {
  Halves<V> y[K];
#pragma unroll
  for (int c = 0; c < K; c++) y[c] = normalised<V>(tap[c], ab);
  Best<V> best;
#pragma unroll
  for (int w = 0; w < Halves<V>::WORDS; w++) {
    u32 value = y[0].word[w], first = place[K - 1] + BOTH(further);
#pragma unroll
    for (int c = 1; c < K; c++) value = scalar::larger(value, y[c].word[w]);
    // The first comes last, over later ones.
#pragma unroll
    for (int c = K - 2; c >= 0; c--) first = chosen(scalar::equal(y[c].word[w], value), first, place[c] + BOTH(further));
    best.value.word[w] = inside ? value : scalar::lowest();
    best.place.word[w] = first;
  }
  return best;
}

// Of a window's rows, the last one's taps numbered as the first one's; and whether one of the maxima is no number.
template <int V, int K> DEVICE Best<V> best_of_rows(const Best<V> (&row)[K], bool& none) {
  Best<V> best;
  u32 all = 0;
#pragma unroll
  for (int w = 0; w < Halves<V>::WORDS; w++) {
    u32 value = row[0].value.word[w], first = row[K - 1].place.word[w] + BOTH((K - 1) * K);
#pragma unroll
    for (int r = 1; r < K; r++) value = scalar::larger(value, row[r].value.word[w]);
#pragma unroll
    for (int r = K - 2; r >= 0; r--) first = chosen(scalar::equal(row[r].value.word[w], value), first, row[r].place.word[w]);
    best.value.word[w] = value;
    best.place.word[w] = first;
    all = scalar::larger(all, value);
  }
  none = scalar::equal(all, all) != ~0u;
  return best;
}

// A column of windows' taps, row by row; those beside the image are moved to its edge.
template <int V, int K> struct Taps {
  const scalar* at[K];  // In the row that is read next,
  u32 next, end;        // this one; and behind the last.
  u64 line;
  u32 place[K];  // In the first row of a window.

  DEVICE Taps(const scalar* x, u64 xs, u32 pack, const Sizes& of, u32 n, u32 row, u32 end, u32 ox)
      : next(row), end(end), line(of.w * xs) {
    i32 left = (i32)(ox * 2 - of.pw);
    u64 first = ((u64)n * of.h + (i32)row) * of.w;
#pragma unroll
    for (int c = 0; c < K; c++) {
      i32 j = min(max(left + c, 0), (i32)of.w - 1);
      at[c] = x + (first + j) * xs + (u64)pack * V;
      place[c] = BOTH(j - left);
    }
  }
  DEVICE void read(Pack<V> (&tap)[K]) {
#pragma unroll
    for (int c = 0; c < K; c++) {
      if (next < end) tap[c] = load<V>(at[c]);  // Above the image it wraps.
      at[c] += line;
    }
    next++;
  }
  // The first tap that is no number: it equals nothing, so the window, which begins `up` rows above the next, is read once more.
  DEVICE void place_what_is_none(u32 up, const float (&ab)[2][V], Halves<V>& first) const {
#pragma unroll 1
    for (u32 r = K; r-- > 0;) {
      if (next - up + r >= end) continue;
#pragma unroll
      for (int c = K - 1; c >= 0; c--) {
        Halves<V> y = normalised<V>(load<V>(at[c] - (up - r) * line), ab);
#pragma unroll
        for (int w = 0; w < Halves<V>::WORDS; w++)
          first.word[w] = chosen(scalar::equal(y.word[w], y.word[w]), place[c] + BOTH(r * K), first.word[w]);
      }
    }
  }
};

DEVICE void store_places(u8* at, const Halves<1>& place) { at[0] = (u8)place.word[0]; }
DEVICE void store_places(u8* at, const Halves<PACK>& place) {
  u64 low = __byte_perm(place.word[0], place.word[1], 0x6420), high = __byte_perm(place.word[2], place.word[3], 0x6420);
  *(u64*)at = high << 32 | low;
}

#define FORWARD const scalar *x, u64 xs, COEFFICIENTS, scalar *y, u64 ys, u8 *indices, COLUMNS, float eps, SIZES
#define FORWARD_PASSED x, xs, mean, variance, gamma, beta, y, ys, indices, COLUMNS_PASSED, eps, SIZES_PASSED
template <int V, int K> DEVICE void norm_pool(FORWARD) {
  Piece at(COLUMNS_PASSED, FORWARD_FROM_END);
  float ab[2][V];
  lines<V>(mean, variance, gamma, beta, eps, at, ab);
  if (at.turns == 0) return;
  Pixel begin = pixel_of((u32)at.row, pieces * ow, by_plane, ow, by_row);
  u32 oy = begin.y * down, end = min(oy + down, oh), top = oy * 2 - ph, bottom = min(h, (end - 1) * 2 - ph + K);
  u64 window = ((u64)begin.plane * oh + oy) * ow + begin.x;
  Taps<V, K> taps(x, xs, at.pack, Sizes{SIZES_PASSED}, begin.plane, top, bottom, begin.x);
  Best<V> row[K];
  Pack<V> above[K], tap[2][K];
  if (K == 3) taps.read(above);
  taps.read(tap[0]);
  taps.read(tap[1]);
  if (K == 3) row[K - 1] = best_of_row<V, K>(above, top < bottom, ab, taps.place, 0);
#pragma unroll 1
  for (; oy < end; oy++) {
    if (K == 3) row[0] = row[K - 1];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      row[K - 2 + i] = best_of_row<V, K>(tap[i], top + K - 2 + i < bottom, ab, taps.place, i == 0 ? (K - 2) * K : 0);
      taps.read(tap[i]);
    }
    bool none;
    Best<V> best = best_of_rows<V, K>(row, none);
    if (none) taps.place_what_is_none(K + 2, ab, best.place);
    store_halves(y + window * ys + (u64)at.pack * V, best.value);
    store_places(indices + (window * packs + at.pack) * V, best.place);
    window += ow;
    top += 2;
  }
}
WIDE_KERNEL batch_norm_pool_k2_packed(FORWARD) { norm_pool<PACK, 2>(FORWARD_PASSED); }
WIDE_KERNEL batch_norm_pool_k2_single(FORWARD) { norm_pool<1, 2>(FORWARD_PASSED); }
WIDE_KERNEL batch_norm_pool_k3_packed(FORWARD) { norm_pool<PACK, 3>(FORWARD_PASSED); }
WIDE_KERNEL batch_norm_pool_k3_single(FORWARD) { norm_pool<1, 3>(FORWARD_PASSED); }

// ---- gradients ------------------------------------------------------------------------------------------------------
//
// A cell is 2 × 2 pixels that begin at an even place of the padded image; max_pool2d_nhwc.cu has the picture. Of 2 × 2 one window
// lies over it, of 3 × 3 two by two. A thread walks down columns of cells: the windows at a cell's end are the next one's begin, so
// a walk reads one row of windows more than it has cells, at a cell above the first that has no pixels. While a cell is worked on
// the next is on its way.

// Maps of a gradient; sums have no dx. Distances inside two rows of an image fit 32 bits, which saves registers.
struct Maps {
  const scalar* x;
  u64 xs;
  const scalar* dy;
  u64 dys;
  const u8* places;
  scalar* dx;
  u64 dxs;
};

// What a window has to give, and the tap that gets it.
template <int V> struct Given {
  Halves<V> d;
  u32 place[2];
  // Word w of d where that is tap t. Places are compared as f16 compares numbers so small.
  DEVICE u32 at(int w, int t) const {
    u32 both = V == 1 ? place[0] : __byte_perm(place[w / 2], 0, w % 2 ? 0x4342 : 0x4140);
    return d.word[w] & f16_equal(both, BOTH(t));
  }
};

template <int V, int K> struct Cells {
  enum { W = K - 1, WORDS = Halves<V>::WORDS };
  const Columns& at;
  const Sizes& of;
  const Maps& maps;
  // The walk: its row, turns that are left, and of this one cells.
  u32 row, turns, left;
  // Of the cell on its way: its row; bits of pixels and of windows in columns that are inside, and of pixels that are.
  u32 y, columns, windows, inside;
  // Its pixel 0, which may lie before the image, and the last of its windows.
  const scalar *x, *dy;
  const u8* places;
  scalar* dx;
  Pack<V> d[W], v[4];
  u32 place[W][2];

  DEVICE Cells(const Columns& at, const Sizes& of, const Maps& maps) : at(at), of(of), maps(maps), row((u32)at.row), turns(at.turns) {
    inside = windows = y = 0;
    // Of turns from the end the first may have fewer rows than threads.
    if (turns > 0 && row >= (u32)at.end) {
      row += (u32)at.leap;
      turns--;
    }
    // What `next` begins with.
    left = 1;
    if (turns > 0) turns++;
    row -= (u32)at.leap;
  }
  DEVICE void begin() {
    u32 height = (of.h + of.ph + 1) / 2, width = (of.w + of.pw + 1) / 2;
    Pixel to = pixel_of(row, of.pieces * width, of.by_plane, width, of.by_row);
    u32 top = to.y * of.down;
    left = min(of.down, height - top) + (K - 2);
    y = top - (K - 2);  // wraps above the first row, and then is not below oh
    i32 image_x = (i32)(to.x * 2 - of.pw);
    columns = (image_x >= 0 ? 5 : 0) | (image_x + 1 < (i32)of.w ? 10 : 0);
    windows = 0;
#pragma unroll
    for (int j = 0; j < W; j++) windows |= (to.x + j - (W - 1) < of.ow) << j;
    u64 pixel = ((u64)to.plane * of.h + 2 * (i32)y - of.ph) * of.w + image_x;
    u64 window = ((u64)to.plane * of.oh + (i32)y) * of.ow + to.x;
    u64 pack = (u64)at.pack * V;
    x = maps.x + pixel * maps.xs + pack;
    dx = maps.dx + pixel * maps.dxs + pack;
    dy = maps.dy + window * maps.dys + pack;
    places = maps.places + window * at.packs * V + pack;
    inside = K == 2 ? look() : 0;
  }
  // The bits of pixels.
  DEVICE u32 look() const { return columns & ((y * 2 - of.ph < of.h ? 3 : 0) | (y * 2 + 1 - of.ph < of.h ? 12 : 0)); }
  DEVICE void next() {
    if (--left > 0) {
      y++;
      x += 2 * of.w * (u32)maps.xs;
      dx += 2 * of.w * (u32)maps.dxs;
      dy += of.ow * (u32)maps.dys;
      places += of.ow * at.packs * V;
      inside = look();
    } else if (--turns > 0) {
      row += (u32)at.leap;
      begin();
    } else {
      inside = windows = 0;
    }
  }
  DEVICE void read_windows() {
#pragma unroll
    for (int j = 0; j < W; j++) {
      place[j][0] = place[j][1] = ~0u;
      if (!(windows >> j & 1) || y >= of.oh) continue;
      const u8* bytes = places - (W - 1 - j) * at.packs * V;
      if (V == 1) {
        place[j][0] = bytes[0];
      } else {
        u64 eight = *(const u64*)bytes;
        place[j][0] = (u32)eight;
        place[j][1] = (u32)(eight >> 32);
      }
      d[j] = load<V>(dy - (W - 1 - j) * (u32)maps.dys);
    }
  }
  DEVICE void read_pixel(int p) {
    if (inside >> p & 1) v[p] = load<V>(x + (p / 2 * of.w + p % 2) * (u32)maps.xs);
  }
  // Window j of the last row, with +0 for a −0, as a sum that begins with 0 has it.
  DEVICE Given<V> given(int j) const {
    Given<V> given;
#pragma unroll
    for (int w = 0; w < WORDS; w++) given.d.word[w] = scalar::sum(halves(d[j]).word[w], 0);
    given.place[0] = place[j][0];
    given.place[1] = place[j][1];
    return given;
  }
};

// The gradient of the map between at pixel p, as the pool would store it. Of two windows it is added up in halves: what is rounded to
// f32 first, of two bits more than twice as many, is rounded to the same.
template <int V, int K> DEVICE Halves<V> gradient(const Given<V> (&given)[K - 1][K - 1], int p) {
  const int W = K - 1;
  const bool few = K == 2 || p > 0;
  Halves<V> sum;
#pragma unroll
  for (int w = 0; w < Halves<V>::WORDS; w++) {
    u32 both = 0;
    float low = 0.f, high = 0.f;
    bool begun = false;
#pragma unroll
    for (int i = 0; i < W; i++) {
#pragma unroll
      for (int j = 0; j < W; j++) {
        const int r = p / 2 + 2 * (W - 1 - i), c = p % 2 + 2 * (W - 1 - j);
        if (r >= K || c >= K) continue;
        u32 more = given[i][j].at(w, r * K + c);
        if (few) {
          both = begun ? scalar::sum(both, more) : more;
        } else {
          float l, h;
          scalar::floats(more, l, h);
          low = begun ? low + l : l;
          high = begun ? high + h : h;
        }
        begun = true;
      }
    }
    sum.word[w] = few ? both : scalar::pair(low, high);
  }
  return sum;
}

// use(where dx has pixel 0, p, v, gradient) for each pixel p of each cell of a thread: of the map x, and of the gradient of the map
// between, those that are not inside too, for what branches is not put in the best order. The next cell's windows are on their way
// while this one's pixels are used, and its pixels while windows are.
template <int V, int K, class F> DEVICE void each_pixel(Cells<V, K>& cells, F use) {
  const int W = K - 1;
  Given<V> given[W][W] = {};
  Halves<V> sum[4] = {};
#pragma unroll 1
  while (cells.turns > 0) {
    u32 inside = cells.inside;
    scalar* dx = cells.dx;
    cells.next();
    cells.read_windows();
#pragma unroll
    for (int p = 0; p < 4; p++) {
      float v[V], gradient[V];
      cells.v[p].get(v);
      sum[p].get(gradient);
      use(dx, p, inside >> p & 1, v, gradient);
      cells.read_pixel(p);
    }
#pragma unroll
    for (int j = 0; j < W; j++) {
      if (K == 3) given[0][j] = given[W - 1][j];
      given[W - 1][j] = cells.given(j);
    }
#pragma unroll
    for (int p = 0; p < 4; p++) sum[p] = gradient<V, K>(given, p);
  }
}

#define MAPS const scalar *x, u64 xs, const scalar *dy, u64 dys, const u8 *indices, COEFFICIENTS
#define MAPS_PASSED x, xs, dy, dys, indices, mean, variance, gamma, beta

// Sums of what goes through, and of it times x, from which the mean's share is taken at the end. What does not go through is not
// added: 0 times x is 0, as an x that is not finite makes its channel's statistics none, and then all goes through.
#define SUMS MAPS, COLUMNS, double *partial, float *dgamma, float *dbeta, float eps, SIZES
#define SUMS_PASSED MAPS_PASSED, COLUMNS_PASSED, partial, dgamma, dbeta, eps, SIZES_PASSED
template <int V, int K> DEVICE void pool_sums(SUMS) {
  Dealt at(COLUMNS_PASSED, TALL_HELD);
  const Sizes of = {SIZES_PASSED};
  float ab[2][V], sum[2][V];
  lines<V>(mean, variance, gamma, beta, eps, at, ab);
#pragma unroll
  for (int l = 0; l < V; l++) sum[0][l] = sum[1][l] = 0.f;
  const Maps maps = {x, xs, dy, dys, indices, nullptr, 0};
  Cells<V, K> cells(at, of, maps);
  each_pixel(cells, [&](scalar*, int, bool inside, const float (&v)[V], const float (&gradient)[V]) {
#pragma unroll
    for (int l = 0; l < V; l++) {
      bool through = inside & !(fmaf(v[l], ab[0][l], ab[1][l]) <= 0.f);
      sum[0][l] = through ? sum[0][l] + gradient[l] : sum[0][l];
      sum[1][l] = through ? fmaf(gradient[l], v[l], sum[1][l]) : sum[1][l];
    }
  });
  sum_columns<TALL_HELD, V>(sum, at, partial, [&](u32 c, const double (&sum)[2]) {
    dgamma[c] = (float)((sum[1] - mean[c] * sum[0]) / sqrt((double)variance[c] + eps));
    dbeta[c] = (float)sum[0];
  });
}
TALL_HELD_KERNEL batch_norm_pool_k2_sums_packed(SUMS) { pool_sums<PACK, 2>(SUMS_PASSED); }
TALL_HELD_KERNEL batch_norm_pool_k2_sums_single(SUMS) { pool_sums<1, 2>(SUMS_PASSED); }
TALL_HELD_KERNEL batch_norm_pool_k3_sums_packed(SUMS) { pool_sums<PACK, 3>(SUMS_PASSED); }
TALL_HELD_KERNEL batch_norm_pool_k3_sums_single(SUMS) { pool_sums<1, 3>(SUMS_PASSED); }

// dx = through · p + x · q + r, as batch_norm_nhwc.cu has it.
#define APPLY MAPS, const float *dgamma, const float *dbeta, scalar *dx, u64 dxs, COLUMNS, float eps, float inverse_count, SIZES
#define APPLY_PASSED MAPS_PASSED, dgamma, dbeta, dx, dxs, COLUMNS_PASSED, eps, inverse_count, SIZES_PASSED
template <int V, int K> DEVICE void pool_apply(APPLY) {
  Piece at(COLUMNS_PASSED);
  const Sizes of = {SIZES_PASSED};
  float k[5][V];
  by_channel<V>(at, [&](u32 c, float (&made)[5]) {
    float m = mean[c], g = gamma[c], inverse = rsqrtf(variance[c] + eps), slope = dgamma[c] * inverse * inverse_count;
    Line line = line_of(m, variance[c], g, beta[c], eps);
    made[0] = g * inverse;
    made[1] = -made[0] * slope;
    made[2] = made[0] * fmaf(m, slope, -dbeta[c] * inverse_count);
    made[3] = line.a;
    made[4] = line.b;
  }, k);
  const Maps maps = {x, xs, dy, dys, indices, dx, dxs};
  Cells<V, K> cells(at, of, maps);
  each_pixel(cells, [&](scalar* first, int p, bool inside, const float (&v)[V], const float (&gradient)[V]) {
    float to[V];
#pragma unroll
    for (int l = 0; l < V; l++) {
      float through = fmaf(v[l], k[3][l], k[4][l]) <= 0.f ? 0.f : gradient[l];
      to[l] = fmaf(through, k[0][l], fmaf(v[l], k[1][l], k[2][l]));
    }
    Pack<V> pack;
    pack.put(to);
    if (inside) store<V>(first + (p / 2 * of.w + p % 2) * (u32)dxs, pack);
  });
}
WIDE_KERNEL batch_norm_pool_k2_grad_packed(APPLY) { pool_apply<PACK, 2>(APPLY_PASSED); }
WIDE_KERNEL batch_norm_pool_k2_grad_single(APPLY) { pool_apply<1, 2>(APPLY_PASSED); }
WIDE_KERNEL batch_norm_pool_k3_grad_packed(APPLY) { pool_apply<PACK, 3>(APPLY_PASSED); }
WIDE_KERNEL batch_norm_pool_k3_grad_single(APPLY) { pool_apply<1, 3>(APPLY_PASSED); }
