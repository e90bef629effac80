// Adaptive average pooling: output row i averages input rows ⌊i·h/oh⌋ up to ⌈(i+1)·h/oh⌉. Products fit 31 bits because
// an output never has more pixels than the launch side allows a sample.

DEVICE u32 region_start(u32 i, u32 in, u32 out) { return (u32)((u64)i * in / out); }
DEVICE u32 region_end(u32 i, u32 in, u32 out) { return (u32)(((u64)(i + 1) * in + out - 1) / out); }

// One thread an output, for small regions.
KERNEL adaptive_avg_pool2d(const scalar* x, u64 xs, scalar* y, u64 ys, u32 len, u32 tiles, u64 plane, u64 row, u32 h, u32 w,
                           u32 oh, u32 ow) {
  Tile t = tile_of<1>(tiles);
  for (int u = 0; u < Unroll<1>::count; u++) {
    u64 i = t.start + u * THREADS;
    if (i >= len) return;
    Pixel p = pixel_of((u32)i, oh * ow, plane, ow, row);
    const scalar* from = x + t.row * xs + (u64)p.plane * h * w;
    u32 y0 = region_start(p.y, h, oh), y1 = region_end(p.y, h, oh);
    u32 x0 = region_start(p.x, w, ow), x1 = region_end(p.x, w, ow);
    float sum = 0;
    for (u32 a = y0; a < y1; a++) {
      for (u32 b = x0; b < x1; b++) sum += from[(u64)a * w + b];
    }
    y[t.row * ys + i] = sum / (float)((y1 - y0) * (x1 - x0));
  }
}

// One warp an output, for large regions: lanes stride over the region's pixels. blockIdx.x = sample · tiles + tile.
KERNEL adaptive_avg_pool2d_warp(const scalar* x, u64 xs, scalar* y, u64 ys, u32 len, u32 tiles, u64 plane, u64 row, u32 h,
                                u32 w, u32 oh, u32 ow) {
  u32 sample = blockIdx.x / tiles, i = (blockIdx.x - sample * tiles) * (THREADS / 32) + threadIdx.x / 32;
  if (i >= len) return;
  Pixel p = pixel_of(i, oh * ow, plane, ow, row);
  const scalar* from = x + sample * xs + (u64)p.plane * h * w;
  u32 y0 = region_start(p.y, h, oh), x0 = region_start(p.x, w, ow);
  u32 rows = region_end(p.y, h, oh) - y0, columns = region_end(p.x, w, ow) - x0;
  double sum = 0;
  for (u32 e = threadIdx.x % 32; e < rows * columns; e += 32) {
    u32 a = e / columns;
    sum += from[(u64)(y0 + a) * w + x0 + (e - a * columns)];
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) y[sample * ys + i] = (float)(sum / (rows * columns));
}

// A pixel lies in the regions ⌊y·oh/h⌋ up to ⌈(y+1)·oh/h⌉: the same rule with the sizes changed over.
KERNEL adaptive_avg_pool2d_grad(const scalar* dy, u64 dys, scalar* dx, u64 dxs, u32 len, u32 tiles, u64 plane, u64 row, u32 h,
                                u32 w, u32 oh, u32 ow) {
  Tile t = tile_of<1>(tiles);
  for (int u = 0; u < Unroll<1>::count; u++) {
    u64 i = t.start + u * THREADS;
    if (i >= len) return;
    Pixel p = pixel_of((u32)i, h * w, plane, w, row);
    const scalar* from = dy + t.row * dys + (u64)p.plane * oh * ow;
    float sum = 0;
    for (u32 a = region_start(p.y, oh, h); a < region_end(p.y, oh, h); a++) {
      u32 rows = region_end(a, h, oh) - region_start(a, h, oh);
      for (u32 b = region_start(p.x, ow, w); b < region_end(p.x, ow, w); b++) {
        u32 columns = region_end(b, w, ow) - region_start(b, w, ow);
        sum += from[(u64)a * ow + b] / (float)(rows * columns);
      }
    }
    dx[t.row * dxs + i] = sum;
  }
}
