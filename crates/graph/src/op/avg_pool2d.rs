//! Average pooling.
//!
//! With `count_include_pad` a window is divided by its size within the padded image, else by the number of its pixels
//! inside the image (PyTorch's rule; what a ceil-mode window hangs over the padded edge never counts).

use super::{Inferred, arity, max_pool2d::pool_padding, nchw, same_type, window::Window};
use serde::{Deserialize, Serialize};
use vdnn_tensor::TensorType;

/// Attributes of average pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AvgPool2d {
    /// The sliding window (dilation 1).
    pub window: Window,
    /// Whether padding counts in the divisor.
    pub count_include_pad: bool,
}

/// The gradient of average pooling, with X's height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AvgPool2dGrad {
    /// The forward attributes.
    pub pool: AvgPool2d,
    /// Height and width of X.
    pub input: [u64; 2],
}

impl AvgPool2d {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 1..=1)?;
        let [n, c, h, w] = nchw(inputs[0])?;
        pool_padding(&self.window)?;
        if self.window.dilation != [1, 1] {
            return Err(format!("expected dilation 1, found {:?}", self.window.dilation));
        }
        let [oh, ow] = self.window.output([h, w])?;
        Ok(vec![inputs[0].with_shape([n, c, oh, ow])])
    }
}

impl AvgPool2dGrad {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 1..=1)?;
        let [n, c, ..] = nchw(inputs[0])?;
        let x = inputs[0].with_shape([n, c, self.input[0], self.input[1]]);
        same_type("dY", &self.pool.infer(&[&x])?[0], inputs[0])?;
        Ok(vec![x])
    }
}
