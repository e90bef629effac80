//! Adam and AdamW (Kingma & Ba 2015; Loshchilov & Hutter 2019), in PyTorch's form.
//!
//! With t = iteration + 1: `M = b1·M + (1−b1)·g`, `V = b2·V + (1−b2)·g²`,
//! `W' = W − lr · (M / (1 − b1ᵗ)) / (√(V / (1 − b2ᵗ)) + eps)`. Decay adds to g, or, decoupled, scales W by `1 − lr·decay`.
//! With a guard (the loss) that is not finite nothing changes.

use super::{Inferred, arity, iteration_counter, same_type, vector};
use serde::{Deserialize, Serialize};
use vdnn_tensor::TensorType;

/// Attributes of Adam.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adam {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the bias-corrected second moment.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// AdamW's decoupled decay instead of an L2 penalty.
    pub decoupled: bool,
}

impl Adam {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 6..=7)?;
        let w = inputs[0];
        for (what, operand) in ["dW", "first moment", "second moment"].iter().zip(&inputs[1..4]) {
            same_type(what, w, operand)?;
        }
        vector("the learning rate", 1, w, inputs[4])?;
        iteration_counter(inputs[5])?;
        if let Some(guard) = inputs.get(6) {
            vector("the guard", 1, w, guard)?;
        }
        Ok(vec![w.clone(), w.clone(), w.clone()])
    }
}
