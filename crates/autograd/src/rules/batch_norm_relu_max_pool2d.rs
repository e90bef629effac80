//! Batch normalisation with ReLU and max pooling: reads X, its own indices, the batch's mean and variance, gamma and beta.

use super::Context;
use super::batch_norm::{BETA, GAMMA, MEAN, VARIANCE, X, check_statistics};
use crate::AutogradError;
use vdnn_graph::{Op, op};

const INDICES: usize = 1;

pub(super) fn rule(ctx: &mut Context<'_>, op: op::BatchNormReluMaxPool2d) -> Result<(), AutogradError> {
    check_statistics(ctx)?;
    let coefficients = [MEAN, VARIANCE, GAMMA, BETA].map(|operand| ctx.x(operand));
    let reads = [&[ctx.x(X), ctx.y(INDICES), ctx.dy()][..], &coefficients].concat();
    let gradients = ctx.push("data_grad", Op::BatchNormReluMaxPool2dGrad(op), &reads)?;
    for (operand, gradient) in [X, GAMMA, BETA].into_iter().zip(gradients) {
        ctx.give(operand, gradient)?;
    }
    Ok(())
}
