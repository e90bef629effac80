//! ReLU. The backward reads Y, so that the forward may overwrite X; or a mask, so that Y may go as well.
//!
//! Bit `e mod 8` of byte `e / 8` of a sample's mask belongs to element e of the sample, in the
//! order of memory; bits past the last element are 0.

use super::{Inferred, arity, same_type};
use vdnn_tensor::{DType, TensorType};

pub(super) fn infer(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 1..=1)?;
    Ok(vec![inputs[0].clone()])
}

pub(super) fn infer_grad(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 2..=2)?;
    same_type("dY", inputs[0], inputs[1])?;
    Ok(vec![inputs[0].clone()])
}

pub(super) fn infer_mask(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 1..=1)?;
    Ok(vec![inputs[0].clone(), mask_type(inputs[0])])
}

pub(super) fn infer_mask_grad(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 2..=2)?;
    same_type("the mask", &mask_type(inputs[1]), inputs[0])?;
    Ok(vec![inputs[1].clone()])
}

/// The type of the mask over values of type `ty`.
pub fn mask_type(ty: &TensorType) -> TensorType {
    TensorType::new([ty.shape.samples(), ty.shape.elements_per_sample().div_ceil(8)], DType::U8)
}
