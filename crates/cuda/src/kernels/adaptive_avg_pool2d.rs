//! Adaptive average pooling and its gradient. Half precision has channels innermost, f32 either order.

use super::nhwc::{Pixels, is_innermost};
use super::plan::{KernelArg, KernelLaunch, LaunchPlan, THREADS, at_most, sample_len};
use super::window::{addresses, pixels, size};
use super::{KernelError, Operand, file_of, files, operands};

const FILE: &str = "adaptive_avg_pool2d.cu";
const NHWC: [&str; 3] = files!("adaptive_avg_pool2d_nhwc");
/// Regions of more pixels than this are summed by a warp each.
const LARGE_REGION: u64 = 16;
/// The longest side of a map with channels innermost.
const SIDE_LIMIT: u64 = (1 << 15) - 1;

/// (X) → Y.
pub(super) fn prepare(inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let name = "adaptive_avg_pool2d";
    let ([x], [y]) = (operands(name, inputs)?, operands(name, outputs)?);
    if y.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    if is_innermost(x.ty) {
        return nhwc(name, ["adaptive_avg_pool2d_packed", "adaptive_avg_pool2d_single"], [x, y], [&x, &y], size(&y));
    }
    sample_len(name, &x)?;
    let mut walk = pixels(name, &y)?;
    let ([h, w], [oh, ow]) = (size(&x), size(&y));
    let large = h.div_ceil(oh) * w.div_ceil(ow) > LARGE_REGION;
    if large {
        let tiles = y.sample().div_ceil(u64::from(THREADS / 32));
        walk.args[1] = KernelArg::U32(tiles as u32);
        walk.blocks = y.samples() * tiles;
    }
    let sizes = [h, w, oh, ow].map(|v| KernelArg::U32(v as u32));
    let args = [&addresses(&[x, y])[..], &walk.args, &sizes].concat();
    let function = if large { "adaptive_avg_pool2d_warp" } else { name };
    Ok(vec![KernelLaunch::new(name, FILE, function, walk.blocks, args)?].into())
}

/// (dY) → dX.
pub(super) fn prepare_grad(inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let name = "adaptive_avg_pool2d_grad";
    let ([dy], [dx]) = (operands(name, inputs)?, operands(name, outputs)?);
    if dx.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    if is_innermost(dx.ty) {
        let functions = match size(&dy) {
            [1, 1] => ["adaptive_avg_pool2d_spread_packed", "adaptive_avg_pool2d_spread_single"],
            _ => ["adaptive_avg_pool2d_grad_packed", "adaptive_avg_pool2d_grad_single"],
        };
        // Where an image is one region, a thread writes a row of pixels.
        let [h, w] = size(&dx);
        return nhwc(name, functions, [dy, dx], [&dx, &dy], if size(&dy) == [1, 1] { [h, 1] } else { [h, w] });
    }
    sample_len(name, &dy)?;
    let walk = pixels(name, &dx)?;
    let ([h, w], [oh, ow]) = (size(&dx), size(&dy));
    let sizes = [h, w, oh, ow].map(|v| KernelArg::U32(v as u32));
    let args = [&addresses(&[dy, dx])[..], &walk.args, &sizes].concat();
    Ok(vec![KernelLaunch::new(name, FILE, name, walk.blocks, args)?].into())
}

/// Regions `y` of images `x`, channels innermost; a thread each of so many rows and columns.
fn nhwc(
    name: &'static str,
    functions: [&'static str; 2],
    maps: [Operand<'_>; 2],
    [x, y]: [&Operand<'_>; 2],
    walked: [u64; 2],
) -> Result<LaunchPlan, KernelError> {
    let sizes = [size(x), size(y)].concat();
    for &side in &sizes {
        at_most(name, "a side of its maps", side, SIDE_LIMIT)?;
    }
    let walk = Pixels::over(name, x.samples(), walked, &maps, true)?;
    let sizes = sizes.into_iter().map(|v| KernelArg::U32(v as u32));
    let mut args = addresses(&maps);
    args.extend(walk.args);
    args.extend(sizes);
    let file = file_of(x.ty.dtype, NHWC);
    Ok(vec![KernelLaunch::new(name, file, walk.pick(functions), walk.blocks, args)?].into())
}
