//! Max pooling: reads X and Y.

use super::Context;
use crate::AutogradError;
use vdnn_graph::{Op, op};

pub(super) fn rule(ctx: &mut Context<'_>, pool: op::MaxPool2d) -> Result<(), AutogradError> {
    let reads = [ctx.x(0), ctx.y(0), ctx.dy()];
    ctx.gradient(0, "data_grad", Op::MaxPool2dGrad(pool), &reads)
}
