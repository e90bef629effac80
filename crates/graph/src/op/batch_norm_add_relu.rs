//! Batch normalisation, a residual and ReLU in one pass over memory: `Y = max(normalised X + R, 0)`.
//!
//! The sign of each sum is kept as one bit an element, as [`mask_type`] has it, since Y
//! may be gone and R with it. Backward makes R's gradient, which is dY where the bit is set, on the way. Where Y is read twice, as
//! before a block with a residual of its own, it takes both gradients and adds them as it reads them.

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

/// (X, dY, mask, mean, variance, gamma, dY'?) → dX, dgamma, dbeta, dR.
pub(super) fn infer_grad(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 6..=7)?;
    for dy in inputs.iter().skip(1).step_by(5) {
        same_type("dY", inputs[0], dy)?;
    }
    same_type("the mask", &mask_type(inputs[0]), inputs[2])?;
    let parameter = coefficients(inputs[0], &["mean", "variance", "gamma"], &inputs[3..6])?;
    Ok(vec![inputs[0].clone(), parameter.clone(), parameter, inputs[0].clone()])
}
