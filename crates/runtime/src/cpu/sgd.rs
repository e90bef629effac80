//! Stochastic gradient descent over the weights in place, in PyTorch's order of operations. A guard that is not finite
//! leaves everything as it was.

use super::launch::Launch;
use super::real::Real;
use super::stretch::advance;
use crate::DeviceError;
use vdnn_graph::op::Sgd;

/// (W, dW, momentum?, learning rate, iteration, guard?) → W', momentum'.
pub(super) fn update<T: Real>(op: &Sgd, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let scalars = 2 + usize::from(op.has_momentum());
    let lr = launch.scalar::<T>(scalars)?;
    let first = launch.iteration(scalars + 1)? == 0;
    let go = launch.guard::<T>(scalars + 2)?;
    let decay = T::of(op.weight_decay);
    let (rows, dw) = (launch.samples(), launch.input::<T>(1)?);
    let w = (launch.source::<T>(0, 0)?, launch.output::<T>(0)?);
    if !op.has_momentum() {
        advance(rows, [w], dw, |[w], dw| {
            if !go {
                return;
            }
            for (w, &dw) in w.iter_mut().zip(dw) {
                *w = *w - lr * (dw + decay * *w);
            }
        });
        return Ok(());
    }
    let (mu, undamped) = (T::of(op.momentum), T::of(1.0 - op.dampening));
    let m = (launch.source::<T>(2, 1)?, launch.output::<T>(1)?);
    advance(rows, [w, m], dw, |[w, m], dw| {
        if !go {
            return;
        }
        for ((w, m), &dw) in w.iter_mut().zip(m).zip(dw) {
            let g = dw + decay * *w;
            *m = if first { g } else { mu * *m + undamped * g };
            *w = *w - lr * if op.nesterov { g + mu * *m } else { *m };
        }
    });
    Ok(())
}
