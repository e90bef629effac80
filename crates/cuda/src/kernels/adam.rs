//! The Adam and AdamW updates.

use super::elementwise::Walk;
use super::plan::{KernelArg, KernelLaunch, LaunchPlan};
use super::{KernelError, Operand, operands, whole, with_optional};
use KernelArg::{F32, F64, U32, U64};
use vdnn_graph::op::Adam;

/// (W, dW, M, V, learning rate, iteration, guard?) → W', M', V'.
pub(super) fn prepare(op: &Adam, inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let (inputs, guard) = with_optional(inputs, 6);
    let ([w, dw, m, v, rate, iteration], [new_w, new_m, new_v]) =
        (operands("adam", inputs)?, operands("adam", outputs)?);
    let all = [w, dw, m, v, new_w, new_m, new_v];
    whole("adam", &all)?;
    let walk = Walk::merged(&all);
    if walk.is_empty() {
        return Ok(LaunchPlan::default());
    }
    walk.args("adam")?; // Refuses more packs than kernels count to; they lie in one row.
    let mut args: Vec<KernelArg> = all.iter().map(|o| U64(o.address)).collect();
    args.extend([U64(walk.len), U64(rate.address), U64(iteration.address), F64(op.beta1), F64(op.beta2)]);
    args.extend([F32(op.eps as f32), F32(op.weight_decay as f32), U32(u32::from(op.decoupled)), U64(guard)]);
    let function = walk.pick("adam_packed", "adam_single");
    Ok(vec![KernelLaunch::new("adam", "adam.cu", function, walk.blocks(), args)?].into())
}
