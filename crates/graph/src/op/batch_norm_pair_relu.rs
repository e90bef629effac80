//! Two batch normalisations, their sum and ReLU in one pass over memory: `Y = max(normalised A + normalised B, 0)`, as the first
//! block of a ResNet's stage ends.
//!
//! As `batch_norm_add_relu` with a residual that is normalised on the way and never made: signs are kept as one bit an
//! element, and backward takes one or both gradients of Y. What of them goes through is both norms' dY.

use super::batch_norm::coefficients;
use super::relu::mask_type;
use super::{Inferred, arity, same_type};
use serde::{Deserialize, Serialize};
use vdnn_tensor::TensorType;

/// Attributes of two batch normalisations under one sum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchNormPair {
    /// Added to A's and to B's variance.
    pub eps: [f64; 2],
}

/// (A, mean, variance, gamma, beta, B, mean, variance, gamma, beta) → Y, mask.
pub(super) fn infer(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 10..=10)?;
    let (a, b) = inputs.split_at(5);
    same_type("B", a[0], b[0])?;
    for of in [a, b] {
        coefficients(of[0], &["mean", "variance", "gamma", "beta"], &of[1..])?;
    }
    Ok(vec![a[0].clone(), mask_type(a[0])])
}

/// (A, dY, mask, mean, variance, gamma, B, mean, variance, gamma, dY'?) → dA, dgamma, dbeta, dB, dgamma, dbeta.
pub(super) fn infer_grad(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 10..=11)?;
    let a = inputs[0];
    for (what, index) in [("dY", 1), ("B", 6), ("dY", 10)] {
        inputs.get(index).map_or(Ok(()), |found| same_type(what, a, found))?;
    }
    same_type("the mask", &mask_type(a), inputs[2])?;
    let names = ["mean", "variance", "gamma"];
    let parameter = coefficients(a, &names, &inputs[3..6])?;
    coefficients(a, &names, &inputs[7..10])?;
    let of_one = [a.clone(), parameter.clone(), parameter];
    Ok([of_one.clone(), of_one].concat())
}
