//! Average pooling and its gradient. Half precision has channels innermost, f32 either order.

use super::nhwc::{Pixels, is_innermost};
use super::plan::{KernelArg, KernelLaunch, LaunchPlan, sample_len};
use super::window::{addresses, geometry, pixels, size};
use super::{KernelError, Operand, file_of, files, operands};
use vdnn_graph::op::{AvgPool2d, AvgPool2dGrad};

/// (X) → Y.
pub(super) fn prepare(
    op: &AvgPool2d,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let ([x], [y]) = (operands("avg_pool2d", inputs)?, operands("avg_pool2d", outputs)?);
    let inner = ["avg_pool2d_packed", "avg_pool2d_single"];
    launch("avg_pool2d", inner, op, [&x, &y], [&x, &y], &y)
}

/// (dY) → dX.
pub(super) fn prepare_grad(
    op: &AvgPool2dGrad,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let ([dy], [dx]) = (operands("avg_pool2d_grad", inputs)?, operands("avg_pool2d_grad", outputs)?);
    let inner = ["avg_pool2d_grad_packed", "avg_pool2d_grad_single"];
    launch("avg_pool2d_grad", inner, &op.pool, [&dy, &dx], [&dx, &dy], &dx)
}

/// Arguments are `operands` in order, functions for channels innermost `inner`; windows `y` slide over images `x`.
fn launch(
    name: &'static str,
    inner: [&'static str; 2],
    op: &AvgPool2d,
    operands: [&Operand<'_>; 2],
    [x, y]: [&Operand<'_>; 2],
    written: &Operand<'_>,
) -> Result<LaunchPlan, KernelError> {
    if written.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let maps = operands.map(|o| *o);
    let mut args = addresses(&maps);
    let (file, function, blocks) = if is_innermost(x.ty) {
        let walk = Pixels::of(name, written, &maps, true)?;
        args.extend(walk.args);
        (file_of(x.ty.dtype, files!("avg_pool2d_nhwc")), walk.pick(inner), walk.blocks)
    } else {
        sample_len(name, x)?;
        let walk = pixels(name, written)?;
        args.extend(walk.args);
        ("avg_pool2d.cu", name, walk.blocks)
    };
    args.extend(geometry(name, &op.window, size(x), size(y))?);
    args.push(KernelArg::U32(u32::from(op.count_include_pad)));
    Ok(vec![KernelLaunch::new(name, file, function, blocks, args)?].into())
}
