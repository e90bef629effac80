//! The loss: reads logits and labels. Its own gradient is 1, so it can only be the root.

use crate::AutogradError;
use crate::tape::Tape;
use vdnn_graph::{NodeId, Op, op};

/// Starts backward at the loss made by `node`.
pub(crate) fn from_loss(tape: &mut Tape, node: NodeId, loss: op::SoftmaxCrossEntropy) -> Result<(), AutogradError> {
    let reads = tape.graph().node(node).inputs.clone();
    let gradient = tape.push(node, "data_grad", Op::SoftmaxCrossEntropyGrad(loss), &reads)?[0];
    tape.give(node, reads[0], gradient)
}
