//! Two batch normalisations under a ReLU: reads A, B, its own mask, the means and variances of both, and both gammas; and both
//! gradients of a result that was read twice.

use super::Context;
use super::batch_norm::{BETA, GAMMA, MEAN, VARIANCE, X, check_statistics_of};
use crate::AutogradError;
use vdnn_graph::{Op, op};

/// Where the operands of B begin.
const B: usize = 5;
const MASK: usize = 1;

/// One node makes the gradients of both maps, gammas and betas.
pub(super) fn rule(ctx: &mut Context<'_>, pair: op::BatchNormPair) -> Result<(), AutogradError> {
    for of in [X, B] {
        check_statistics_of(ctx, of)?;
    }
    let mut reads = vec![ctx.x(X), ctx.dy(), ctx.y(MASK), ctx.x(MEAN), ctx.x(VARIANCE), ctx.x(GAMMA)];
    reads.extend([X, MEAN, VARIANCE, GAMMA].map(|operand| ctx.x(B + operand)));
    reads.extend(ctx.tape.second(ctx.y(0)));
    let gradients = ctx.push("data_grad", Op::BatchNormPairReluGrad(pair), &reads)?;
    let operands = [X, GAMMA, BETA, B + X, B + GAMMA, B + BETA];
    for (operand, gradient) in operands.into_iter().zip(gradients) {
        ctx.give(operand, gradient)?;
    }
    Ok(())
}
