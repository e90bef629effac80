//! Batch normalisation: reads X, the batch's mean and variance, and gamma.

use super::Context;
use crate::AutogradError;
use vdnn_graph::{Op, op};

pub(super) const X: usize = 0;
pub(super) const MEAN: usize = 1;
pub(super) const VARIANCE: usize = 2;
pub(super) const GAMMA: usize = 3;
pub(super) const BETA: usize = 4;

/// One node makes dX, dgamma and dbeta; its dX includes the way through the statistics.
pub(super) fn rule(ctx: &mut Context<'_>, norm: op::BatchNorm) -> Result<(), AutogradError> {
    check_statistics(ctx)?;
    let reads = [ctx.x(X), ctx.dy(), ctx.x(MEAN), ctx.x(VARIANCE), ctx.x(GAMMA)];
    let gradients = ctx.push("data_grad", Op::BatchNormGrad(norm), &reads)?;
    for (operand, gradient) in [X, GAMMA, BETA].into_iter().zip(gradients) {
        ctx.give(operand, gradient)?;
    }
    Ok(())
}

/// Refuses statistics that are not those of X's batch: their gradient is part of the rule.
pub(super) fn check_statistics(ctx: &Context<'_>) -> Result<(), AutogradError> {
    check_statistics_of(ctx, X)
}

/// The same of the map that is operand `x`, before its mean and variance.
pub(super) fn check_statistics_of(ctx: &Context<'_>, x: usize) -> Result<(), AutogradError> {
    if are_statistics_of(ctx, x) {
        return Ok(());
    }
    Err(ctx.refuse(
        "its statistics are not those of its input's batch; build the network in training mode to differentiate it",
    ))
}

fn are_statistics_of(ctx: &Context<'_>, x: usize) -> bool {
    let graph = ctx.tape.graph();
    let (mean, variance) = (ctx.x(x + MEAN), ctx.x(x + VARIANCE));
    let producer = graph.value(mean).producer;
    let stats = producer.map(|id| graph.node(id)).filter(|node| node.op == Op::BatchNormStats);
    stats.is_some_and(|node| node.inputs == [ctx.x(x)] && node.outputs == [mean, variance])
}
