//! Dropout: reads the iteration counter, from which the mask is made again (case B29).

use super::Context;
use crate::AutogradError;
use vdnn_graph::{Op, op};

pub(super) fn rule(ctx: &mut Context<'_>, dropout: op::Dropout) -> Result<(), AutogradError> {
    let reads = [ctx.dy(), ctx.x(1)];
    ctx.gradient(0, "data_grad", Op::DropoutGrad(dropout), &reads)
}
