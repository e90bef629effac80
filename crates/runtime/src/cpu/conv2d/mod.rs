//! Convolution and its two gradients, by several algorithms with different workspace.
//!
//! | algorithm | how | workspace |
//! | --- | --- | --- |
//! | `direct` | plain loops | none |
//! | `tiles` | matrix products over tiles of some thousand output pixels | a few MiB |
//! | `im2col` | the same with all pixels of the batch at once | X, kernel-size times over |
//! | `winograd2` | F(2×2, 3×3), for 3×3 kernels of stride 1 | some MiB and W, 16/9 times |
//! | `winograd4` | F(4×4, 3×3), likewise | some MiB and W, 4 times |
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
use winograd::{Winograd2, Winograd4};

const DIRECT: &str = "direct";
const TILES: &str = "tiles";
const IM2COL: &str = "im2col";
const WINOGRAD2: &str = "winograd2";
const WINOGRAD4: &str = "winograd4";

/// An algorithm for one geometry.
enum Method {
    Direct,
    Columns(Columns),
    Winograd2,
    Winograd4,
}

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
    let product = |name, columns: Columns, efficiency, passes| Algorithm {
        workspace: columns.scratch(&g) as u64 * size,
        efficiency: efficiency * share,
        passes,
        ..Algorithm::plain(name)
    };
    let mut algorithms = vec![
        product(TILES, Columns::tiles(&g), 0.75, 1.5),
        product(IM2COL, Columns::all(&g), 0.7, 2.0),
        Algorithm { efficiency: 0.02, ..Algorithm::plain(DIRECT) },
    ];
    if winograd::fits(&g) {
        let turned = matches!(op, Op::Conv2dDataGrad(_));
        let of = |name, work, weights: usize, scratch: usize| Algorithm {
            workspace: scratch as u64 * size,
            work,
            efficiency: 0.65 * (g.k.min(g.c) as f64 / 64.0).min(1.0),
            passes: 3.0,
            extra_bytes: (3 * weights as u64 * size) as f64,
            ..Algorithm::plain(name)
        };
        let two = if turned { Winograd2::data_grad_of(&g) } else { Winograd2::forward_of(&g) };
        let four = if turned { Winograd4::data_grad_of(&g) } else { Winograd4::forward_of(&g) };
        algorithms.push(of(WINOGRAD2, two.work(), two.weights(), two.scratch()));
        algorithms.push(of(WINOGRAD4, four.work(), four.weights(), four.scratch()));
    }
    algorithms
}

/// (X, W, bias?) → Y.
pub(super) fn forward<T: Real>(op: &Conv2d, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let g = Geometry::of_forward(op, &launch);
    let (x, w) = (launch.input::<T>(0)?, launch.input::<T>(1)?);
    let bias = (launch.inputs.len() > 2).then(|| launch.input::<T>(2)).transpose()?;
    let y = launch.output::<T>(0)?;
    match method(&g, &launch)? {
        Method::Direct => direct::forward(&g, x, w, bias, y),
        Method::Columns(columns) => columns.forward(&g, x, w, bias, y, launch.scratch(columns.scratch(&g))?),
        Method::Winograd2 => {
            let winograd = Winograd2::forward_of(&g);
            winograd.convolve(x, w, bias, false, y, launch.scratch(winograd.scratch())?);
        }
        Method::Winograd4 => {
            let winograd = Winograd4::forward_of(&g);
            winograd.convolve(x, w, bias, false, y, launch.scratch(winograd.scratch())?);
        }
    }
    Ok(())
}

/// (dY, W) → dX.
pub(super) fn data_grad<T: Real>(op: &Conv2dDataGrad, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let g = Geometry::new(&op.conv, &launch.output_types[0], &launch.input_types[1], &launch.input_types[0]);
    let (dy, w) = (launch.input::<T>(0)?, launch.input::<T>(1)?);
    let dx = launch.output::<T>(0)?;
    match method(&g, &launch)? {
        Method::Direct => direct::data_grad(&g, dy, w, dx),
        Method::Columns(columns) => columns.data_grad(&g, dy, w, dx, launch.scratch(columns.scratch(&g))?),
        Method::Winograd2 => {
            let winograd = Winograd2::data_grad_of(&g);
            winograd.convolve(dy, w, None, true, dx, launch.scratch(winograd.scratch())?);
        }
        Method::Winograd4 => {
            let winograd = Winograd4::data_grad_of(&g);
            winograd.convolve(dy, w, None, true, dx, launch.scratch(winograd.scratch())?);
        }
    }
    Ok(())
}

/// (X, dY) → dW; all zero for an empty batch.
pub(super) fn weight_grad<T: Real>(op: &Conv2dWeightGrad, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let g = Geometry::new(&op.conv, &launch.input_types[0], &launch.output_types[0], &launch.input_types[1]);
    let (x, dy) = (launch.input::<T>(0)?, launch.input::<T>(1)?);
    let dw = launch.output::<T>(0)?;
    match method(&g, &launch)? {
        Method::Direct => direct::weight_grad(&g, x, dy, dw),
        Method::Columns(columns) => columns.weight_grad(&g, x, dy, dw, launch.scratch(columns.scratch(&g))?),
        Method::Winograd2 => {
            let winograd = Winograd2::forward_of(&g);
            winograd.weight_grad(x, dy, dw, launch.scratch(winograd.scratch())?);
        }
        Method::Winograd4 => {
            let winograd = Winograd4::forward_of(&g);
            winograd.weight_grad(x, dy, dw, launch.scratch(winograd.scratch())?);
        }
    }
    Ok(())
}

/// What a launch's algorithm names.
fn method(g: &Geometry, launch: &Launch<'_>) -> Result<Method, DeviceError> {
    match launch.algorithm {
        DIRECT => Ok(Method::Direct),
        TILES => Ok(Method::Columns(Columns::tiles(g))),
        IM2COL => Ok(Method::Columns(Columns::all(g))),
        WINOGRAD2 if winograd::fits(g) => Ok(Method::Winograd2),
        WINOGRAD4 if winograd::fits(g) => Ok(Method::Winograd4),
        _ => Err(launch.refuse(format!(
            "expected {DIRECT}, {TILES}, {IM2COL} or, for 3x3 kernels of stride 1, {WINOGRAD2} or {WINOGRAD4}"
        ))),
    }
}
