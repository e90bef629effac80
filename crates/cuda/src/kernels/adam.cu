// Adam and AdamW in PyTorch's form. Outputs lie over their inputs; lr and iteration are read here. A guard (null for none)
// that is not finite leaves everything as it was.

// base^exponent by squaring: a few multiplications, the same bits everywhere.
DEVICE double power(double base, u64 exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

template <int V>
DEVICE void adam(const float* w, const float* dw, const float* m, const float* v, float* new_w, float* new_m, float* new_v,
                 u64 len, const float* lr, const u64* iteration, double beta1, double beta2, float eps, float decay,
                 u32 decoupled, const float* guard) {
  if (!may_update(guard)) return;
  __shared__ float corrections[2];
  if (threadIdx.x == 0) {
    u64 t = *iteration + 1;
    corrections[0] = (float)(1.0 / (1.0 - power(beta1, t)));
    corrections[1] = (float)(1.0 / (1.0 - power(beta2, t)));
  }
  __syncthreads();
  const float* const in[4] = {w, dw, m, v};
  float* const out[3] = {new_w, new_m, new_v};
  float rate = *lr, c1 = corrections[0], c2 = corrections[1], keep = decoupled ? 1.f - rate * decay : 1.f;
  float b1 = (float)beta1, b2 = (float)beta2, r1 = (float)(1.0 - beta1), r2 = (float)(1.0 - beta2);
  map_row<V>(in, out, len, [=](const float (&x)[4], float (&y)[3]) {
    float g = decoupled ? x[1] : fmaf(decay, x[0], x[1]);
    y[1] = fmaf(b1, x[2], r1 * g);
    y[2] = fmaf(b2, x[3], r2 * g * g);
    y[0] = fmaf(-rate, (y[1] * c1) / (sqrtf(y[2] * c2) + eps), x[0] * keep);
  });
}

WIDE_KERNEL adam_packed(const float* w, const float* dw, const float* m, const float* v, float* new_w, float* new_m, float* new_v,
               u64 len, const float* lr, const u64* iteration, double beta1, double beta2, float eps, float decay,
               u32 decoupled, const float* guard) {
  adam<4>(w, dw, m, v, new_w, new_m, new_v, len, lr, iteration, beta1, beta2, eps, decay, decoupled, guard);
}
KERNEL adam_single(const float* w, const float* dw, const float* m, const float* v, float* new_w, float* new_m, float* new_v,
               u64 len, const float* lr, const u64* iteration, double beta1, double beta2, float eps, float decay,
               u32 decoupled, const float* guard) {
  adam<1>(w, dw, m, v, new_w, new_m, new_v, len, lr, iteration, beta1, beta2, eps, decay, decoupled, guard);
}
