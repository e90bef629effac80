//! What poolings share: walking single elements of samples, and the geometry of a window as arguments.

use super::elementwise::address_and_stride;
use super::plan::{KernelArg, Rows, at_most, divisor, sample_len, tile};
use super::{KernelError, Operand};
use vdnn_graph::op::Window;

/// A pooling kernel's walk over one operand's pixels, an element a thread and turn.
pub(super) struct Pixels {
    /// (length of a sample, tiles, divisor by a plane, divisor by a row).
    pub args: [KernelArg; 4],
    pub blocks: u64,
}

/// The walk over the elements of `written` `[N, C, H, W]`.
pub(super) fn pixels(op: &'static str, written: &Operand<'_>) -> Result<Pixels, KernelError> {
    let len = sample_len(op, written)?;
    let rows = Rows { lanes: 1, tiles: u64::from(len).div_ceil(tile(1)), ..Rows::by_sample(&[*written]) };
    let (plane, row) = (written.channels().1 as u32, written.ty.shape.dim(3) as u32);
    Ok(Pixels { args: [KernelArg::U32(len), rows.tiles_arg(op)?, divisor(plane), divisor(row)], blocks: rows.blocks() })
}

/// The window over an image `x` of windows `y`, as `WINDOW_PARAMS` has it. Everything must fit 30 bits, so that positions
/// in the padded image do not overflow.
pub(super) fn geometry(
    op: &'static str,
    window: &Window,
    x: [u64; 2],
    y: [u64; 2],
) -> Result<Vec<KernelArg>, KernelError> {
    let pairs = [x, y, window.kernel, window.stride, window.padding, window.dilation];
    for axis in 0..2 {
        let reach = x[axis]
            .saturating_add(window.padding[axis].saturating_mul(2))
            .saturating_add(y[axis].saturating_mul(window.stride[axis]))
            .saturating_add(window.kernel[axis].saturating_mul(window.dilation[axis]));
        at_most(op, "the reach of its window", reach, 1 << 30)?;
    }
    Ok(pairs.iter().flatten().map(|&v| KernelArg::U32(v as u32)).collect())
}

/// Height and width.
pub(super) fn size(operand: &Operand<'_>) -> [u64; 2] {
    [operand.ty.shape.dim(2), operand.ty.shape.dim(3)]
}

/// Operands as (address, stride) arguments.
pub(super) fn addresses(operands: &[Operand<'_>]) -> Vec<KernelArg> {
    operands.iter().flat_map(address_and_stride).collect()
}
