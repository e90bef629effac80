//! The gradient of a bias: the sum of dY over every dimension but the channels'.

use super::{Inferred, arity};
use vdnn_tensor::TensorType;

pub(super) fn infer(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 1..=1)?;
    let dy = inputs[0];
    if dy.shape.rank() < 2 {
        return Err(format!("expected [N, C, …], found {}", dy.shape));
    }
    Ok(vec![TensorType::new([dy.shape.dim(1)], dy.dtype.wide())])
}
