//! Elementwise addition: residual joins, and the sum of a value's gradients.

use super::{Inferred, arity, same_type};
use vdnn_tensor::TensorType;

pub(super) fn infer(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 2..=2)?;
    same_type("both operands", inputs[0], inputs[1])?;
    Ok(vec![inputs[0].clone()])
}
