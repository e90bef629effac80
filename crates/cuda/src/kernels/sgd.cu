// Stochastic gradient descent in PyTorch's form. Outputs lie over their inputs; lr and iteration are read here. A guard
// (null for none) that is not finite leaves everything as it was.

template <int V>
DEVICE void sgd(const float* w, const float* dw, float* new_w, u64 len, const float* lr, float decay,
                const float* guard) {
  if (!may_update(guard)) return;
  const float* const in[2] = {w, dw};
  float* const out[1] = {new_w};
  float rate = *lr;
  map_row<V>(in, out, len, [=](const float (&x)[2], float (&y)[1]) {
    float g = fmaf(decay, x[0], x[1]);
    y[0] = fmaf(-rate, g, x[0]);
  });
}

template <int V>
DEVICE void sgd_momentum(const float* w, const float* dw, const float* m, float* new_w, float* new_m, u64 len,
                         const float* lr, const u64* iteration, float decay, float momentum, float undamped,
                         u32 nesterov, const float* guard) {
  if (!may_update(guard)) return;
  const float* const in[3] = {w, dw, m};
  float* const out[2] = {new_w, new_m};
  float rate = *lr;
  bool first = *iteration == 0;
  map_row<V>(in, out, len, [=](const float (&x)[3], float (&y)[2]) {
    float g = fmaf(decay, x[0], x[1]);
    float velocity = first ? g : fmaf(momentum, x[2], undamped * g);
    float step = nesterov ? fmaf(momentum, velocity, g) : velocity;
    y[0] = fmaf(-rate, step, x[0]);
    y[1] = velocity;
  });
}

KERNEL sgd_packed(const float* w, const float* dw, float* new_w, u64 len, const float* lr, float decay,
                const float* guard) {
  sgd<4>(w, dw, new_w, len, lr, decay, guard);
}
KERNEL sgd_single(const float* w, const float* dw, float* new_w, u64 len, const float* lr, float decay,
                const float* guard) {
  sgd<1>(w, dw, new_w, len, lr, decay, guard);
}
WIDE_KERNEL sgd_momentum_packed(const float* w, const float* dw, const float* m, float* new_w, float* new_m, u64 len, const float* lr,
                       const u64* iteration, float decay, float momentum, float undamped, u32 nesterov, const float* guard) {
  sgd_momentum<4>(w, dw, m, new_w, new_m, len, lr, iteration, decay, momentum, undamped, nesterov, guard);
}
KERNEL sgd_momentum_single(const float* w, const float* dw, const float* m, float* new_w, float* new_m, u64 len, const float* lr,
                       const u64* iteration, float decay, float momentum, float undamped, u32 nesterov, const float* guard) {
  sgd_momentum<1>(w, dw, m, new_w, new_m, len, lr, iteration, decay, momentum, undamped, nesterov, guard);
}
