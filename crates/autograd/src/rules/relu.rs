//! ReLU: reads Y, so that the forward may overwrite X.

use super::Context;
use crate::AutogradError;
use vdnn_graph::Op;

pub(super) fn rule(ctx: &mut Context<'_>) -> Result<(), AutogradError> {
    let reads = [ctx.y(0), ctx.dy()];
    ctx.gradient(0, "data_grad", Op::ReluGrad, &reads)
}
