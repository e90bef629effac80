//! Adaptive average pooling and its gradient.

use super::plan::{KernelArg, KernelLaunch, LaunchPlan, THREADS, sample_len};
use super::window::{addresses, pixels, size};
use super::{KernelError, Operand, operands};

const FILE: &str = "adaptive_avg_pool2d.cu";
/// Regions of more pixels than this are summed by a warp each.
const LARGE_REGION: u64 = 16;

/// (X) → Y.
pub(super) fn prepare(inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> Result<LaunchPlan, KernelError> {
    let name = "adaptive_avg_pool2d";
    let ([x], [y]) = (operands(name, inputs)?, operands(name, outputs)?);
    if y.elements() == 0 {
        return Ok(LaunchPlan::default());
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
    sample_len(name, &dy)?;
    let walk = pixels(name, &dx)?;
    let ([h, w], [oh, ow]) = (size(&dx), size(&dy));
    let sizes = [h, w, oh, ow].map(|v| KernelArg::U32(v as u32));
    let args = [&addresses(&[dy, dx])[..], &walk.args, &sizes].concat();
    Ok(vec![KernelLaunch::new(name, FILE, name, walk.blocks, args)?].into())
}
