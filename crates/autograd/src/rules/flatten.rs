//! Flatten and its inverse: read nothing but dY and move no bytes.

use super::Context;
use crate::AutogradError;
use vdnn_graph::{Op, op};

pub(super) fn rule(ctx: &mut Context<'_>) -> Result<(), AutogradError> {
    let sample = ctx.ty(0).shape.dims()[1..].to_vec();
    let dy = ctx.dy();
    ctx.gradient(0, "data_grad", Op::Unflatten(op::Unflatten { sample }), &[dy])
}
