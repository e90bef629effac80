//! Casts: between f32 and half precision or within a type, between NCHW and NHWC order, with or without channel padding.

use super::elementwise::address_and_stride;
use super::plan::{KernelArg, KernelLaunch, LaunchPlan, SAMPLE_LIMIT, THREADS, at_most, divisor};
use super::table::{Table, Turning};
use super::{KernelError, Operand, file_of, files, operands};
use KernelArg::{U32, U64};
use std::collections::BTreeMap;
use vdnn_tensor::{DType, Layout, MemoryOrder};

const OP: &str = "cast";
const FILES: [&str; 3] = files!("cast");
/// Elements of a tile that is turned in shared memory. `TILE_ELEMENTS` in `cast.cu`.
const TILE: u64 = 2048;
/// Elements that a thread casts at once.
const LANES: u64 = 8;

/// Names of a cast's functions by what it does: elements, packs; padding; turned, turned in packs.
struct Functions {
    rows: [&'static str; 2],
    padded: &'static str,
    nhwc: [&'static str; 2],
    nchw: [&'static str; 2],
}

macro_rules! functions {
    ($kind:literal) => {
        Functions {
            rows: [concat!("cast_", $kind, "_packed"), concat!("cast_", $kind, "_single")],
            padded: concat!("cast_", $kind, "_padded"),
            nhwc: [concat!("cast_", $kind, "_nhwc_packed"), concat!("cast_", $kind, "_nhwc_single")],
            nchw: [concat!("cast_", $kind, "_nchw_packed"), concat!("cast_", $kind, "_nchw_single")],
        }
    };
}

/// (X) → the same in another type.
pub(super) fn prepare(inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let ([x], [y]) = (operands(OP, inputs)?, operands(OP, outputs)?);
    let (functions, file) = match (x.ty.dtype, y.ty.dtype) {
        (DType::F32, to) if to.is_half() => (functions!("to"), file_of(to, FILES)),
        (from, DType::F32) if from.is_half() => (functions!("from"), file_of(from, FILES)),
        (from, to) if from == to && (from.is_half() || from == DType::F32) => (functions!("move"), file_of(to, FILES)),
        _ => return Err(refused(&x, &y)),
    };
    if y.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let (function, blocks, further) = further(&functions, &x, &y)?;
    let args = [&address_and_stride(&x)[..], &address_and_stride(&y), &further].concat();
    Ok(vec![KernelLaunch::new(OP, file, function, blocks, args)?].into())
}

/// (X) → the same in another type or order, of many f32 weights: one launch where both sides are in one piece, else one each.
pub(super) fn prepare_many<'a>(
    members: impl Iterator<Item = (&'a [Operand<'a>], &'a [Operand<'a>])>,
) -> Result<LaunchPlan, KernelError> {
    let mut launches = Vec::new();
    let mut tables = BTreeMap::<&'static str, Vec<([u64; 9], u64)>>::new();
    for (inputs, outputs) in members {
        let ([x], [y]) = (operands(OP, inputs)?, operands(OP, outputs)?);
        match member(&x, &y) {
            Some(member) => tables.entry(file_of(y.ty.dtype, FILES)).or_default().push(member),
            None => launches.extend(prepare(inputs, outputs)?.launches),
        }
    }
    for (file, members) in tables {
        for table in Table::cut(members.into_iter()) {
            launches.push(KernelLaunch::new(OP, file, "cast_weights", table.blocks, table.args())?);
        }
    }
    Ok(launches.into())
}

/// A weight's share of the table, `Member` in `cast.cu`; `None` for what that kernel does not take.
fn member(x: &Operand<'_>, y: &Operand<'_>) -> Option<([u64; 9], u64)> {
    let [channels, pixels] = extents(x);
    let len = y.ty.stored_elements();
    let plain = x.ty.layout == Layout::default() && x.is_contiguous() && y.is_contiguous() && len <= SAMPLE_LIMIT;
    if !plain || x.ty.dtype != DType::F32 || !(y.ty.dtype.is_half() || y.ty.dtype == DType::F32) {
        return None;
    }
    let (padding, nhwc) = (u64::from(y.ty.layout.channel_padding), y.ty.layout.order == MemoryOrder::Nhwc);
    let turning = match (nhwc, padding) {
        (true, 0) if pixels > 1 && x.address.is_multiple_of(16) => Turning::of(channels, pixels, y),
        (true, _) if pixels > 1 || padding > 0 => Turning::of(channels, pixels, y).untiled(),
        (_, 0) => Turning::default(),
        _ => return None,
    };
    let [a, b, c, d, e] = turning.words;
    Some(([x.address, y.address, len, channels + padding, a, b, c, d, e], turning.blocks(len)))
}

fn refused(x: &Operand<'_>, y: &Operand<'_>) -> KernelError {
    KernelError::Cast { from: Box::new(x.ty.clone()), to: Box::new(y.ty.clone()) }
}

