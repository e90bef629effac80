//! Gradients divided by the loss's scale, many in one launch, from f32 or as the layers made them in half precision.

use super::plan::{KernelArg, KernelLaunch, LaunchPlan, SAMPLE_LIMIT, at_most};
use super::table::{Table, stretches};
use super::{KernelError, Operand, whole};
use KernelArg::U64;
use vdnn_graph::op::Unscale;
use vdnn_tensor::{DType, MemoryOrder};

const OP: &str = "unscale";
const FILE: &str = "unscale.cu";

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
    whole(OP, &[gradients, unscaled].concat())?;
    let mut launches =
        vec![KernelLaunch::new(OP, FILE, "unscale_guard", 1, vec![U64(guard.address), U64(found.address)])?];
    let members = gradients.iter().zip(unscaled).map(|(from, to)| member(from, to)).collect::<Result<Vec<_>, _>>()?;
    for table in Table::cut(members.into_iter()) {
        let args = [vec![U64(scale.address), U64(found.address)], table.args()].concat();
        launches.push(KernelLaunch::new(OP, FILE, "unscale", table.blocks, args)?);
    }
    Ok(launches.into())
}

/// A gradient's share of the table, `Member` in `unscale.cu`.
fn member(from: &Operand<'_>, to: &Operand<'_>) -> Result<([u64; 5], u64), KernelError> {
    let kind = match from.ty.dtype {
        DType::BF16 => 1,
        DType::F16 => 2,
        _ => 0,
    };
    let len = from.elements();
    let turned = match from.ty.shape.nchw() {
        Some([_, channels, h, w]) if from.ty.layout.order == MemoryOrder::Nhwc && h * w > 1 => [h * w, channels],
        _ => [0, 0],
    };
    if turned != [0, 0] {
        at_most(OP, "the number of elements", len, SAMPLE_LIMIT)?;
    }
    Ok(([from.address, to.address, len, kind | turned[0] << 32, turned[1]], stretches(len)))
}
