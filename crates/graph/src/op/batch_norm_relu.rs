//! Batch normalisation and ReLU in one pass over memory: `Y = max(normalised X, 0)`.
//!
//! Backward reads X and not Y: whether an element went through follows from X and the same coefficients.

use super::batch_norm::coefficients;
use super::{Inferred, arity, same_type};
use vdnn_tensor::TensorType;

/// (X, mean, variance, gamma, beta) → Y.
pub(super) fn infer(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 5..=5)?;
    coefficients(inputs[0], &["mean", "variance", "gamma", "beta"], &inputs[1..])?;
    Ok(vec![inputs[0].clone()])
}

/// (X, dY, mean, variance, gamma, beta) → dX, dgamma, dbeta.
pub(super) fn infer_grad(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 6..=6)?;
    same_type("dY", inputs[0], inputs[1])?;
    let parameter = coefficients(inputs[0], &["mean", "variance", "gamma", "beta"], &inputs[2..])?;
    Ok(vec![inputs[0].clone(), parameter.clone(), parameter])
}
