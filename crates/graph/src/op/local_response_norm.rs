//! Local response normalisation across channels (Krizhevsky et al., 2012), with PyTorch's window.
//!
//! `Y[c] = X[c] / (k + alpha/size · Σ_{c'} X[c']²)^beta`, c' from c − ⌊size/2⌋ to c + ⌊(size − 1)/2⌋ within the channels.

use super::{Inferred, arity, nchw, same_type};
use serde::{Deserialize, Serialize};
use vdnn_tensor::TensorType;

/// Attributes of local response normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LocalResponseNorm {
    /// Number of channels in a window.
    pub size: u64,
    /// Scale of the sum of squares.
    pub alpha: f64,
    /// Exponent.
    pub beta: f64,
    /// Constant added to the sum.
    pub k: f64,
}

impl LocalResponseNorm {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 1..=1)?;
        nchw(inputs[0])?;
        if self.size == 0 {
            return Err("expected a window of at least one channel, found 0".to_string());
        }
        Ok(vec![inputs[0].clone()])
    }

    pub(super) fn infer_grad(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 2..=2)?;
        same_type("dY", inputs[0], inputs[1])?;
        self.infer(&inputs[..1])
    }
}
