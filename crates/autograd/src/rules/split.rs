//! Split: reads nothing but the gradients of its parts, which it joins. Parts that nobody used have a gradient of zero.

use super::Context;
use crate::AutogradError;
use vdnn_graph::{Op, op};

pub(super) fn rule(ctx: &mut Context<'_>, axis: op::Axis) -> Result<(), AutogradError> {
    let outputs = ctx.tape.graph().node(ctx.node).outputs.clone();
    let mut gradients = Vec::with_capacity(outputs.len());
    for output in outputs {
        gradients.push(match ctx.tape.gradient(output) {
            Some(gradient) => gradient,
            None => ctx.tape.zeros(output)?,
        });
    }
    ctx.gradient(0, "data_grad", Op::Concat(op::Concat { axis }), &gradients)
}
