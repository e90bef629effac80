//! Batch normalisation with ReLU, and with a residual: half precision with channels innermost.

use super::batch_norm_nhwc::{self, Gate, Gradient};
use super::{KernelError, LaunchPlan, Operand, operands};
use vdnn_graph::op::BatchNorm;

/// (X, mean, variance, gamma, beta) → Y.
pub(super) fn prepare(
    op: &BatchNorm,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let functions = ["batch_norm_relu_packed", "batch_norm_relu_single"];
    batch_norm_nhwc::prepare("batch_norm_relu", op.eps, functions, inputs, outputs)
}

/// (X, dY, mean, variance, gamma, beta) → dX, dgamma, dbeta.
pub(super) fn prepare_grad(
    op: &BatchNorm,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let name = "batch_norm_relu_grad";
    let ([x, dy, mean, variance, gamma, beta], [dx, dgamma, dbeta]) =
        (operands(name, inputs)?, operands(name, outputs)?);
    let coefficients = [mean, variance, gamma, beta].map(|o| o.address);
    let of = Gradient { x, dy, mask: 0, coefficients, dx, parameters: [dgamma, dbeta], dr: None };
    batch_norm_nhwc::prepare_grad(name, op.eps, Gate::BySign, &of, workspace)
}

/// (X, mean, variance, gamma, beta, R) → Y, mask.
pub(super) fn prepare_add(
    op: &BatchNorm,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    batch_norm_nhwc::prepare_add_relu(op.eps, inputs, outputs)
}

/// (X, dY, mask, mean, variance, gamma) → dX, dgamma, dbeta, dR.
pub(super) fn prepare_add_grad(
    op: &BatchNorm,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let name = "batch_norm_add_relu_grad";
    let ([x, dy, mask, mean, variance, gamma], [dx, dgamma, dbeta, dr]) =
        (operands(name, inputs)?, operands(name, outputs)?);
    let coefficients = [mean.address, variance.address, gamma.address, 0];
    let of = Gradient { x, dy, mask: mask.address, coefficients, dx, parameters: [dgamma, dbeta], dr: Some(dr) };
    batch_norm_nhwc::prepare_grad(name, op.eps, Gate::ByMask, &of, workspace)
}
