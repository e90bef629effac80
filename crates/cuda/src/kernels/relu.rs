//! ReLU and its gradient, from Y or from a mask.

use super::elementwise::{Elementwise, Walk, address_and_stride, elementwise};
use super::plan::{KernelArg, KernelLaunch, THREADS, in_packs, lanes};
use super::{KernelError, LaunchPlan, Operand, file_of, files, operands};
use KernelArg::U64;

const FILES: [&str; 3] = files!("relu");

/// (X) → Y.
pub(super) fn prepare(inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let ([x], [y]) = (operands("relu", inputs)?, operands("relu", outputs)?);
    elementwise(&[x], &y, Elementwise { op: "relu", files: FILES, functions: ["relu_packed", "relu_single"] })
}

/// (Y, dY) → dX.
pub(super) fn prepare_grad(inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let ([y, dy], [dx]) = (operands("relu_grad", inputs)?, operands("relu_grad", outputs)?);
    let functions = ["relu_grad_packed", "relu_grad_single"];
    elementwise(&[y, dy], &dx, Elementwise { op: "relu_grad", files: FILES, functions })
}

/// (X) → Y, mask.
pub(super) fn prepare_mask(inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let ([x], [y, mask]) = (operands("relu_mask", inputs)?, operands("relu_mask", outputs)?);
    masked("relu_mask", ["relu_mask_packed", "relu_mask_single"], [x, y], mask)
}

/// (mask, dY) → dX.
pub(super) fn prepare_mask_grad(inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let name = "relu_mask_grad";
    let ([mask, dy], [dx]) = (operands(name, inputs)?, operands(name, outputs)?);
    masked(name, ["relu_mask_grad_packed", "relu_mask_grad_single"], [dy, dx], mask)
}

/// A walk over `maps` whose mask's bits lie as the elements of a sample do.
fn masked(
    op: &'static str,
    functions: [&'static str; 2],
    maps: [Operand<'_>; 2],
    mask: Operand<'_>,
) -> Result<LaunchPlan, KernelError> {
    let [first, second] = maps;
    if first.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let (function, blocks, mask_stride, walk) = match packed(&maps) {
        Some(walk) => (functions[0], walk.blocks(), walk.len.div_ceil(8), walk.args(op)?),
        None => {
            // A thread a byte. Rows of a sample are one, or a pixel each.
            let (sample, row) = (first.sample(), first.row());
            let bytes = sample.div_ceil(8);
            let total = first.samples() * bytes;
            let args = [sample, row, bytes, total].map(U64);
            (functions[1], total.div_ceil(u64::from(THREADS)), bytes, args)
        }
    };
    let mask = [U64(mask.address), U64(mask_stride)];
    let maps = [address_and_stride(&first), address_and_stride(&second)].concat();
    let args = if op == "relu_mask" { [&maps[..], &mask].concat() } else { [&mask[..], &maps].concat() };
    let args = [&args[..], &walk].concat();
    Ok(vec![KernelLaunch::new(op, file_of(first.ty.dtype, FILES), function, blocks, args)?].into())
}

/// The walk in packs, those of a byte side by side; `None` where some row begins at an odd place or ends within a byte of a sample.
fn packed(maps: &[Operand<'_>; 2]) -> Option<Walk> {
    let [first, _] = maps;
    let whole = maps.iter().all(Operand::is_contiguous) && (first.samples() <= 1 || first.sample().is_multiple_of(8));
    let (rows, len) = if whole { (1, first.elements()) } else { (first.rows(), first.row()) };
    // Rows that are pixels must fill their bytes; those that are samples have bytes of their own.
    if rows > first.samples().max(1) && !len.is_multiple_of(8) || !maps.iter().all(|map| in_packs(map, rows)) {
        return None;
    }
    let lanes = lanes(first.ty);
    Some(Walk { rows, len, lanes, packs: len.div_ceil(8) * (8 / lanes) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vdnn_tensor::{DType, Layout, MemoryOrder, TensorType};

    #[test]
    fn masks_of_pixels_are_whole_bytes() {
        let layout = Layout { order: MemoryOrder::Nhwc, channel_padding: 0 };
        let half = |c: u64| TensorType { layout, ..TensorType::new([2, c, 3, 3], DType::BF16) };
        let (even, odd) = (half(16), half(12));
        let slice = |ty, stride| Operand { ty, address: 4096, row_stride: stride };
        let rows = |ty, stride| packed(&[slice(ty, stride), slice(ty, stride)]).map(|walk| (walk.rows, walk.packs));
        assert_eq!(rows(&even, 16), Some((1, 36)));
        assert_eq!(rows(&even, 48), Some((18, 2)));
        assert_eq!(rows(&even, 20), None);
        assert_eq!(rows(&odd, 12), None, "108 elements of a sample end within a byte");
        assert_eq!(rows(&odd, 16), None);
        let f32s = TensorType::new([2, 3, 5, 7], DType::F32);
        assert_eq!(rows(&f32s, 112), Some((2, 28)));
    }
}
