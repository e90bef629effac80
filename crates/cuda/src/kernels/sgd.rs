//! The SGD update.

use super::elementwise::Walk;
use super::plan::{KernelArg, KernelLaunch, LaunchPlan};
use super::{KernelError, Operand, guarded, operands, whole};
use KernelArg::{F32, U32, U64};
use vdnn_graph::op::Sgd;

/// (W, dW, momentum?, learning rate, iteration, guard?) → W', momentum'.
pub(super) fn prepare(op: &Sgd, inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let (inputs, guard) = guarded(inputs, 4 + usize::from(op.has_momentum()));
    let decay = F32(op.weight_decay as f32);
    if !op.has_momentum() {
        let ([w, dw, rate, _], [new_w]) = (operands("sgd", inputs)?, operands("sgd", outputs)?);
        let tail = vec![U64(rate.address), decay, guard];
        return launch(&[w, dw, new_w], ["sgd_packed", "sgd_single"], tail);
    }
    let ([w, dw, m, rate, iteration], [new_w, new_m]) = (operands("sgd", inputs)?, operands("sgd", outputs)?);
    let mut tail = vec![U64(rate.address), U64(iteration.address), decay, F32(op.momentum as f32)];
    tail.extend([F32((1.0 - op.dampening) as f32), U32(u32::from(op.nesterov)), guard]);
    launch(&[w, dw, m, new_w, new_m], ["sgd_momentum_packed", "sgd_momentum_single"], tail)
}

fn launch(all: &[Operand<'_>], functions: [&'static str; 2], tail: Vec<KernelArg>) -> Result<LaunchPlan, KernelError> {
    whole("sgd", all)?;
    let walk = Walk::merged(all);
    if walk.is_empty() {
        return Ok(LaunchPlan::default());
    }
    walk.args("sgd")?; // Refuses more packs than kernels count to; they lie in one row.
    let mut args: Vec<KernelArg> = all.iter().map(|o| U64(o.address)).collect();
    args.push(U64(walk.len));
    args.extend(tail);
    let function = walk.pick(functions[0], functions[1]);
    Ok(vec![KernelLaunch::new("sgd", "sgd.cu", function, walk.blocks(), args)?].into())
}
