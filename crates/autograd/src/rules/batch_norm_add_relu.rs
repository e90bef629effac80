//! Batch normalisation with residual and ReLU: reads X, its own mask, the batch's mean and variance, and gamma; and both
//! gradients of a result that was read twice.

use super::Context;
use super::batch_norm::{BETA, GAMMA, MEAN, VARIANCE, X, check_statistics};
use crate::AutogradError;
use vdnn_graph::{Op, op};

const RESIDUAL: usize = 5;
const MASK: usize = 1;

/// One node makes the gradients of X, gamma, beta and the residual.
pub(super) fn rule(ctx: &mut Context<'_>, norm: op::BatchNorm) -> Result<(), AutogradError> {
    check_statistics(ctx)?;
    let mut reads = vec![ctx.x(X), ctx.dy(), ctx.y(MASK), ctx.x(MEAN), ctx.x(VARIANCE), ctx.x(GAMMA)];
    reads.extend(ctx.tape.second(ctx.y(0)));
    let gradients = ctx.push("data_grad", Op::BatchNormAddReluGrad(norm), &reads)?;
    for (operand, gradient) in [X, GAMMA, BETA, RESIDUAL].into_iter().zip(gradients) {
        ctx.give(operand, gradient)?;
    }
    Ok(())
}
