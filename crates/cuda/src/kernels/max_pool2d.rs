//! Max pooling and its gradient, from X and Y or from indices.

use super::plan::{KernelLaunch, LaunchPlan};
use super::window::{addresses, geometry, pixels, size};
use super::{KernelError, Operand, operands};
use vdnn_graph::op::{MaxPool2d, MaxPool2dIndicesGrad, Window};

/// The kernel with the window's size built in, if there is one.
fn pick(window: &Window, any: &'static str, k2s2: &'static str, k3s2: &'static str) -> &'static str {
    match (window.kernel, window.stride, window.dilation) {
        ([2, 2], [2, 2], [1, 1]) => k2s2,
        ([3, 3], [2, 2], [1, 1]) => k3s2,
        _ => any,
    }
}

/// (X) → Y.
pub(super) fn prepare(
    op: &MaxPool2d,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let name = "max_pool2d";
    let ([x], [y]) = (operands(name, inputs)?, operands(name, outputs)?);
    let function = pick(&op.window, name, "max_pool2d_k2s2", "max_pool2d_k3s2");
    launch(name, function, &op.window, &[x, y], [&x, &y, &y])
}

/// (X, Y, dY) → dX.
pub(super) fn prepare_grad(
    op: &MaxPool2d,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let name = "max_pool2d_grad";
    let ([x, y, dy], [dx]) = (operands(name, inputs)?, operands(name, outputs)?);
    let function = pick(&op.window, name, "max_pool2d_grad_k2s2", "max_pool2d_grad_k3s2");
    launch(name, function, &op.window, &[x, y, dy, dx], [&x, &y, &dx])
}

/// (X) → Y, indices.
pub(super) fn prepare_indices(
    op: &MaxPool2d,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let name = "max_pool2d_indices";
    let ([x], [y, indices]) = (operands(name, inputs)?, operands(name, outputs)?);
    let function = pick(&op.window, name, "max_pool2d_indices_k2s2", "max_pool2d_indices_k3s2");
    launch(name, function, &op.window, &[x, y, indices], [&x, &y, &y])
}

/// (indices, dY) → dX.
pub(super) fn prepare_indices_grad(
    op: &MaxPool2dIndicesGrad,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let (name, window) = ("max_pool2d_indices_grad", &op.pool.window);
    let ([indices, dy], [dx]) = (operands(name, inputs)?, operands(name, outputs)?);
    let function = pick(window, name, "max_pool2d_indices_grad_k2s2", "max_pool2d_indices_grad_k3s2");
    launch(name, function, window, &[indices, dy, dx], [&dx, &dy, &dx])
}

/// A walk over `written` with the geometry of windows `y` over images `x`.
fn launch(
    name: &'static str,
    function: &'static str,
    window: &Window,
    all: &[Operand<'_>],
    [x, y, written]: [&Operand<'_>; 3],
) -> Result<LaunchPlan, KernelError> {
    if written.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    super::plan::sample_len(name, x)?;
    let walk = pixels(name, written)?;
    let args = [&addresses(all)[..], &walk.args, &geometry(name, window, size(x), size(y))?].concat();
    Ok(vec![KernelLaunch::new(name, "max_pool2d.cu", function, walk.blocks, args)?].into())
}
