//! ReLU. The backward reads Y, so that the forward may overwrite X.

use super::{Inferred, arity, same_type};
use vdnn_tensor::TensorType;

pub(super) fn infer(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 1..=1)?;
    Ok(vec![inputs[0].clone()])
}

pub(super) fn infer_grad(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 2..=2)?;
    same_type("dY", inputs[0], inputs[1])?;
    Ok(vec![inputs[0].clone()])
}
