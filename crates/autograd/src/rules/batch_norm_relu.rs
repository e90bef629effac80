//! Batch normalisation with ReLU: reads X, the batch's mean and variance, gamma and beta; where the gradient goes through
//! follows from them.

use super::Context;
use super::batch_norm::{BETA, GAMMA, MEAN, VARIANCE, X, check_statistics};
use crate::AutogradError;
use vdnn_graph::{Op, op};

pub(super) fn rule(ctx: &mut Context<'_>, norm: op::BatchNorm) -> Result<(), AutogradError> {
    check_statistics(ctx)?;
    let reads = [ctx.x(X), ctx.dy(), ctx.x(MEAN), ctx.x(VARIANCE), ctx.x(GAMMA), ctx.x(BETA)];
    let gradients = ctx.push("data_grad", Op::BatchNormReluGrad(norm), &reads)?;
    for (operand, gradient) in [X, GAMMA, BETA].into_iter().zip(gradients) {
        ctx.give(operand, gradient)?;
    }
    Ok(())
}
