//! Softmax and cross-entropy in one: the mean over the rows whose label is not ignored.
//!
//! With smoothing s and K classes the target is `(1 − s) · onehot + s / K`. The backward reads logits and labels,
//! and with loss scaling the scale: dlogits are those of the mean loss times the scale, before anything is rounded to half.

use super::{Inferred, arity, same_type, vector};
use serde::{Deserialize, Serialize};
use vdnn_tensor::{DType, TensorType};

/// Attributes of the loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoftmaxCrossEntropy {
    /// Label smoothing in [0, 1].
    pub label_smoothing: f64,
    /// Rows with this label count for nothing.
    pub ignore_index: i32,
}

impl Default for SoftmaxCrossEntropy {
    fn default() -> Self {
        SoftmaxCrossEntropy { label_smoothing: 0.0, ignore_index: -100 }
    }
}

/// Checks (logits `[N, K]`, labels `[N]`).
pub(super) fn logits_and_labels(inputs: &[&TensorType]) -> Result<(), String> {
    arity(inputs, 2..=2)?;
    let &[n, classes] = inputs[0].shape.dims() else {
        return Err(format!("expected logits [N, classes], found {}", inputs[0].shape));
    };
    if n == 0 || classes == 0 {
        return Err(format!(
            "the mean over no samples is undefined: expected at least one row and class, found {}",
            inputs[0].shape
        ));
    }
    same_type("labels", &TensorType::new([n], DType::I32), inputs[1])
}

impl SoftmaxCrossEntropy {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        logits_and_labels(inputs)?;
        if !(0.0..=1.0).contains(&self.label_smoothing) {
            return Err(format!("expected label smoothing in [0, 1], found {}", self.label_smoothing));
        }
        Ok(vec![TensorType::new([1], inputs[0].dtype)])
    }

    pub(super) fn infer_grad(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 2..=3)?;
        self.infer(&inputs[..2])?;
        if let Some(scale) = inputs.get(2) {
            vector("the scale", 1, inputs[0], scale)?;
        }
        Ok(vec![inputs[0].clone()])
    }
}
