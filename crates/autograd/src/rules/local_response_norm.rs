//! Local response normalisation: reads X.

use super::Context;
use crate::AutogradError;
use vdnn_graph::{Op, op};

pub(super) fn rule(ctx: &mut Context<'_>, norm: op::LocalResponseNorm) -> Result<(), AutogradError> {
    let reads = [ctx.x(0), ctx.dy()];
    ctx.gradient(0, "data_grad", Op::LocalResponseNormGrad(norm), &reads)
}
