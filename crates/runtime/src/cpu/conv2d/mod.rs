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
//!
//! `im2col/4` is `im2col` in four pieces of the batch, one after the other in the same scratch memory. What is made for each
//! sample by itself has the same bits in any number of pieces; the weight gradient adds its pieces up in order.

mod columns;
mod direct;
mod geometry;
mod transform;
mod winograd;

use super::choices::Algorithm;
use super::launch::Launch;
use super::real::Real;
use crate::{DeviceError, ViewMut};
use columns::Columns;
use geometry::Geometry;
use vdnn_graph::Op;
use vdnn_graph::op::{Conv2d, Conv2dDataGrad, Conv2dWeightGrad};
use vdnn_schedule::split_pieces;
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
    Winograd2(Winograd2),
    Winograd4(Winograd4),
}

/// The algorithms of a convolution op.
pub(super) fn algorithms(op: &Op, inputs: &[TensorType], outputs: &[TensorType]) -> Vec<Algorithm> {
    let g = match op {
        Op::Conv2dDataGrad(op) => Geometry::new(&op.conv, &outputs[0], &inputs[1], &inputs[0]),
        Op::Conv2dWeightGrad(op) => Geometry::new(&op.conv, &inputs[0], &outputs[0], &inputs[1]),
        Op::Conv2d(op) | Op::Conv2dRelu(op) => Geometry::new(op, &inputs[0], &inputs[1], &outputs[0]),
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
        let (two, four) = (Winograd2::of(&g, turned), Winograd4::of(&g, turned));
        algorithms.push(of(WINOGRAD2, two.work(), two.weights(), two.scratch()));
        algorithms.push(of(WINOGRAD4, four.work(), four.weights(), four.scratch()));
    }
    algorithms
}

/// (X, W, bias?) → Y.
pub(super) fn forward<T: Real>(op: &Conv2d, launch: Launch<'_>) -> Result<(), DeviceError> {
    convolved::<T>(op, launch).map(|_| ())
}

/// The output, once it holds X ∗ W + bias.
pub(super) fn convolved<'a, T: Real>(op: &Conv2d, mut launch: Launch<'a>) -> Result<ViewMut<'a, T>, DeviceError> {
    let Plan { g, method, pieces } = plan(Geometry::of_forward(op, &launch), false, &launch)?;
    let (x, w) = (launch.input::<T>(0)?, launch.input::<T>(1)?);
    let bias = (launch.inputs.len() > 2).then(|| launch.input::<T>(2)).transpose()?;
    let mut y = launch.output::<T>(0)?;
    let scratch = launch.scratch(method.scratch(&g))?;
    for piece in 0..pieces {
        let (x, y) = (x.piece(piece, pieces), y.piece(piece, pieces));
        match &method {
            Method::Direct => direct::forward(&g, x, w, bias, y),
            Method::Columns(columns) => columns.forward(&g, x, w, bias, y, scratch),
            Method::Winograd2(winograd) => winograd.convolve(x, w, bias, false, y, scratch),
            Method::Winograd4(winograd) => winograd.convolve(x, w, bias, false, y, scratch),
        }
    }
    Ok(y)
}

/// (dY, W) → dX.
pub(super) fn data_grad<T: Real>(op: &Conv2dDataGrad, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let g = Geometry::new(&op.conv, &launch.output_types[0], &launch.input_types[1], &launch.input_types[0]);
    let Plan { g, method, pieces } = plan(g, true, &launch)?;
    let (dy, w) = (launch.input::<T>(0)?, launch.input::<T>(1)?);
    let mut dx = launch.output::<T>(0)?;
    let scratch = launch.scratch(method.scratch(&g))?;
    for piece in 0..pieces {
        let (dy, dx) = (dy.piece(piece, pieces), dx.piece(piece, pieces));
        match &method {
            Method::Direct => direct::data_grad(&g, dy, w, dx),
            Method::Columns(columns) => columns.data_grad(&g, dy, w, dx, scratch),
            Method::Winograd2(winograd) => winograd.convolve(dy, w, None, true, dx, scratch),
            Method::Winograd4(winograd) => winograd.convolve(dy, w, None, true, dx, scratch),
        }
    }
    Ok(())
}

/// (X, dY) → dW, the sum over pieces in order; all zero for an empty batch.
pub(super) fn weight_grad<T: Real>(op: &Conv2dWeightGrad, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let g = Geometry::new(&op.conv, &launch.input_types[0], &launch.output_types[0], &launch.input_types[1]);
    let Plan { g, method, pieces } = plan(g, false, &launch)?;
    let (x, dy) = (launch.input::<T>(0)?, launch.input::<T>(1)?);
    let mut dw = launch.output::<T>(0)?;
    let scratch = launch.scratch(method.scratch(&g))?;
    for piece in 0..pieces {
        let (x, dy, first) = (x.piece(piece, pieces), dy.piece(piece, pieces), piece == 0);
        match &method {
            Method::Direct => direct::weight_grad(&g, x, dy, dw.reborrow()),
            Method::Columns(columns) => columns.weight_grad(&g, x, dy, dw.reborrow(), first, scratch),
            Method::Winograd2(winograd) => winograd.add_weight_grad(x, dy, first, scratch),
            Method::Winograd4(winograd) => winograd.add_weight_grad(x, dy, first, scratch),
        }
    }
    match &method {
        Method::Winograd2(winograd) => winograd.finish_weight_grad(scratch, dw),
        Method::Winograd4(winograd) => winograd.finish_weight_grad(scratch, dw),
        Method::Direct | Method::Columns(_) => {}
    }
    Ok(())
}

/// How a launch runs.
struct Plan {
    /// Of one piece.
    g: Geometry,
    method: Method,
    pieces: usize,
}

/// What a launch's algorithm names; `turned` for the data gradient.
fn plan(whole: Geometry, turned: bool, launch: &Launch<'_>) -> Result<Plan, DeviceError> {
    let (name, pieces) = split_pieces(launch.algorithm);
    let pieces = usize::try_from(pieces).unwrap_or(usize::MAX);
    if pieces > 1 && (whole.n == 0 || !whole.n.is_multiple_of(pieces)) {
        return Err(launch.refuse(format!("expected samples that divide into {pieces} pieces, found {}", whole.n)));
    }
    let g = Geometry { n: whole.n / pieces, ..whole };
    let method = match name {
        // Without workspace there is nothing to gain by pieces.
        DIRECT if pieces == 1 => Method::Direct,
        TILES => Method::Columns(Columns::tiles(&g)),
        IM2COL => Method::Columns(Columns::all(&g)),
        WINOGRAD2 if winograd::fits(&g) => Method::Winograd2(Winograd2::of(&g, turned)),
        WINOGRAD4 if winograd::fits(&g) => Method::Winograd4(Winograd4::of(&g, turned)),
        _ => {
            return Err(launch.refuse(format!(
                "expected {DIRECT}, {TILES}, {IM2COL} or, for 3x3 kernels of stride 1, {WINOGRAD2} or {WINOGRAD4}; all but \
                 {DIRECT} also in pieces of the batch, like {IM2COL}/4"
            )));
        }
    };
    Ok(Plan { g, method, pieces })
}

impl Method {
    /// Elements of scratch memory.
    fn scratch(&self, g: &Geometry) -> usize {
        match self {
            Method::Direct => 0,
            Method::Columns(columns) => columns.scratch(g),
            Method::Winograd2(winograd) => winograd.scratch(),
            Method::Winograd4(winograd) => winograd.scratch(),
        }
    }
}
