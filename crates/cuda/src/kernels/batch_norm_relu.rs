//! Batch normalisation with ReLU, and with a residual.
//!
//! Where channels are innermost there are kernels of their own. f32 in NCHW order puts the kernels of the single ops together, some of them
//! into one, and gives their bits.

use super::batch_norm_nhwc::{self, Gate, Gated, Gradient};
use super::nhwc::is_innermost;
use super::{KernelError, LaunchPlan, Operand, add, batch_norm, operands, relu};
use vdnn_graph::op::BatchNorm;

/// (X, mean, variance, gamma, beta) → Y.
pub(super) fn prepare(
    op: &BatchNorm,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let inner = ["batch_norm_relu_packed", "batch_norm_relu_single"];
    let f32s = ["batch_norm_relu_v4", "batch_norm_relu_v1"];
    batch_norm::prepare_by("batch_norm_relu", op.eps, inner, f32s, inputs, outputs)
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
    if is_innermost(x.ty) {
        let coefficients = [mean, variance, gamma, beta].map(|o| o.address);
        let of = Gradient { x, dy, coefficients, dx, parameters: [dgamma, dbeta] };
        return batch_norm_nhwc::prepare_grad(name, op.eps, Gate::BySign, &of, workspace);
    }
    // What of dY goes through lies where dX will.
    let functions = ["batch_norm_gate_v4", "batch_norm_gate_v1"];
    let gate = batch_norm::normalise(name, op.eps, functions, &[x, dy], [mean, variance, gamma, beta], &dx)?;
    let grad = batch_norm::prepare_grad(op, &[x, dx, mean, variance, gamma], &[dx, dgamma, dbeta], workspace)?;
    Ok([gate.launches, grad.launches].concat().into())
}

/// (X, mean, variance, gamma, beta, R) → Y, mask.
pub(super) fn prepare_add(
    op: &BatchNorm,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let name = "batch_norm_add_relu";
    let ([x, mean, variance, gamma, beta, r], [y, mask]) = (operands(name, inputs)?, operands(name, outputs)?);
    if is_innermost(x.ty) {
        return batch_norm_nhwc::prepare_add_relu(op.eps, inputs, outputs);
    }
    let functions = ["batch_norm_add_v4", "batch_norm_add_v1"];
    let sum = batch_norm::normalise(name, op.eps, functions, &[x, r], [mean, variance, gamma, beta], &y)?;
    Ok([sum.launches, relu::prepare_mask(&[y], &[y, mask])?.launches].concat().into())
}

/// (X, dY, mask, mean, variance, gamma, dY'?) → dX, dgamma, dbeta, dR.
pub(super) fn prepare_add_grad(
    op: &BatchNorm,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let name = "batch_norm_add_relu_grad";
    let (inputs, second) = inputs.split_at(inputs.len().min(6));
    let second = second.first().copied();
    let ([x, dy, mask, mean, variance, gamma], [dx, dgamma, dbeta, dr]) =
        (operands(name, inputs)?, operands(name, outputs)?);
    if is_innermost(x.ty) {
        let coefficients = [mean.address, variance.address, gamma.address, 0];
        let of = Gradient { x, dy, coefficients, dx, parameters: [dgamma, dbeta] };
        return batch_norm_nhwc::prepare_gated_grad(op.eps, &of, &Gated { mask: mask.address, second, dr }, workspace);
    }
    // dR is what of dY goes through; then nothing reads dY nor dY', over either of which dX may lie.
    let sum = second.map_or(Ok(LaunchPlan::default()), |second| add::prepare(&[dy, second], &[dr]))?;
    let gate = relu::prepare_mask_grad(&[mask, if second.is_some() { dr } else { dy }], &[dr])?;
    let grad = batch_norm::prepare_grad(op, &[x, dr, mean, variance, gamma], &[dx, dgamma, dbeta], workspace)?;
    Ok([sum.launches, gate.launches, grad.launches].concat().into())
}
