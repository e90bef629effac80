//! A cast: reads nothing. The gradient is cast back to X's type.

use super::Context;
use crate::AutogradError;
use vdnn_graph::{Op, op};

pub(super) fn rule(ctx: &mut Context<'_>) -> Result<(), AutogradError> {
    let (dtype, layout) = (ctx.ty(0).dtype, ctx.ty(0).layout);
    let dy = ctx.dy();
    ctx.gradient(0, "data_grad", Op::Cast(op::Cast { dtype, layout }), &[dy])
}
