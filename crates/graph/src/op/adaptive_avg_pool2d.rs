//! Adaptive average pooling to a given size; 1×1 is the global average.
//!
//! Output row i averages the input rows from ⌊i·H/OH⌋ up to, not including, ⌈(i+1)·H/OH⌉.

use super::{Inferred, arity, nchw};
use serde::{Deserialize, Serialize};
use vdnn_tensor::TensorType;

/// Attributes of adaptive average pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AdaptiveAvgPool2d {
    /// Height and width of Y.
    pub output: [u64; 2],
}

/// The gradient of adaptive average pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AdaptiveAvgPool2dGrad {
    /// Height and width of X.
    pub input: [u64; 2],
}

impl AdaptiveAvgPool2d {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 1..=1)?;
        let [n, c, h, w] = nchw(inputs[0])?;
        if h == 0 || w == 0 || self.output.contains(&0) {
            return Err(format!("expected non-empty images, found {h}x{w} to {}x{}", self.output[0], self.output[1]));
        }
        Ok(vec![inputs[0].with_shape([n, c, self.output[0], self.output[1]])])
    }
}

impl AdaptiveAvgPool2dGrad {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 1..=1)?;
        let [n, c, ..] = nchw(inputs[0])?;
        Ok(vec![inputs[0].with_shape([n, c, self.input[0], self.input[1]])])
    }
}
