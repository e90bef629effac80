//! Max pooling: reads X and Y; or its indices alone.

use super::Context;
use crate::AutogradError;
use vdnn_graph::{Op, op};

pub(super) fn rule(ctx: &mut Context<'_>, pool: op::MaxPool2d) -> Result<(), AutogradError> {
    let reads = [ctx.x(0), ctx.y(0), ctx.dy()];
    ctx.gradient(0, "data_grad", Op::MaxPool2dGrad(pool), &reads)
}

/// The gradient goes where the forward's indices say.
pub(super) fn indices_rule(ctx: &mut Context<'_>, pool: op::MaxPool2d) -> Result<(), AutogradError> {
    let (reads, input) = ([ctx.y(1), ctx.dy()], ctx.height_width(0));
    ctx.gradient(0, "data_grad", Op::MaxPool2dIndicesGrad(op::MaxPool2dIndicesGrad { pool, input }), &reads)
}
