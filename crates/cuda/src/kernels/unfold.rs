//! Unfolding from NCHW order into channels innermost, and its gradient.

use super::elementwise::address_and_stride;
use super::plan::{KernelArg, KernelLaunch, LaunchPlan, THREADS, at_most, divisor, lanes};
use super::{KernelError, Operand, file_of, files, operands};
use KernelArg::U32;
use vdnn_graph::op::{Unfold, UnfoldGrad};
use vdnn_tensor::{DType, MemoryOrder};

const FILES: [&str; 3] = files!("unfold");
/// Numbers of X in shared memory: `TILE_ELEMENTS` in `unfold.cu`.
const TILE: u64 = 9216;
/// Channels of Y, whose places are in shared memory too: `MOST_PLACES` in `unfold.cu`.
const PLACES: u64 = 2048;
/// Rows of Y that a block makes at most.
const HIGHEST: u64 = 4;
/// Numbers in kernels stay below this.
const LIMIT: u64 = (1 << 31) - 1;

/// (X) → Y.
pub(super) fn prepare(op: &Unfold, inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let name = "unfold";
    let ([x], [y]) = (operands(name, inputs)?, operands(name, outputs)?);
    check(name, &x, &y)?;
    if y.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let stored = u64::from(at_most(name, "what a pixel of Y holds, with padding", y.row(), PLACES)?);
    let wide = lanes(y.ty);
    let packed = y.address.is_multiple_of(16) && y.row_stride.is_multiple_of(wide) && stored.is_multiple_of(wide);
    let lanes = if packed { wide } else { 1 };
    let function = match (x.ty.dtype == DType::F32, packed) {
        (true, true) => "unfold_f32_packed",
        (true, false) => "unfold_f32_single",
        (false, true) => "unfold_packed",
        (false, false) => "unfold_single",
    };
    let taps = taps(name, op, &x)?;
    let ([rows, columns], packs) = (op.output, stored / lanes);
    let Strips { strip, span, high, tall } = Strips::of(op, x.ty.shape.dim(1))?;
    let (strips, bands) = (columns.div_ceil(strip), rows.div_ceil(high));
    let blocks = y.samples().saturating_mul(bands).saturating_mul(strips);
    at_most(name, "the number of rows", y.samples().saturating_mul(rows).saturating_mul(strips), LIMIT)?;
    let mut args = [address_and_stride(&x), address_and_stride(&y)].concat();
    args.extend([rows, columns].map(|v| U32(v as u32)));
    args.extend(taps);
    args.extend([packs, strip, span].map(|v| U32(v as u32)));
    args.extend([divisor(strips as u32), U32(strips as u32)]);
    args.extend([U32(high as u32), U32(bands as u32), divisor(bands as u32), U32(tall as u32)]);
    args.extend([tall, op.window[0], op.window[1], packs].map(|v| divisor(v as u32)));
    Ok(vec![KernelLaunch::new(name, file_of(y.ty.dtype, FILES), function, blocks, args)?].into())
}

/// How Y is cut: columns of a strip and what their windows see of a row of X; rows of a band and rows of X that their windows see.
#[derive(Debug, PartialEq, Eq)]
struct Strips {
    strip: u64,
    span: u64,
    high: u64,
    tall: u64,
}

impl Strips {
    /// Strips of equal width, as wide as shared memory allows, and bands as high as it allows then.
    fn of(op: &Unfold, channels: u64) -> Result<Self, KernelError> {
        let ([height, width], [down, right], [rows, columns]) = (op.window, op.stride, op.output);
        let lines = channels.saturating_mul(height);
        at_most("unfold", "what a window sees", lines.saturating_mul(width), TILE)?;
        let most = (TILE / lines.max(1) - width) / right + 1;
        let strip = columns.div_ceil(columns.div_ceil(most));
        let span = (strip - 1) * right + width;
        let tall = |high: u64| (high - 1).saturating_mul(down).saturating_add(height);
        let fits = |high: &u64| channels.saturating_mul(span).saturating_mul(tall(*high)) <= TILE;
        let high = (1..=HIGHEST.min(rows)).rev().find(fits).unwrap_or(1);
        Ok(Strips { strip, span, high, tall: tall(high) })
    }
}

