//! Max pooling and its gradient, from X and Y or from indices. Half precision has channels innermost, f32
//! either order.

use super::nhwc::{self, Columns, Pixels, TALL_PAIR, is_innermost};
use super::plan::{KernelArg, KernelLaunch, LaunchPlan, SAMPLE_LIMIT, at_most, divisor};
use super::window::{addresses, geometry, pixels, size};
use super::{KernelError, Operand, bias, file_of, files, operands, relu};
use vdnn_graph::op::{MaxPool2d, MaxPool2dIndicesGrad, Window};
use vdnn_tensor::{Bytes, TensorType};

const NHWC: [&str; 3] = files!("max_pool2d_nhwc");
/// Where partial sums begin after a map in a workspace.
const ALIGNMENT: Bytes = 256;

/// The functions of an op with channels innermost, in packs and by single elements: for any window, for 2×2 and 3×3 at a stride of 2.
type Inner = [[&'static str; 2]; 3];

macro_rules! inner {
    ($stem:literal) => {
        [
            [concat!($stem, "_packed"), concat!($stem, "_single")],
            [concat!($stem, "_k2s2_packed"), concat!($stem, "_single")],
            [concat!($stem, "_k3s2_packed"), concat!($stem, "_single")],
        ]
    };
}

/// The kernel with the window's size built in, if there is one.
fn pick<T>(window: &Window, any: T, k2s2: T, k3s2: T) -> T {
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
    if is_innermost(x.ty) {
        return launch_nhwc(name, inner!("max_pool2d"), &op.window, &[x, y], None, [&x, &y, &y]);
    }
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
    if is_innermost(x.ty) {
        return launch_nhwc(name, inner!("max_pool2d_grad"), &op.window, &[x, y, dy, dx], None, [&x, &y, &dx]);
    }
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
    if is_innermost(x.ty) {
        let functions = inner!("max_pool2d_indices");
        return launch_nhwc(name, functions, &op.window, &[x, y], Some((2, indices)), [&x, &y, &y]);
    }
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
    if is_innermost(dx.ty) {
        let functions = inner!("max_pool2d_indices_grad");
        return launch_nhwc(name, functions, window, &[dy, dx], Some((0, indices)), [&dx, &dy, &dx]);
    }
    launch(name, function, window, &[indices, dy, dx], [&dx, &dy, &dx])
}

/// True for windows that one thread takes to dZ: two by two, side by side, over all of a map with
/// channels innermost.
fn is_direct(op: &MaxPool2dIndicesGrad, y: &TensorType) -> bool {
    is_innermost(y) && op.pool.window == Window::square(2) && op.input.iter().all(|size| size.is_multiple_of(2))
}

/// Bytes of the partial sums; where windows are not taken directly, after what goes through the ReLU of dY.
pub(super) fn relu_bias_workspace(op: &MaxPool2dIndicesGrad, inputs: &[&TensorType]) -> Bytes {
    let [_, y, _] = inputs else { return 0 };
    if is_direct(op, y) {
        return nhwc::partial_bytes(y, 1);
    }
    let [n, c, ..] = y.shape.nchw().unwrap_or_default();
    let dz = y.with_shape([n, c, op.input[0], op.input[1]]);
    y.bytes().next_multiple_of(ALIGNMENT) + bias::workspace(&dz)
}

/// (indices, Y, dY) → dZ, dbias.
pub(super) fn prepare_relu_bias_grad(
    op: &MaxPool2dIndicesGrad,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let name = "max_pool2d_relu_bias_grad";
    let ([indices, y, dy], [dz, db]) = (operands(name, inputs)?, operands(name, outputs)?);
    if db.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    if !is_direct(op, y.ty) {
        let gated = Operand::contiguous(dy.ty, workspace);
        let gate = relu::prepare_grad(&[y, dy], &[gated])?;
        let spread = prepare_indices_grad(op, &[indices, gated], &[dz])?;
        let sums = workspace + y.ty.bytes().next_multiple_of(ALIGNMENT);
        return Ok([gate.launches, spread.launches, bias::prepare_grad(&[dz], &[db], sums)?.launches].concat().into());
    }
    let cut = Columns::reducing(&[y, dy, dz, indices], TALL_PAIR);
    at_most(name, "the number of windows", cut.rows, SAMPLE_LIMIT)?;
    let columns = y.ty.shape.dim(3) as u32;
    let maps = [addresses(&[y, dy]), vec![KernelArg::U64(indices.address)], addresses(&[dz])].concat();
    let further = [KernelArg::U32(columns), divisor(columns), KernelArg::U64(workspace), KernelArg::U64(db.address)];
    let function = cut.pick("max_pool2d_relu_bias_grad_packed", "max_pool2d_relu_bias_grad_single");
    let args = [&maps[..], &cut.args(name)?, &further].concat();
    Ok(vec![cut.launch(name, file_of(y.ty.dtype, NHWC), function, args)?].into())
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

/// The same with channels innermost. Indices, if there are any, come before so many maps; they lie in one piece.
fn launch_nhwc(
    name: &'static str,
    functions: Inner,
    window: &Window,
    maps: &[Operand<'_>],
    indices: Option<(usize, Operand<'_>)>,
    [x, y, written]: [&Operand<'_>; 3],
) -> Result<LaunchPlan, KernelError> {
    if written.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    // Places are counted in bytes of eight.
    let odd = indices.is_some_and(|(_, indices)| !indices.address.is_multiple_of(8));
    let mut walk = Pixels::of(name, written, maps, !odd)?;
    let [any, k2s2, k3s2] = functions;
    let built_in = pick(window, None, Some(k2s2), Some(k3s2));
    let function = walk.pick(built_in.unwrap_or(any));
    let geometry = geometry(name, window, size(x), size(y))?;
    if let (true, Some(_)) = (walk.packed && indices.is_some_and(|(before, _)| before == 0), built_in) {
        let cells = [0, 1].map(|axis| (size(x)[axis] + window.padding[axis]).div_ceil(2));
        walk = Pixels::over(name, x.samples(), cells, maps, true)?;
    }
    let mut args = addresses(maps);
    if let Some((before, indices)) = indices {
        args.insert(2 * before, KernelArg::U64(indices.address));
    }
    args.extend(walk.args);
    args.extend(geometry);
    Ok(vec![KernelLaunch::new(name, file_of(x.ty.dtype, NHWC), function, walk.blocks, args)?].into())
}
