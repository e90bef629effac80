//! Unfolding: reads nothing but dY, which is folded back into X's type.

use super::Context;
use crate::AutogradError;
use vdnn_graph::{Op, op};

pub(super) fn rule(ctx: &mut Context<'_>, unfold: op::Unfold) -> Result<(), AutogradError> {
    let (input, dy) = (ctx.height_width(0), ctx.dy());
    let (dtype, layout) = (ctx.ty(0).dtype, ctx.ty(0).layout);
    ctx.gradient(0, "data_grad", Op::UnfoldGrad(op::UnfoldGrad { unfold, input, dtype, layout }), &[dy])
}
