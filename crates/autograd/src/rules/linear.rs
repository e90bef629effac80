//! The fully connected layer: dW reads X, db nothing, dX reads W.

use super::Context;
use crate::AutogradError;
use vdnn_graph::Op;

pub(super) fn rule(ctx: &mut Context<'_>) -> Result<(), AutogradError> {
    let (x, w, dy) = (ctx.x(0), ctx.x(1), ctx.dy());
    ctx.gradient(1, "weight_grad", Op::LinearWeightGrad, &[x, dy])?;
    ctx.gradient(2, "bias_grad", Op::BiasGrad, &[dy])?;
    ctx.gradient(0, "data_grad", Op::LinearDataGrad, &[dy, w])
}
