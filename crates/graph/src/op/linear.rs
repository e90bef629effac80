//! The fully connected layer: `Y = X Wᵀ + bias`, X `[N, in]`, W `[out, in]`.

use super::{Inferred, arity, vector};
use vdnn_tensor::TensorType;

fn matrix(what: &str, ty: &TensorType) -> Result<[u64; 2], String> {
    ty.shape.dims().try_into().map_err(|_| format!("expected {what} as a matrix, found {}", ty.shape))
}

fn agree(what: &str, expected: u64, found: u64) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(format!("expected {what} {expected}, found {found}")) }
}

fn one_dtype(what: &str, a: &TensorType, b: &TensorType) -> Result<(), String> {
    if a.dtype == b.dtype {
        return Ok(());
    }
    Err(format!("expected {what} of one dtype, found {} and {}", a.dtype, b.dtype))
}

pub(super) fn infer(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 2..=3)?;
    let [n, features] = matrix("X [N, in]", inputs[0])?;
    let [out, w_features] = matrix("W [out, in]", inputs[1])?;
    agree("X's number of features to be W's", w_features, features)?;
    one_dtype("X and W", inputs[0], inputs[1])?;
    if let Some(bias) = inputs.get(2) {
        vector("a bias", out, inputs[0], bias)?;
    }
    Ok(vec![inputs[0].with_shape([n, out])])
}

/// (dY, W) → dX.
pub(super) fn infer_data_grad(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 2..=2)?;
    let [n, dy_out] = matrix("dY [N, out]", inputs[0])?;
    let [out, features] = matrix("W [out, in]", inputs[1])?;
    agree("dY's number of features to be W's", out, dy_out)?;
    one_dtype("dY and W", inputs[0], inputs[1])?;
    Ok(vec![inputs[0].with_shape([n, features])])
}

/// (X, dY) → dW.
pub(super) fn infer_weight_grad(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 2..=2)?;
    let [n, features] = matrix("X [N, in]", inputs[0])?;
    let [dy_n, out] = matrix("dY [N, out]", inputs[1])?;
    agree("X and dY to hold the same number of samples", n, dy_n)?;
    one_dtype("X and dY", inputs[0], inputs[1])?;
    Ok(vec![TensorType::new([out, features], inputs[0].dtype)])
}
