//! Two-dimensional convolution (cross-correlation) with stride, padding, dilation, groups and bias.
//!
//! `Y[n, k, i, j] = bias[k] + Σ_{c, a, b} X[n, g·C/G + c, i·s − p + a·d, j·s − p + b·d] · W[k, c, a, b]`, g the group of k.

use super::{Inferred, arity, nchw, same_layout, same_type, vector, window::Window};
use serde::{Deserialize, Serialize};
use vdnn_tensor::TensorType;

/// Attributes of a convolution; each pair is (height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conv2d {
    /// Distance between windows.
    pub stride: [u64; 2],
    /// Implicit zeros on each side.
    pub padding: [u64; 2],
    /// Distance between taps.
    pub dilation: [u64; 2],
    /// Number of groups the channels are cut into.
    pub groups: u64,
}

impl Default for Conv2d {
    fn default() -> Self {
        Conv2d { stride: [1; 2], padding: [0; 2], dilation: [1; 2], groups: 1 }
    }
}

/// The data gradient of a convolution. It carries X's height and width, which dY alone does not determine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conv2dDataGrad {
    /// The forward attributes.
    pub conv: Conv2d,
    /// Height and width of X.
    pub input: [u64; 2],
}

/// The weight gradient of a convolution. It carries the kernel's size, which X and dY alone do not determine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conv2dWeightGrad {
    /// The forward attributes.
    pub conv: Conv2d,
    /// Height and width of the kernel.
    pub kernel: [u64; 2],
}

impl Conv2d {
    fn window(&self, kernel: [u64; 2]) -> Window {
        Window { kernel, stride: self.stride, padding: self.padding, dilation: self.dilation, ceil_mode: false }
    }

    /// Type of Y from the types of X and W.
    fn output(&self, x: &TensorType, w: &TensorType) -> Result<TensorType, String> {
        let [n, c, h, width] = nchw(x)?;
        let [k, c_per_group, kh, kw] =
            w.shape.nchw().ok_or_else(|| format!("expected weights [K, C/groups, kh, kw], found {}", w.shape))?;
        if self.groups == 0 || c % self.groups != 0 || k % self.groups != 0 {
            return Err(format!(
                "expected {c} input and {k} output channels to divide into groups, found {} groups",
                self.groups
            ));
        }
        if c_per_group != c / self.groups {
            return Err(format!("expected weights for {} channels per group, found {c_per_group}", c / self.groups));
        }
        if x.dtype != w.dtype {
            return Err(format!("expected X and W of one dtype, found {} and {}", x.dtype, w.dtype));
        }
        same_layout("X and W", x, w)?;
        if x.layout.channel_padding > 0 && self.groups != 1 {
            return Err(format!("expected one group where channels are padded, found {}", self.groups));
        }
        let [oh, ow] = self.window([kh, kw]).output([h, width])?;
        Ok(x.with_shape([n, k, oh, ow]).unpadded())
    }

    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 2..=3)?;
        let y = self.output(inputs[0], inputs[1])?;
        if let Some(bias) = inputs.get(2) {
            vector("a bias", y.shape.dim(1), &y, bias)?;
        }
        Ok(vec![y])
    }

    /// N·K·OH·OW·(C/G)·kh·kw, from the types of Y and W.
    pub(super) fn multiply_adds(&self, y: &TensorType, w: &TensorType) -> f64 {
        y.shape.elements() as f64 * w.shape.elements_per_sample() as f64
    }
}

impl Conv2dDataGrad {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 2..=2)?;
        let (dy, w) = (inputs[0], inputs[1]);
        let [n, ..] = nchw(dy)?;
        let shape = [n, w.shape.dim(1) * self.conv.groups, self.input[0], self.input[1]];
        let x = TensorType { layout: w.layout, ..dy.with_shape(shape) };
        same_type("dY", &self.conv.output(&x, w)?, dy)?;
        Ok(vec![x])
    }
}

impl Conv2dWeightGrad {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 2..=2)?;
        let (x, dy) = (inputs[0], inputs[1]);
        let ([_, c, ..], [_, k, ..]) = (nchw(x)?, nchw(dy)?);
        let w = x.with_shape([k, c / self.conv.groups.max(1), self.kernel[0], self.kernel[1]]);
        same_type("dY", &self.conv.output(x, &w)?, dy)?;
        Ok(vec![w])
    }
}
