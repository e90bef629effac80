//! A convolution that also makes the statistics of its output: what a batch norm after it would read the whole map for.
//!
//! Y is the convolution's and mean and variance are those of [`Op::BatchNormStats`](super::Op::BatchNormStats) of Y. Whoever
//! computes them from sums that are at hand while Y is written may sum numbers before they are rounded to Y's type.

use super::batch_norm::infer_stats;
use super::{Conv2d, Inferred, arity};
use vdnn_tensor::TensorType;

/// (X, W) → Y, mean, variance.
pub(super) fn infer(op: &Conv2d, inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 2..=2)?;
    let mut made = op.infer(inputs)?;
    let statistics = infer_stats(&[&made[0]])?;
    made.extend(statistics);
    Ok(made)
}
