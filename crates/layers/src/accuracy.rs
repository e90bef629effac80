//! The number of right answers in a batch.

use crate::{LayerError, Net};
use vdnn_graph::{Op, ValueId};

/// Number of rows of `logits` `[N, classes]` whose largest entry is the label's, `[1]`.
///
/// # Errors
/// [`LayerError::Graph`] when `logits` is no matrix or the batch is empty.
pub fn accuracy(net: &mut Net, name: &str, logits: ValueId) -> Result<ValueId, LayerError> {
    let label = net.label();
    net.single(name, Op::Accuracy, &[logits, label])
}
