//! Convolution and its two gradients, by several algorithms with different workspace.
//!
//! | algorithm | how | workspace |
//! | --- | --- | --- |
//! | `direct` | plain loops | none |
//! | `tiles` | matrix products over tiles of some thousand output pixels | a few MiB |
//! | `im2col` | the same with all pixels of the batch at once | X, kernel-size times over |
//! | `winograd` | F(2×2, 3×3), for 3×3 kernels of stride 1 | some MiB and W, 16/9 times |
//!
//! Each is deterministic and gives the same bits on any number of threads; the algorithms differ in the last bits.

mod columns;
mod direct;
mod geometry;
mod transform;
mod winograd;

use super::choices::Algorithm;
use super::launch::Launch;
use super::real::Real;
use crate::DeviceError;
use columns::Columns;
use geometry::Geometry;
use vdnn_graph::Op;
use vdnn_graph::op::{Conv2d, Conv2dDataGrad, Conv2dWeightGrad};
use vdnn_tensor::TensorType;
use winograd::Winograd;

const DIRECT: &str = "direct";
const TILES: &str = "tiles";
const IM2COL: &str = "im2col";
const WINOGRAD: &str = "winograd";

/// The algorithms of a convolution op.
pub(super) fn algorithms(op: &Op, inputs: &[TensorType], outputs: &[TensorType]) -> Vec<Algorithm> {
    let g = match op {
        Op::Conv2dDataGrad(op) => Geometry::new(&op.conv, &outputs[0], &inputs[1], &inputs[0]),
        Op::Conv2dWeightGrad(op) => Geometry::new(&op.conv, &inputs[0], &outputs[0], &inputs[1]),
        Op::Conv2d(op) => Geometry::new(op, &inputs[0], &inputs[1], &outputs[0]),
        _ => return Vec::new(),
    };
    let size = outputs[0].dtype.size();
    // A product of few rows reaches a small share of the rate.
    let share = (g.k_group() as f64 / 32.0).min(1.0) * (g.depth() as f64 / 32.0).min(1.0);
    let product = |name, columns: Columns, efficiency, passes| {
        let workspace = columns.scratch(&g) as u64 * size;
        Algorithm { name, workspace, work: 1.0, efficiency: efficiency * share, passes }
    };
    let mut algorithms = vec![
        product(TILES, Columns::tiles(&g), 0.75, 1.5),
        product(IM2COL, Columns::all(&g), 0.7, 2.0),
        Algorithm { name: DIRECT, workspace: 0, work: 1.0, efficiency: 0.02, passes: 1.0 },
    ];
    if Winograd::fits(&g) {
        let winograd = match op {
            Op::Conv2dDataGrad(_) => Winograd::data_grad_of(&g),
            _ => Winograd::forward_of(&g),
        };
        let share = (g.k.min(g.c) as f64 / 64.0).min(1.0);
        let workspace = winograd.scratch() as u64 * size;
        algorithms.push(Algorithm { name: WINOGRAD, workspace, work: 4.0 / 9.0, efficiency: 0.5 * share, passes: 4.0 });
    }
    algorithms
}

/// (X, W, bias?) → Y.
pub(super) fn forward<T: Real>(op: &Conv2d, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let g = Geometry::of_forward(op, &launch);
    let (x, w) = (launch.input::<T>(0)?, launch.input::<T>(1)?);
    let bias = (launch.inputs.len() > 2).then(|| launch.input::<T>(2)).transpose()?;
    let y = launch.output::<T>(0)?;
    if is_winograd(&g, &launch) {
        let winograd = Winograd::forward_of(&g);
        winograd.convolve(x, w, bias, false, y, launch.scratch(winograd.scratch())?);
        return Ok(());
    }
    match columns(&g, &launch)? {
        Some(columns) => columns.forward(&g, x, w, bias, y, launch.scratch(columns.scratch(&g))?),
        None => direct::forward(&g, x, w, bias, y),
    }
    Ok(())
}

/// (dY, W) → dX.
pub(super) fn data_grad<T: Real>(op: &Conv2dDataGrad, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let g = Geometry::new(&op.conv, &launch.output_types[0], &launch.input_types[1], &launch.input_types[0]);
    let (dy, w) = (launch.input::<T>(0)?, launch.input::<T>(1)?);
    let dx = launch.output::<T>(0)?;
    if is_winograd(&g, &launch) {
        let winograd = Winograd::data_grad_of(&g);
        winograd.convolve(dy, w, None, true, dx, launch.scratch(winograd.scratch())?);
        return Ok(());
    }
    match columns(&g, &launch)? {
        Some(columns) => columns.data_grad(&g, dy, w, dx, launch.scratch(columns.scratch(&g))?),
        None => direct::data_grad(&g, dy, w, dx),
    }
    Ok(())
}

/// (X, dY) → dW; all zero for an empty batch.
pub(super) fn weight_grad<T: Real>(op: &Conv2dWeightGrad, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let g = Geometry::new(&op.conv, &launch.input_types[0], &launch.output_types[0], &launch.input_types[1]);
    let (x, dy) = (launch.input::<T>(0)?, launch.input::<T>(1)?);
    let dw = launch.output::<T>(0)?;
    if is_winograd(&g, &launch) {
        let winograd = Winograd::forward_of(&g);
        winograd.weight_grad(x, dy, dw, launch.scratch(winograd.scratch())?);
        return Ok(());
    }
    match columns(&g, &launch)? {
        Some(columns) => columns.weight_grad(&g, x, dy, dw, launch.scratch(columns.scratch(&g))?),
        None => direct::weight_grad(&g, x, dy, dw),
    }
    Ok(())
}

fn is_winograd(g: &Geometry, launch: &Launch<'_>) -> bool {
    launch.algorithm == WINOGRAD && Winograd::fits(g)
}

/// The tiling of a launch's algorithm; `None` for the plain loops.
fn columns(g: &Geometry, launch: &Launch<'_>) -> Result<Option<Columns>, DeviceError> {
    match launch.algorithm {
        TILES => Ok(Some(Columns::tiles(g))),
        IM2COL => Ok(Some(Columns::all(g))),
        DIRECT => Ok(None),
        _ => {
            Err(launch
                .refuse(format!("expected {DIRECT}, {TILES}, {IM2COL} or, for 3x3 kernels of stride 1, {WINOGRAD}")))
        }
    }
}
