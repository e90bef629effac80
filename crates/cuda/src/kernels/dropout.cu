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

// Rows of a multiple of four elements, or a single row: a pack is a Philox block.
KERNEL dropout_v4(const scalar* x, u64 xs, scalar* y, u64 ys, u64 len, u32 tiles, const u64* iteration, u32 key0, u32 key1,
                  u32 threshold, float scale) {
  Tile t = tile_of<4>(tiles);
  const scalar* from = x + t.row * xs;
  scalar* to = y + t.row * ys;
  u64 now = *iteration;
  Pack<4> a[Unroll<4>::count];
#pragma unroll
  for (int u = 0; u < Unroll<4>::count; u++) {
    u64 i = t.start + u * (THREADS * 4);
    if (i + 4 <= len) a[u] = load<4>(from + i);
  }
#pragma unroll
  for (int u = 0; u < Unroll<4>::count; u++) {
    u64 i = t.start + u * (THREADS * 4);
    if (i >= len) return;
    Words mask = philox((t.row * len + i) / 4, now, key0, key1);
    if (i + 4 <= len) {
#pragma unroll
      for (int l = 0; l < 4; l++) a[u].lane[l] = mask.word[l] < threshold ? 0.f : a[u].lane[l] * scale;
      store<4>(to + i, a[u]);
    } else {
#pragma unroll
      for (int l = 0; l < 4; l++) {
        if (i + l < len) to[i + l] = mask.word[l] < threshold ? 0.f : from[i + l] * scale;
      }
    }
  }
}

// Any rows: a thread takes one Philox block, whose elements may lie in two rows.
KERNEL dropout_v1(const scalar* x, u64 xs, scalar* y, u64 ys, u64 len, u64 total, const u64* iteration, u32 key0, u32 key1,
                  u32 threshold, float scale) {
  u64 block = (u64)blockIdx.x * THREADS + threadIdx.x, e = block * 4;
  if (e >= total) return;
  Words mask = philox(block, *iteration, key0, key1);
  u64 row = e / len, i = e - row * len;
#pragma unroll
  for (int l = 0; l < 4; l++) {
    if (e + l < total) {
      y[row * ys + i] = mask.word[l] < threshold ? 0.f : x[row * xs + i] * scale;
      if (++i == len) { i = 0; row++; }
    }
  }
}
