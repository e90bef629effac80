//! Dropout; its gradient is the same kernel on dY.

use super::elementwise::{Walk, address_and_stride};
use super::plan::{KernelArg, KernelLaunch, LaunchPlan, THREADS};
use super::{KernelError, Operand, file_of, files, operands};
use vdnn_graph::op::Dropout;
use vdnn_tensor::MemoryOrder;

/// (X, iteration) → Y, and (dY, iteration) → dX.
pub(super) fn prepare(
    op: &Dropout,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let name = "dropout";
    let ([x, iteration], [y]) = (operands(name, inputs)?, operands(name, outputs)?);
    let walk = Walk::merged(&[x, y]);
    if walk.is_empty() {
        return Ok(LaunchPlan::default());
    }
    // A pack must be whole blocks of four random words: rows start at multiples of four.
    let packed = walk.lanes > 1 && (walk.rows == 1 || walk.len.is_multiple_of(4));
    let hw = x.channels().1;
    let inner = x.ty.layout.order == MemoryOrder::Nhwc && hw > 1;
    let mut args = [address_and_stride(&x), address_and_stride(&y)].concat();
    if inner {
        args.extend([KernelArg::U32(x.ty.shape.dim(1) as u32), KernelArg::U64(hw), KernelArg::U64(x.elements())]);
    } else if packed {
        args.extend(walk.args(name)?);
    } else {
        args.extend([KernelArg::U64(walk.len), KernelArg::U64(x.elements())]);
    }
    let [key0, key1] = op.key();
    args.extend([KernelArg::U64(iteration.address), KernelArg::U32(key0), KernelArg::U32(key1)]);
    args.extend([KernelArg::U32(op.threshold()), KernelArg::F32(op.scale() as f32)]);
    let threads = u64::from(THREADS);
    let (function, blocks) = match (inner, packed) {
        (true, _) => ("dropout_nhwc", x.elements().div_ceil(threads)),
        (_, true) => ("dropout_packed", walk.blocks()),
        _ => ("dropout_single", x.elements().div_ceil(4).div_ceil(threads)),
    };
    let file = file_of(x.ty.dtype, files!("dropout"));
    Ok(vec![KernelLaunch::new(name, file, function, blocks, args)?].into())
}
