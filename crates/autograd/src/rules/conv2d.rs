//! Convolution: dW reads X, db nothing, dX reads W.

use super::Context;
use crate::AutogradError;
use vdnn_graph::{Op, ValueId, op};

/// dX carries X's height and width, dW the kernel's, since a stride makes them ambiguous (cases B01, B02).
pub(super) fn rule(ctx: &mut Context<'_>, conv: op::Conv2d) -> Result<(), AutogradError> {
    let dy = ctx.dy();
    weight(ctx, conv, dy)?;
    ctx.gradient(2, "bias_grad", Op::BiasGrad, &[dy])?;
    data(ctx, conv, dy)
}

/// dW from X and dY.
pub(super) fn weight(ctx: &mut Context<'_>, conv: op::Conv2d, dy: ValueId) -> Result<(), AutogradError> {
    let (x, kernel) = (ctx.x(0), ctx.height_width(1));
    ctx.gradient(1, "weight_grad", Op::Conv2dWeightGrad(op::Conv2dWeightGrad { conv, kernel }), &[x, dy])
}

/// dX from dY and W.
pub(super) fn data(ctx: &mut Context<'_>, conv: op::Conv2d, dy: ValueId) -> Result<(), AutogradError> {
    let (w, input) = (ctx.x(1), ctx.height_width(0));
    ctx.gradient(0, "data_grad", Op::Conv2dDataGrad(op::Conv2dDataGrad { conv, input }), &[dy, w])
}
