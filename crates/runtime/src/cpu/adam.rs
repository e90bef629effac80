//! Adam and AdamW over the weights in place, in PyTorch's order of operations; the bias corrections in `f64`.

use super::launch::Launch;
use super::real::Real;
use super::stretch::advance;
use crate::DeviceError;
use vdnn_graph::op::Adam;

/// (W, dW, M, V, learning rate, iteration, guard?) → W', M', V'. A guard that is not finite changes nothing.
pub(super) fn update<T: Real>(op: &Adam, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let lr = launch.scalar::<T>(4)?.wide();
    let go = launch.guard::<T>(6)?;
    let t = (launch.iteration(5)? + 1) as f64;
    let step = T::of(lr / (1.0 - op.beta1.powf(t)));
    let root_correction = T::of((1.0 - op.beta2.powf(t)).sqrt());
    let (beta2, rest1, rest2) = (T::of(op.beta2), T::of(1.0 - op.beta1), T::of(1.0 - op.beta2));
    let decay = T::of(if op.decoupled { 0.0 } else { op.weight_decay });
    let shrink = T::of(if op.decoupled { 1.0 - lr * op.weight_decay } else { 1.0 });
    let eps = T::of(op.eps);
    let (rows, dw) = (launch.samples(), launch.input::<T>(1)?);
    let w = (launch.source::<T>(0, 0)?, launch.output::<T>(0)?);
    let m = (launch.source::<T>(2, 1)?, launch.output::<T>(1)?);
    let v = (launch.source::<T>(3, 2)?, launch.output::<T>(2)?);
    advance(rows, [w, m, v], dw, |[w, m, v], dw| {
        if !go {
            return;
        }
        for (((w, m), v), &dw) in w.iter_mut().zip(m).zip(v).zip(dw) {
            let g = dw + decay * *w;
            *m += rest1 * (g - *m);
            *v = beta2 * *v + rest2 * (g * g);
            *w = shrink * *w - step * (*m / (v.sqrt() / root_correction + eps));
        }
    });
    Ok(())
}
