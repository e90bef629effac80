//! Softmax and cross-entropy against the batch's labels.

use crate::{Layer, LayerError, Net};
use vdnn_graph::{Op, ValueId, op};

/// Logits `[N, classes]` → mean loss `[1]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SoftmaxCrossEntropy {
    /// Weight of the uniform distribution in the target, in [0, 1].
    pub label_smoothing: f64,
    /// Rows with this label count for nothing.
    pub ignore_index: i32,
}

impl Default for SoftmaxCrossEntropy {
    fn default() -> Self {
        let op::SoftmaxCrossEntropy { label_smoothing, ignore_index } = op::SoftmaxCrossEntropy::default();
        SoftmaxCrossEntropy { label_smoothing, ignore_index }
    }
}

impl Layer for SoftmaxCrossEntropy {
    fn push(&self, net: &mut Net, name: &str, x: ValueId) -> Result<ValueId, LayerError> {
        let SoftmaxCrossEntropy { label_smoothing, ignore_index } = *self;
        let label = net.label();
        let loss = op::SoftmaxCrossEntropy { label_smoothing, ignore_index };
        net.single(name, Op::SoftmaxCrossEntropy(loss), &[x, label])
    }
}
