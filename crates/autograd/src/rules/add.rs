//! Addition: reads nothing and makes nothing. dY is the gradient of both operands.

use super::Context;
use crate::AutogradError;

pub(super) fn rule(ctx: &mut Context<'_>) -> Result<(), AutogradError> {
    let dy = ctx.dy();
    ctx.give(0, dy)?;
    ctx.give(1, dy)
}
