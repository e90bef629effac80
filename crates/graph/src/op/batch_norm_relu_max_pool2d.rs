//! Batch normalisation, ReLU and max pooling in one pass: `Y = pool(max(normalised X, 0))`, as the stem of a ResNet ends.
//!
//! The map between, four times Y, is never made: backward reads X, of which the sign follows, and the place of each window's
//! maximum. Windows are those that kernels have for it.

use super::batch_norm::coefficients;
use super::{BatchNorm, Inferred, MaxPool2d, arity, same_type};
use serde::{Deserialize, Serialize};
use vdnn_tensor::{DType, TensorType};

/// Attributes of a batch normalisation and of the pool after its ReLU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchNormReluMaxPool2d {
    /// The normalisation.
    pub norm: BatchNorm,
    /// The pool.
    pub pool: MaxPool2d,
}

impl BatchNormReluMaxPool2d {
    /// True for windows of 2×2 or 3×3 at a stride of 2.
    pub fn takes(pool: &MaxPool2d) -> bool {
        let window = &pool.window;
        matches!(window.kernel, [2, 2] | [3, 3]) && window.stride == [2; 2] && window.dilation == [1; 2]
    }

    /// (X, mean, variance, gamma, beta) → Y, indices.
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 5..=5)?;
        coefficients(inputs[0], &["mean", "variance", "gamma", "beta"], &inputs[1..])?;
        self.pooled(inputs[0])
    }

    /// (X, indices, dY, mean, variance, gamma, beta) → dX, dgamma, dbeta.
    pub(super) fn infer_grad(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 7..=7)?;
        let x = inputs[0];
        let y = self.pooled(x)?.remove(0);
        same_type("dY", &y, inputs[2])?;
        same_type("the indices", &TensorType { dtype: DType::U8, ..y }, inputs[1])?;
        let parameter = coefficients(x, &["mean", "variance", "gamma", "beta"], &inputs[3..])?;
        Ok(vec![x.clone(), parameter.clone(), parameter])
    }

    fn pooled(&self, x: &TensorType) -> Inferred {
        if !BatchNormReluMaxPool2d::takes(&self.pool) {
            let ([kh, kw], [sh, sw]) = (self.pool.window.kernel, self.pool.window.stride);
            return Err(format!(
                "expected windows of 2x2 or 3x3 at a stride of 2 without dilation, found {kh}x{kw} at {sh}x{sw}; pool apart"
            ));
        }
        self.pool.infer_indices(&[x])
    }
}
