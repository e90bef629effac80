//! The loss's scale, by one thread.

use super::plan::{KernelArg, KernelLaunch, LaunchPlan};
use super::{KernelError, Operand, operands};
use KernelArg::{F32, U32, U64};
use vdnn_graph::op::LossScaleUpdate;

const OP: &str = "loss_scale_update";

/// (scale, good steps, skipped steps, guard, iteration) → the first three, steps taken.
pub(super) fn prepare(
    op: &LossScaleUpdate,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let (from, to): ([_; 5], [_; 4]) = (operands(OP, inputs)?, operands(OP, outputs)?);
    let mut args: Vec<KernelArg> = from.iter().chain(&to).map(|operand| U64(operand.address)).collect();
    let [growth, backoff, least, most] = [op.growth, op.backoff, op.least, op.most].map(|number| F32(number as f32));
    args.extend([growth, backoff, U32(op.interval), least, most]);
    Ok(vec![KernelLaunch::new(OP, "loss_scale_update.cu", OP, 1, args)?].into())
}
