//! The number of rows whose largest logit is the label's.

use super::elementwise::address_and_stride;
use super::plan::{KernelArg, KernelLaunch, LaunchPlan};
use super::softmax_cross_entropy::sizes;
use super::{KernelError, Operand, operands};
use KernelArg::{U32, U64};
use vdnn_tensor::{Bytes, TensorType};

/// A flag of each row.
pub(super) fn workspace(logits: &TensorType) -> Bytes {
    logits.shape.samples() * 4
}

/// (logits, labels) → count.
pub(super) fn prepare(
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let ([logits, labels], [count]) = (operands("accuracy", inputs)?, operands("accuracy", outputs)?);
    let [rows, classes] = sizes("accuracy", &logits)?;
    let mut args = address_and_stride(&logits).to_vec();
    args.extend([U64(labels.address), U64(workspace), U32(classes)]);
    let per_row = KernelLaunch::new("accuracy", "accuracy.cu", "accuracy_rows", rows.into(), args)?;
    let args = vec![U64(workspace), U64(count.address), U32(rows)];
    Ok(vec![per_row, KernelLaunch::new("accuracy", "accuracy.cu", "accuracy_count", 1, args)?].into())
}
