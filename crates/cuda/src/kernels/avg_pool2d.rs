//! Average pooling and its gradient.

use super::plan::{KernelArg, KernelLaunch, LaunchPlan, sample_len};
use super::window::{addresses, geometry, pixels, size};
use super::{KernelError, Operand, operands};
use vdnn_graph::op::{AvgPool2d, AvgPool2dGrad};

/// (X) → Y.
pub(super) fn prepare(
    op: &AvgPool2d,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let ([x], [y]) = (operands("avg_pool2d", inputs)?, operands("avg_pool2d", outputs)?);
    launch("avg_pool2d", op, [&x, &y], [&x, &y], &y)
}

/// (dY) → dX.
pub(super) fn prepare_grad(
    op: &AvgPool2dGrad,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let ([dy], [dx]) = (operands("avg_pool2d_grad", inputs)?, operands("avg_pool2d_grad", outputs)?);
    launch("avg_pool2d_grad", &op.pool, [&dy, &dx], [&dx, &dy], &dx)
}

/// Arguments are `operands` in order; windows `y` slide over images `x`.
fn launch(
    name: &'static str,
    op: &AvgPool2d,
    operands: [&Operand<'_>; 2],
    [x, y]: [&Operand<'_>; 2],
    written: &Operand<'_>,
) -> Result<LaunchPlan, KernelError> {
    if written.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    sample_len(name, x)?;
    let walk = pixels(name, written)?;
    let mut args = addresses(&operands.map(|o| *o));
    args.extend(walk.args);
    args.extend(geometry(name, &op.window, size(x), size(y))?);
    args.push(KernelArg::U32(u32::from(op.count_include_pad)));
    Ok(vec![KernelLaunch::new(name, "avg_pool2d.cu", name, walk.blocks, args)?].into())
}
