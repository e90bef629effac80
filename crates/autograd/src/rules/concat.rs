//! Concatenation: reads nothing but dY, which it cuts. The parts usually stay where they are.

use super::Context;
use crate::AutogradError;
use vdnn_graph::{Op, op};

pub(super) fn rule(ctx: &mut Context<'_>, axis: op::Axis) -> Result<(), AutogradError> {
    let sections = (0..ctx.n_inputs()).map(|index| ctx.ty(index).shape.dim(axis.dimension())).collect();
    let dy = ctx.dy();
    let parts = ctx.push("data_grad", Op::Split(op::Split { sections, axis }), &[dy])?;
    for (index, part) in parts.into_iter().enumerate() {
        ctx.give(index, part)?;
    }
    Ok(())
}
