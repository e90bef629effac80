// Dropout. The mask is word e mod 4 of Philox4x32-10 at counter (e / 4, iteration) under the layer's key, so the same bits
// come out on every device and in every run.

struct Words { u32 word[4]; };

DEVICE Words philox(u64 block, u64 iteration, u32 key0, u32 key1) {
  u32 c0 = (u32)block, c1 = (u32)(block >> 32), c2 = (u32)iteration, c3 = (u32)(iteration >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    u64 low = (u64)0xD2511F53u * c0, high = (u64)0xCD9E8D57u * c2;
    c0 = (u32)(high >> 32) ^ c1 ^ key0;
    c1 = (u32)high;
    c2 = (u32)(low >> 32) ^ c3 ^ key1;
    c3 = (u32)low;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Rows of a multiple of four elements, or a single row: a pack is one Philox block, or two.
KERNEL dropout_packed(const scalar* x, u64 xs, scalar* y, u64 ys, WALK, const u64* iteration, u32 key0, u32 key1,
                      u32 threshold, float scale) {
  const Rows rows = WALKING;
  u64 now = *iteration;
  Pack<PACK> a[WALKED];
#pragma unroll
  for (int u = 0; u < WALKED; u++) {
    u32 p = pack_of(u);
    Place at = place_of<PACK>(p, rows);
    if (p < rows.total && at.i + PACK <= len) a[u] = load<PACK>(x + at.row * xs + at.i);
  }
#pragma unroll
  for (int u = 0; u < WALKED; u++) {
    u32 p = pack_of(u);
    if (p >= rows.total) return;
    Place at = place_of<PACK>(p, rows);
    Words words[PACK / 4];
#pragma unroll
    for (int w = 0; w < PACK / 4; w++) words[w] = philox((at.row * len + at.i) / 4 + w, now, key0, key1);
    if (at.i + PACK <= len) {
      float v[PACK];
      a[u].get(v);
#pragma unroll
      for (int l = 0; l < PACK; l++) v[l] = words[l / 4].word[l % 4] < threshold ? 0.f : v[l] * scale;
      Pack<PACK> pack;
      pack.put(v);
      store<PACK>(y + at.row * ys + at.i, pack);
    } else {
      const scalar* from = x + at.row * xs;
      scalar* to = y + at.row * ys;
#pragma unroll
      for (int l = 0; l < PACK; l++) {
        u64 i = at.i + l;
        if (i < len) to[i] = words[l / 4].word[l % 4] < threshold ? 0.f : (float)from[i] * scale;
      }
    }
  }
}

// Any rows: a thread takes one Philox block, whose elements may lie in two rows.
KERNEL dropout_single(const scalar* x, u64 xs, scalar* y, u64 ys, u64 len, u64 total, const u64* iteration, u32 key0, u32 key1,
                  u32 threshold, float scale) {
  u64 block = (u64)blockIdx.x * THREADS + threadIdx.x, e = block * 4;
  if (e >= total) return;
  Words mask = philox(block, *iteration, key0, key1);
  u64 row = e / len, i = e - row * len;
#pragma unroll
  for (int l = 0; l < 4; l++) {
    if (e + l < total) {
      y[row * ys + i] = mask.word[l] < threshold ? 0.f : (float)x[row * xs + i] * scale;
      if (++i == len) { i = 0; row++; }
    }
  }
}

// Channels innermost, x [rows, C] with `hw` rows a sample: a thread an element, whose number is that of the logical order.
KERNEL dropout_nhwc(const scalar* x, u64 xs, scalar* y, u64 ys, u32 channels, u64 hw, u64 total, const u64* iteration, u32 key0,
                    u32 key1, u32 threshold, float scale) {
  u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (at >= total) return;
  u64 row = at / channels, n = row / hw;
  u32 c = (u32)(at - row * channels);
  u64 e = (n * channels + c) * hw + (row - n * hw);
  Words mask = philox(e / 4, *iteration, key0, key1);
  y[row * ys + c] = mask.word[e % 4] < threshold ? 0.f : (float)x[row * xs + c] * scale;
}
