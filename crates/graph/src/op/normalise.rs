//! Images of bytes as numbers: each channel's pixels, read as 0 to 1, less their mean and divided by their deviation.
//!
//! The bytes are what a device keeps, and what comes out is made again from them where a plan wants it. Without a gradient:
//! images are not trained.

use super::{Inferred, arity, nchw};
use serde::{Deserialize, Serialize};
use vdnn_tensor::{DType, TensorType};

/// (byte / 255 − mean) / std by channel, in the logical order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Normalise {
    /// Mean of each channel, `[C]`.
    pub mean: Vec<f32>,
    /// Deviation of each channel, `[C]`, not zero.
    pub std: Vec<f32>,
    /// The element type of the result.
    pub dtype: DType,
}

impl Normalise {
    /// What a byte of a channel becomes, before it is rounded to the type of the result. There are 256 in a channel: kernels look
    /// them up, so that every device rounds alike.
    pub fn level(&self, channel: usize, byte: u8) -> f64 {
        (f64::from(byte) / 255.0 - f64::from(self.mean[channel])) / f64::from(self.std[channel])
    }

    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 1..=1)?;
        let x = inputs[0];
        let [_, channels, ..] = nchw(x)?;
        if *x != TensorType::new(x.shape.clone(), DType::U8) {
            return Err(format!("expected an image of bytes in NCHW order, found {x}"));
        }
        if !self.dtype.is_float() {
            return Err(format!("expected a floating-point type to normalise to, found {}", self.dtype));
        }
        for (what, of) in [("means", &self.mean), ("deviations", &self.std)] {
            if of.len() as u64 != channels || of.iter().any(|number| !number.is_finite()) {
                return Err(format!("expected {channels} finite {what}, one a channel, found {of:?}"));
            }
        }
        if self.std.contains(&0.0) {
            return Err(format!("expected deviations other than 0, found {:?}", self.std));
        }
        Ok(vec![TensorType::new(x.shape.clone(), self.dtype)])
    }
}
