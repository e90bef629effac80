//! Gradients divided by the loss's scale, many in one launch: their addresses and lengths are a table among the arguments.

use super::plan::{KernelArg, KernelLaunch, LaunchPlan, THREADS};
use super::{KernelError, Operand, whole};
use KernelArg::{U64, Word};
use vdnn_graph::op::{MOST_UNSCALED, Unscale};

const OP: &str = "unscale";
const FILE: &str = "unscale.cu";
/// Packs that a thread takes. `WALKED` in `common.cuh`.
const WALKED: u64 = 4;

/// (scale, guard, dW, …) → guard', dW / scale, …
pub(super) fn prepare(
    op: &Unscale,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let count = op.gradients as usize;
    for (given, expected) in [(inputs, count + 2), (outputs, count + 1)] {
        if given.len() != expected {
            return Err(KernelError::Operands { op: OP, expected, found: given.len() });
        }
    }
    let ([scale, guard], gradients) = ([inputs[0], inputs[1]], &inputs[2..]);
    let (found, unscaled) = (outputs[0], &outputs[1..]);
    let all = || gradients.iter().chain(unscaled);
    whole(OP, &all().copied().collect::<Vec<_>>())?;
    let begin = KernelLaunch::new(OP, FILE, "unscale_guard", 1, vec![U64(guard.address), U64(found.address)])?;
    let packed = all().all(|operand| operand.address.is_multiple_of(16));
    let (lanes, function) = if packed { (4, "unscale_packed") } else { (1, "unscale_single") };
    let (table, blocks) = table(gradients, unscaled, u64::from(THREADS) * lanes * WALKED);
    if blocks == 0 {
        return Ok(vec![begin].into());
    }
    let mut args = vec![U64(scale.address), U64(found.address), U64(table[0])];
    args.extend(table[1..].iter().copied().map(Word));
    Ok(vec![begin, KernelLaunch::new(OP, FILE, function, blocks, args)?].into())
}

/// Rows of `Unscaled` in `unscale.cu`: input, output, elements, blocks so far; and all blocks.
fn table(gradients: &[Operand<'_>], unscaled: &[Operand<'_>], tile: u64) -> (Vec<u64>, u64) {
    let (mut table, mut blocks) = (Vec::with_capacity(4 * MOST_UNSCALED), 0);
    for (from, to) in gradients.iter().zip(unscaled) {
        blocks += from.elements().div_ceil(tile);
        table.extend([from.address, to.address, from.elements(), blocks]);
    }
    while table.len() < 4 * MOST_UNSCALED {
        table.extend([0, 0, 0, blocks]);
    }
    (table, blocks)
}