/// (dY) → dX.
pub(super) fn prepare_grad(
    op: &UnfoldGrad,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let name = "unfold_grad";
    let ([dy], [dx]) = (operands(name, inputs)?, operands(name, outputs)?);
    check(name, &dx, &dy)?;
    if dx.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let function = if dx.ty.dtype == DType::F32 { "unfold_grad_f32" } else { "unfold_grad_same" };
    let total = at_most(name, "the number of elements", dx.elements(), LIMIT)?;
    let [h, w] = op.input.map(|v| v as u32);
    let mut args = [address_and_stride(&dy), address_and_stride(&dx)].concat();
    args.extend([U32(total), divisor(dx.sample() as u32), divisor(h * w), divisor(w)]);
    args.extend(op.unfold.output.map(|v| U32(v as u32)));
    args.extend(taps(name, &op.unfold, &dx)?);
    let blocks = u64::from(total).div_ceil(u64::from(THREADS));
    Ok(vec![KernelLaunch::new(name, file_of(dy.ty.dtype, FILES), function, blocks, args)?].into())
}

/// `TAPS` in `unfold.cu`.
fn taps(name: &'static str, op: &Unfold, x: &Operand<'_>) -> Result<Vec<KernelArg>, KernelError> {
    let [channels, h, w] = [1, 2, 3].map(|axis| x.ty.shape.dim(axis));
    let ends = |axis: usize| {
        let reach = op.output[axis].saturating_mul(op.stride[axis]);
        reach.saturating_add(op.window[axis]).saturating_add(op.padding[axis])
    };
    for what in [ends(0), ends(1), x.sample()] {
        at_most(name, "a place in a sample", what, LIMIT)?;
    }
    let pairs = [op.window, op.stride, op.padding].concat();
    Ok([channels, h, w].into_iter().chain(pairs).map(|v| U32(v as u32)).collect())
}

/// Checks that the map is in NCHW order, f32 or of the windows' type, and that they are these types with channels innermost.
fn check(op: &'static str, map: &Operand<'_>, windows: &Operand<'_>) -> Result<(), KernelError> {
    let refuse = |operand: &str, expected, found: &Operand<'_>| {
        Err(KernelError::Type { op, operand: operand.to_string(), expected, found: Box::new(found.ty.clone()) })
    };
    if windows.ty.layout.order != MemoryOrder::Nhwc {
        return refuse("the windows", "f32, f16 or bf16 in NHWC order", windows);
    }
    let dtype = map.ty.dtype;
    if dtype != DType::F32 && dtype != windows.ty.dtype || map.ty.layout != Default::default() {
        return refuse("the map", "unpadded f32, or the windows' type, in NCHW order", map);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_and_bands_fit_shared_memory_and_cover_a_map() {
        let of = |window, stride, channels, output| {
            let (layout, dtype) = (Default::default(), DType::BF16);
            let op = Unfold { window, stride, padding: [0; 2], output, dtype, layout };
            Strips::of(&op, channels)
        };
        let resnet = Strips { strip: 115, span: 230, high: 4, tall: 13 };
        assert_eq!(of([7, 2], [2, 2], 3, [112, 115]).unwrap(), resnet);
        assert_eq!(of([3, 1], [1, 1], 3, [224, 226]).unwrap(), Strips { strip: 226, span: 226, high: 4, tall: 6 });
        assert_eq!(of([3, 1], [1, 1], 3, [2, 226]).unwrap().high, 2, "no more rows than there are");
        let wide = of([7, 2], [2, 2], 3, [500, 1000]).unwrap();
        assert!(wide.span * 3 * wide.tall <= TILE && wide.strip.saturating_mul(7) >= 1000, "{wide:?}");
        assert!(of([90, 110], [1, 1], 1, [5, 5]).is_err());
    }
}
