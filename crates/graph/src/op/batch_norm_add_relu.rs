//! Batch normalisation, a residual and ReLU in one pass over memory: `Y = max(normalised X + R, 0)`.
//!
//! The sign of each sum is kept as one bit an element, as [`mask_type`] has it, since Y
//! may be gone and R with it. Backward makes R's gradient, which is dY where the bit is set, on the way.

use super::batch_norm::coefficients;
use super::relu::mask_type;
use super::{Inferred, arity, same_type};
use vdnn_tensor::TensorType;

/// (X, mean, variance, gamma, beta, R) → Y, mask.
pub(super) fn infer(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 6..=6)?;
    coefficients(inputs[0], &["mean", "variance", "gamma", "beta"], &inputs[1..5])?;
    same_type("the residual", inputs[0], inputs[5])?;
    Ok(vec![inputs[0].clone(), mask_type(inputs[0])])
}

/// (X, dY, mask, mean, variance, gamma) → dX, dgamma, dbeta, dR.
pub(super) fn infer_grad(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 6..=6)?;
    same_type("dY", inputs[0], inputs[1])?;
    same_type("the mask", &mask_type(inputs[0]), inputs[2])?;
    let parameter = coefficients(inputs[0], &["mean", "variance", "gamma"], &inputs[3..])?;
    Ok(vec![inputs[0].clone(), parameter.clone(), parameter, inputs[0].clone()])
}
