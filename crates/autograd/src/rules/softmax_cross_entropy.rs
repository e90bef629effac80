//! The loss: reads logits and labels. Its own gradient is 1, or the scale of a loss that is scaled, so it can only be the root.

use crate::AutogradError;
use crate::tape::Tape;
use vdnn_graph::{NodeId, Op, ValueId, op};

/// Starts backward at the loss made by `node`, times `scale`.
pub(crate) fn from_loss(
    tape: &mut Tape,
    node: NodeId,
    loss: op::SoftmaxCrossEntropy,
    scale: Option<ValueId>,
) -> Result<(), AutogradError> {
    let mut reads = tape.graph().node(node).inputs.clone();
    reads.extend(scale);
    let gradient = tape.push(node, "data_grad", Op::SoftmaxCrossEntropyGrad(loss), &reads)?[0];
    tape.give(node, reads[0], gradient)
}
