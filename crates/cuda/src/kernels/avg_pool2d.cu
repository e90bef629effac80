// Average pooling and its gradient, which gathers from the windows over a pixel.

// What window (oy, ox) is divided by: its size within the padded image, or within the image.
DEVICE float divisor(Window<0, 0> g, u32 oy, u32 ox, u32 count_include_pad) {
  i32 y0 = (i32)(oy * g.sh_) - (i32)g.ph, x0 = (i32)(ox * g.sw_) - (i32)g.pw;
  i32 y1 = min(y0 + (i32)g.kh_, (i32)(g.h + g.ph)), x1 = min(x0 + (i32)g.kw_, (i32)(g.w + g.pw));
  if (!count_include_pad) {
    y0 = max(y0, 0);
    x0 = max(x0, 0);
    y1 = min(y1, (i32)g.h);
    x1 = min(x1, (i32)g.w);
  }
  return (float)((y1 - y0) * (x1 - x0));
}

DEVICE float window_mean(const scalar* x, Window<0, 0> g, u32 oy, u32 ox, u32 count_include_pad) {
  float sum = 0;
  for (u32 a = 0; a < g.kh_; a++) {
    u32 y = oy * g.sh_ + a - g.ph;  // wraps when above the image
    if (y >= g.h) continue;
    for (u32 b = 0; b < g.kw_; b++) {
      u32 column = ox * g.sw_ + b - g.pw;
      if (column < g.w) sum += x[(u64)y * g.w + column];
    }
  }
  return sum / divisor(g, oy, ox, count_include_pad);
}

KERNEL avg_pool2d(const scalar* x, u64 xs, scalar* y, u64 ys, u32 len, u32 tiles, u64 plane, u64 row, WINDOW_PARAMS,
                  u32 count_include_pad) {
  Tile t = tile_of<1>(tiles);
  Window<0, 0> g = WINDOW(0, 0);
  for (int u = 0; u < Unroll<1>::count; u++) {
    u64 i = t.start + u * THREADS;
    if (i >= len) return;
    Pixel p = pixel_of((u32)i, oh * ow, plane, ow, row);
    y[t.row * ys + i] = window_mean(x + t.row * xs + (u64)p.plane * h * w, g, p.y, p.x, count_include_pad);
  }
}

KERNEL avg_pool2d_grad(const scalar* dy, u64 dys, scalar* dx, u64 dxs, u32 len, u32 tiles, u64 plane, u64 row, WINDOW_PARAMS,
                       u32 count_include_pad) {
  Tile t = tile_of<1>(tiles);
  Window<0, 0> g = WINDOW(0, 0);
  for (int u = 0; u < Unroll<1>::count; u++) {
    u64 i = t.start + u * THREADS;
    if (i >= len) return;
    Pixel p = pixel_of((u32)i, h * w, plane, w, row);
    const scalar* from = dy + t.row * dys + (u64)p.plane * oh * ow;
    u32 ty = p.y + ph, tx = p.x + pw, y_end = end_window(ty, sh, oh), x_end = end_window(tx, sw, ow);
    float sum = 0;
    for (u32 oy = first_window(ty, kh, sh); oy < y_end; oy++) {
      for (u32 ox = first_window(tx, kw, sw); ox < x_end; ox++) {
        sum += from[(u64)oy * ow + ox] / divisor(g, oy, ox, count_include_pad);
      }
    }
    dx[t.row * dxs + i] = sum;
  }
}
