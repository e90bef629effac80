// The loss's scale moves on, over its former value: back after a step whose guard is not finite, up after enough good ones.

KERNEL loss_scale_update(const float* scale, const i32* good, const i32* skipped, const float* guard, const u64* iteration,
                         float* new_scale, i32* new_good, i32* new_skipped, u64* taken, float growth, float backoff,
                         u32 interval, float least, float most) {
  if (threadIdx.x != 0) return;
  float s = *scale;
  i32 g = *good, k = *skipped;
  u64 all = *iteration, none = k > 0 ? (u64)k : 0;
  *taken = all > none ? all - none : 0;
  if (!may_update(guard)) {
    s *= backoff;
    g = 0;
    if (k < 0x7fffffff) k++;
  } else if ((u32)g + 1 >= interval) {
    s *= growth;
    g = 0;
  } else {
    g++;
  }
  *new_scale = fminf(fmaxf(s, least), most);
  *new_good = g;
  *new_skipped = k;
}
