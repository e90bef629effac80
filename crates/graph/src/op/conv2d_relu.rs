//! Convolution, bias and ReLU in one kernel: `Y = max(X ∗ W + bias, 0)`, and the first part of its backward.
//!
//! Backward makes `dZ = dY` where Y > 0 and the bias' gradient from it in one pass; the weight and data gradients of the
//! convolution then read dZ.

use super::{Inferred, arity, same_type};
use vdnn_tensor::TensorType;

/// (Y, dY) → dZ, dbias.
pub(super) fn infer_bias_grad(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 2..=2)?;
    same_type("dY", inputs[0], inputs[1])?;
    if inputs[0].shape.rank() < 2 {
        return Err(format!("expected [N, C, …], found {}", inputs[0].shape));
    }
    let bias = TensorType::new([inputs[0].shape.dim(1)], inputs[0].dtype.wide());
    Ok(vec![inputs[1].clone(), bias])
}
