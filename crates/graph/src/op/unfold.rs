//! Unfolding (im2col): what a window sees becomes channels.
//!
//! `Y[n, (c·WH + a)·WW + b, i, j] = X[n, c, i·s − p + a, j·s − p + b]`, 0 outside X: of Y's channels, windows `[WH, WW]` of X's
//! channel c follow one another. With a window as large as the stride this is space to depth. A convolution over few channels
//! is one over more of an unfolded image ([`crate::passes::stem`]); its weights are unfolded by the same rule.

use super::{Inferred, arity, nchw};
use serde::{Deserialize, Serialize};
use vdnn_tensor::{DType, Layout, TensorType};

/// Attributes of unfolding; each pair is (height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Unfold {
    /// What one output pixel sees.
    pub window: [u64; 2],
    /// Distance between windows.
    pub stride: [u64; 2],
    /// Zeros above and left of X. Below and right there are as many as the output reaches.
    pub padding: [u64; 2],
    /// Height and width of Y.
    pub output: [u64; 2],
    /// Element type of Y.
    pub dtype: DType,
    /// Physical order and channel padding of Y.
    pub layout: Layout,
}

/// The gradient of unfolding (col2im): each element of X gets the sum over the windows that saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UnfoldGrad {
    /// The forward attributes.
    pub unfold: Unfold,
    /// Height and width of X.
    pub input: [u64; 2],
    /// Element type of X.
    pub dtype: DType,
    /// Physical order and channel padding of X.
    pub layout: Layout,
}

impl Unfold {
    /// Elements of a window: channels of Y for each of X.
    fn window_elements(&self) -> Result<u64, String> {
        if self.window.contains(&0) || self.stride.contains(&0) {
            return Err(format!(
                "expected windows and strides from 1 on, found {:?} by {:?}",
                self.window, self.stride
            ));
        }
        self.window[0].checked_mul(self.window[1]).ok_or_else(|| format!("a window of {:?} is too large", self.window))
    }

    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 1..=1)?;
        let [n, c, ..] = nchw(inputs[0])?;
        floats(inputs[0].dtype, self.dtype)?;
        let channels = c.checked_mul(self.window_elements()?).ok_or("too many channels")?;
        let shape = [n, channels, self.output[0], self.output[1]];
        Ok(vec![TensorType { dtype: self.dtype, layout: self.layout, ..inputs[0].with_shape(shape) }])
    }
}

impl UnfoldGrad {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 1..=1)?;
        let [n, channels, h, w] = nchw(inputs[0])?;
        floats(inputs[0].dtype, self.dtype)?;
        let window = self.unfold.window_elements()?;
        if [h, w] != self.unfold.output || !channels.is_multiple_of(window) {
            let [oh, ow] = self.unfold.output;
            return Err(format!("expected dY with a multiple of {window} channels and {oh}x{ow}, found {}", inputs[0]));
        }
        let shape = [n, channels / window, self.input[0], self.input[1]];
        Ok(vec![TensorType { dtype: self.dtype, layout: self.layout, ..inputs[0].with_shape(shape) }])
    }
}

fn floats(from: DType, to: DType) -> Result<(), String> {
    if from.is_float() && to.is_float() {
        return Ok(());
    }
    Err(format!("expected floating-point types, found {from} to {to}"))
}
