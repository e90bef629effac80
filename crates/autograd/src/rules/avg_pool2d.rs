//! Average pooling: reads nothing but dY.

use super::Context;
use crate::AutogradError;
use vdnn_graph::{Op, op};

pub(super) fn rule(ctx: &mut Context<'_>, pool: op::AvgPool2d) -> Result<(), AutogradError> {
    let (input, dy) = (ctx.height_width(0), ctx.dy());
    ctx.gradient(0, "data_grad", Op::AvgPool2dGrad(op::AvgPool2dGrad { pool, input }), &[dy])
}
