//! Softmax cross-entropy: the mean loss in two stages, and its gradient.

use super::elementwise::address_and_stride;
use super::plan::{KernelArg, KernelLaunch, LaunchPlan, at_most, sample_len};
use super::{KernelError, Operand, operands, with_optional};
use KernelArg::{F32, I32, U32, U64};
use vdnn_graph::op::SoftmaxCrossEntropy;
use vdnn_tensor::{Bytes, TensorType};

const FILE: &str = "softmax_cross_entropy.cu";

/// A loss in double of each row.
pub(super) fn workspace(logits: &TensorType) -> Bytes {
    logits.shape.samples() * 8
}

/// The weight of a row, one float.
pub(super) const GRAD_WORKSPACE: Bytes = 4;

/// (logits, labels) → mean loss.
pub(super) fn prepare(
    op: &SoftmaxCrossEntropy,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let name = "softmax_cross_entropy";
    let ([logits, labels], [loss]) = (operands(name, inputs)?, operands(name, outputs)?);
    let [rows, classes] = sizes(name, &logits)?;
    let (labels, partial, ignore) = (U64(labels.address), U64(workspace), I32(op.ignore_index));
    let mut args = address_and_stride(&logits).to_vec();
    args.extend([labels, partial, U32(classes), ignore, F32(op.label_smoothing as f32)]);
    let per_row = KernelLaunch::new(name, FILE, "softmax_cross_entropy_rows", rows.into(), args)?;
    let args = vec![partial, labels, U64(loss.address), U32(rows), ignore];
    Ok(vec![per_row, KernelLaunch::new(name, FILE, "softmax_cross_entropy_mean", 1, args)?].into())
}

/// (logits, labels, scale?) → dlogits, times the scale.
pub(super) fn prepare_grad(
    op: &SoftmaxCrossEntropy,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let name = "softmax_cross_entropy_grad";
    let (inputs, scale) = with_optional(inputs, 2);
    let ([logits, labels], [dx]) = (operands(name, inputs)?, operands(name, outputs)?);
    let [rows, classes] = sizes(name, &logits)?;
    let (labels, weight, ignore) = (U64(labels.address), U64(workspace), I32(op.ignore_index));
    let args = vec![labels, weight, U32(rows), ignore, U64(scale)];
    let counted = KernelLaunch::new(name, FILE, "softmax_cross_entropy_weight", 1, args)?;
    let mut args = address_and_stride(&logits).to_vec();
    args.extend([labels, weight]);
    args.extend(address_and_stride(&dx));
    args.extend([U32(classes), ignore, F32(op.label_smoothing as f32)]);
    Ok(vec![counted, KernelLaunch::new(name, FILE, name, rows.into(), args)?].into())
}

/// Rows and classes of logits `[N, K]`.
pub(super) fn sizes(op: &'static str, logits: &Operand<'_>) -> Result<[u32; 2], KernelError> {
    let rows = at_most(op, "the number of rows", logits.samples(), (1 << 31) - 1)?;
    Ok([rows, sample_len(op, logits)?])
}