type Call = (&'static str, u64, Vec<KernelArg>);

/// Function, blocks and what follows the operands.
fn further(functions: &Functions, x: &Operand<'_>, y: &Operand<'_>) -> Result<Call, KernelError> {
    let orders = [x, y].map(|o| o.ty.layout.order);
    // Without pixels, or with one channel, both orders are one.
    let [channels, pixels] = extents(x);
    let padded = [x, y].map(|o| o.ty.layout.channel_padding);
    let alike = padded == [0, 0] && (channels == 1 || pixels == 1) && x.is_contiguous() && y.is_contiguous();
    match orders {
        [from, to] if alike || from == to && padded[0] == padded[1] => rows(functions.rows, x, y),
        [MemoryOrder::Nhwc, MemoryOrder::Nhwc] => {
            let total = y.rows() * y.row();
            let sizes = [channels, y.row()].map(|v| U32(v as u32));
            Ok((functions.padded, total.div_ceil(u64::from(THREADS)), [&[U64(total)], &sizes[..]].concat()))
        }
        [MemoryOrder::Nchw, MemoryOrder::Nhwc] if padded[0] == 0 => turned(functions.nhwc, x, y, y),
        [MemoryOrder::Nhwc, MemoryOrder::Nchw] if padded[1] == 0 => turned(functions.nchw, x, y, x),
        _ => Err(refused(x, y)),
    }
}

/// [channels, pixels]; of other ranks one pixel.
fn extents(x: &Operand<'_>) -> [u64; 2] {
    x.ty.shape.nchw().map_or([x.sample(), 1], |[_, c, h, w]| [c, h * w])
}

fn rows(functions: [&'static str; 2], x: &Operand<'_>, y: &Operand<'_>) -> Result<Call, KernelError> {
    let whole = x.is_contiguous() && y.is_contiguous();
    let (rows, len) = if whole { (1, x.ty.stored_elements()) } else { (x.rows(), x.row()) };
    let aligned = |o: &Operand<'_>| o.address.is_multiple_of(16) && (rows == 1 || o.row_stride.is_multiple_of(LANES));
    let (lanes, function) = if aligned(x) && aligned(y) { (LANES, functions[0]) } else { (1, functions[1]) };
    let packs = len.div_ceil(lanes);
    let total = at_most(OP, "the number of packs", rows.saturating_mul(packs), (1 << 31) - 1)?;
    let walk = vec![U64(len), U32(packs as u32), divisor(packs as u32), U32(total)];
    Ok((function, u64::from(total).div_ceil(u64::from(THREADS) * 4), walk))
}

/// Between orders; `innermost` is the operand whose channels are innermost.
fn turned(
    functions: [&'static str; 2],
    x: &Operand<'_>,
    y: &Operand<'_>,
    innermost: &Operand<'_>,
) -> Result<Call, KernelError> {
    let ([channels, pixels], stored) = (extents(x), innermost.row());
    let limit = (1 << 31) - 1;
    at_most(OP, "one sample's elements", x.sample().max(y.sample()).max(stored * pixels), limit)?;
    let wide = [x, y].iter().all(|o| o.address.is_multiple_of(16))
        && innermost.row_stride.is_multiple_of(LANES)
        && stored.is_multiple_of(LANES);
    let (lanes, function) = if wide { (LANES, functions[0]) } else { (1, functions[1]) };
    let [tc, tp] = tile(stored, pixels);
    let (across, down) = (stored.div_ceil(tc), pixels.div_ceil(tp));
    let sizes = [channels, stored, pixels, tc, tp].map(|v| U32(v as u32));
    let divisors = [divisor(tp as u32), divisor((tc / lanes) as u32)];
    let counts = [across, down].map(|v| U32(v as u32));
    Ok((function, x.samples() * across * down, [&sizes[..], &divisors, &counts].concat()))
}

/// Channels and pixels of a tile: at least 32 channels, if there are, to read and write them in lines; many pixels for the same
/// reason; more channels where pixels are few. Channels are a power of two from eight on.
fn tile(stored: u64, pixels: u64) -> [u64; 2] {
    let most = stored.next_power_of_two().clamp(LANES, TILE);
    let mut tc = most.min(32);
    let tp = pixels.min(TILE / tc);
    while tc < most && 2 * tc * tp <= TILE {
        tc *= 2;
    }
    [tc, tp]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fit_shared_memory_and_suit_images_and_filters() {
        assert_eq!(tile(8, 224 * 224), [8, 256]);
        assert_eq!(tile(512, 9), [128, 9]);
        assert_eq!(tile(512, 49), [32, 49]);
        assert_eq!(tile(64, 56 * 56), [32, 64]);
        assert_eq!(tile(3, 2), [8, 2]);
        for (stored, pixels) in [(1, 1), (3, 7), (2048, 1), (5000, 2), (13, 1000)] {
            let [tc, tp] = tile(stored, pixels);
            assert!(tc * (tp | 1) <= 2 * TILE && tp >= 1 && tc.is_multiple_of(LANES), "{tc} {tp}");
        }
    }
}
