//! One rule per op. A rule gets the forward node's operands and the gradient of its result, and pushes what computes the
//! gradients of the operands that are wanted. The first line of each file says what the rule reads besides dY.

mod adaptive_avg_pool2d;
mod add;
mod avg_pool2d;
mod batch_norm;
mod batch_norm_add_relu;
mod batch_norm_pair_relu;
mod batch_norm_relu;
mod batch_norm_relu_max_pool2d;
mod cast;
mod concat;
mod conv2d;
mod conv2d_relu;
mod dropout;
mod flatten;
mod linear;
mod local_response_norm;
mod max_pool2d;
mod relu;
mod softmax_cross_entropy;
mod split;
mod unfold;

use crate::AutogradError;
use crate::tape::Tape;
use vdnn_graph::{NodeId, Op, ValueId};
use vdnn_tensor::TensorType;

pub(crate) use softmax_cross_entropy::from_loss;

/// A forward node as its rule sees it.
struct Context<'a> {
    tape: &'a mut Tape,
    node: NodeId,
}

impl Context<'_> {
    /// Operand `index`.
    fn x(&self, index: usize) -> ValueId {
        self.tape.graph().node(self.node).inputs[index]
    }

    /// Number of operands.
    fn n_inputs(&self) -> usize {
        self.tape.graph().node(self.node).inputs.len()
    }

    /// Result `index`.
    fn y(&self, index: usize) -> ValueId {
        self.tape.graph().node(self.node).outputs[index]
    }

    /// The gradient of the only result.
    fn dy(&self) -> ValueId {
        self.tape.gradient(self.y(0)).expect("rules run for nodes whose result has a gradient")
    }

    /// Type of operand `index`.
    fn ty(&self, index: usize) -> &TensorType {
        &self.tape.graph().value(self.x(index)).ty
    }

    /// Height and width of operand `index`, an image or a kernel.
    fn height_width(&self, index: usize) -> [u64; 2] {
        let shape = &self.ty(index).shape;
        [shape.dim(2), shape.dim(3)]
    }

    /// Whether the gradient of operand `index` is wanted.
    fn wants(&self, index: usize) -> bool {
        index < self.n_inputs() && self.tape.needs(self.x(index))
    }

    /// Pushes a backward node that makes the gradient of operand `index`, if that is wanted.
    fn gradient(&mut self, index: usize, suffix: &str, op: Op, reads: &[ValueId]) -> Result<(), AutogradError> {
        if !self.wants(index) {
            return Ok(());
        }
        let gradient = self.push(suffix, op, reads)?[0];
        self.give(index, gradient)
    }

    fn push(&mut self, suffix: &str, op: Op, reads: &[ValueId]) -> Result<Vec<ValueId>, AutogradError> {
        self.tape.push(self.node, suffix, op, reads)
    }

    fn give(&mut self, index: usize, gradient: ValueId) -> Result<(), AutogradError> {
        let operand = self.x(index);
        self.tape.give(self.node, operand, gradient)
    }

    fn refuse(&self, reason: &'static str) -> AutogradError {
        let node = self.tape.graph().node(self.node);
        AutogradError::NotDifferentiable { node: node.name.clone(), op: node.op.kind(), reason }
    }
}

/// Pushes the backward nodes of a forward node that has a gradient.
pub(crate) fn apply(tape: &mut Tape, node: NodeId) -> Result<(), AutogradError> {
    let op = tape.graph().node(node).op.clone();
    let wanted = tape.graph().node(node).inputs.iter().any(|&input| tape.needs(input));
    let ctx = &mut Context { tape, node };
    if !wanted {
        return Ok(());
    }
    match op {
        Op::Conv2d(conv) => conv2d::rule(ctx, conv),
        Op::Conv2dRelu(conv) => conv2d_relu::rule(ctx, conv),
        Op::BatchNorm(norm) => batch_norm::rule(ctx, norm),
        Op::BatchNormRelu(norm) => batch_norm_relu::rule(ctx, norm),
        Op::BatchNormAddRelu(norm) => batch_norm_add_relu::rule(ctx, norm),
        Op::BatchNormPairRelu(pair) => batch_norm_pair_relu::rule(ctx, pair),
        Op::BatchNormReluMaxPool2d(op) => batch_norm_relu_max_pool2d::rule(ctx, op),
        Op::Cast(_) => cast::rule(ctx),
        Op::Unfold(unfold) => unfold::rule(ctx, unfold),
        Op::Relu => relu::rule(ctx),
        Op::MaxPool2d(pool) => max_pool2d::rule(ctx, pool),
        Op::MaxPool2dIndices(pool) => max_pool2d::indices_rule(ctx, pool),
        Op::AvgPool2d(pool) => avg_pool2d::rule(ctx, pool),
        Op::AdaptiveAvgPool2d(_) => adaptive_avg_pool2d::rule(ctx),
        Op::LocalResponseNorm(norm) => local_response_norm::rule(ctx, norm),
        Op::Linear => linear::rule(ctx),
        Op::Add => add::rule(ctx),
        Op::Concat(concat) => concat::rule(ctx, concat.axis),
        Op::Split(split) => split::rule(ctx, split.axis),
        Op::Flatten | Op::Unflatten(_) => flatten::rule(ctx),
        Op::Dropout(dropout) => dropout::rule(ctx, dropout),
        Op::SoftmaxCrossEntropy(_) => Err(ctx.refuse("a loss can only be the root; use Root::Loss")),
        Op::BatchNormStats => {
            Err(ctx.refuse("statistics are differentiated together with the batch_norm that reads them"))
        }
        Op::Conv2dStats(_) => Err(ctx.refuse("convolutions make statistics in a graph that has been differentiated")),
        Op::Normalise(_) => Err(ctx.refuse("bytes have no gradient; ask for the gradient of the normalised image")),
        Op::Accuracy => Err(ctx.refuse("counting right answers has no gradient")),
        _ => Err(ctx.refuse("gradients of gradients and of updates are not provided")),
    }
}
