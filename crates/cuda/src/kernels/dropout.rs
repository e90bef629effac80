//! Dropout; its gradient is the same kernel on dY.

use super::elementwise::address_and_stride;
use super::plan::{KernelArg, KernelLaunch, LaunchPlan, Rows, THREADS};
use super::{KernelError, Operand, operands};
use vdnn_graph::op::Dropout;

/// (X, iteration) → Y, and (dY, iteration) → dX.
pub(super) fn prepare(
    op: &Dropout,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let name = "dropout";
    let ([x, iteration], [y]) = (operands(name, inputs)?, operands(name, outputs)?);
    let rows = Rows::merged(&[x, y]);
    if rows.is_empty() {
        return Ok(LaunchPlan::default());
    }
    // A pack must be a block of four random words: rows start at multiples of four.
    let packed = rows.lanes == 4 && (rows.rows == 1 || rows.len.is_multiple_of(4));
    let mut args = [address_and_stride(&x), address_and_stride(&y)].concat();
    args.push(KernelArg::U64(rows.len));
    args.push(if packed { rows.tiles_arg(name)? } else { KernelArg::U64(x.elements()) });
    let [key0, key1] = op.key();
    args.extend([KernelArg::U64(iteration.address), KernelArg::U32(key0), KernelArg::U32(key1)]);
    args.extend([KernelArg::U32(op.threshold()), KernelArg::F32(op.scale() as f32)]);
    let (function, blocks) = if packed {
        ("dropout_v4", rows.blocks())
    } else {
        ("dropout_v1", x.elements().div_ceil(4).div_ceil(u64::from(THREADS)))
    };
    Ok(vec![KernelLaunch::new(name, "dropout.cu", function, blocks, args)?].into())
}
