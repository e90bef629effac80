//! Batch normalisation, ReLU and max pooling of half precision with channels innermost: one pass forward, two backward. f32 has no
//! kernels for it, as its networks keep the three ops.

use super::elementwise::address_and_stride;
use super::nhwc::{Columns, TALL_HELD, partial_bytes_down};
use super::plan::{KernelArg, SAMPLE_LIMIT, at_most, divisor};
use super::window::{geometry, size};
use super::{KernelError, LaunchPlan, Operand, file_of, files, operands};
use KernelArg::{F32, U32, U64};
use vdnn_graph::op::{BatchNormReluMaxPool2d, MaxPool2d};
use vdnn_tensor::{Bytes, TensorType};

const FILES: [&str; 3] = files!("batch_norm_relu_max_pool2d_nhwc");
const FORWARD: &str = "batch_norm_relu_max_pool2d";
const GRADIENT: &str = "batch_norm_relu_max_pool2d_grad";

/// Bytes of partial sums: two a stretch.
pub(super) fn workspace(op: &BatchNormReluMaxPool2d, x: &TensorType) -> Bytes {
    partial_bytes_down(&cells(&op.pool, x), 2)
}

/// The cells of two by two pixels, of the padded image, that gradients walk over, as a map.
fn cells(pool: &MaxPool2d, x: &TensorType) -> TensorType {
    let [n, c, h, w] = x.shape.nchw().unwrap_or_default();
    let [ph, pw] = pool.window.padding;
    x.with_shape([n, c, (h + ph).div_ceil(2), (w + pw).div_ceil(2)])
}

/// (X, mean, variance, gamma, beta) → Y, indices.
pub(super) fn prepare(
    op: &BatchNormReluMaxPool2d,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let ([x, of @ ..], [y, indices]) = (operands::<5>(FORWARD, inputs)?, operands(FORWARD, outputs)?);
    check_half(FORWARD, &x)?;
    if y.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let (cut, down) = Columns::applying_down(&[y, x, indices]);
    let mut args = address_and_stride(&x).to_vec();
    args.extend(of.map(|o| U64(o.address)));
    args.extend(address_and_stride(&y));
    args.push(U64(indices.address));
    args.extend(cut.args(FORWARD)?);
    args.push(F32(op.norm.eps as f32));
    args.extend(sizes(FORWARD, &op.pool, &x, &y, y.ty, down)?);
    let function = match op.pool.window.kernel {
        [2, 2] => cut.pick("batch_norm_pool_k2_packed", "batch_norm_pool_k2_single"),
        _ => cut.pick("batch_norm_pool_k3_packed", "batch_norm_pool_k3_single"),
    };
    Ok(vec![cut.launch(FORWARD, file_of(x.ty.dtype, FILES), function, args)?].into())
}

/// (X, indices, dY, mean, variance, gamma, beta) → dX, dgamma, dbeta: the two sums of what goes through, then dX from them.
pub(super) fn prepare_grad(
    op: &BatchNormReluMaxPool2d,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let ([x, indices, dy, of @ ..], [dx, parameters @ ..]) =
        (operands::<7>(GRADIENT, inputs)?, operands::<3>(GRADIENT, outputs)?);
    check_half(GRADIENT, &x)?;
    if parameters[0].elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    for map in [&x, &dy, &dx] {
        let rows = size(map)[1].saturating_mul(map.row_stride).saturating_mul(2);
        at_most(GRADIENT, "the elements from a row of pixels to the next but one", rows, SAMPLE_LIMIT)?;
    }
    let cells = cells(&op.pool, x.ty);
    let walked = Operand::contiguous(&cells, 0);
    let mut maps = [x, dy].map(|o| address_and_stride(&o)).concat();
    maps.push(U64(indices.address));
    maps.extend(of.map(|o| U64(o.address)));
    let sizes = |down| sizes(GRADIENT, &op.pool, &x, &dy, &cells, down);
    let [packed, single] = match op.pool.window.kernel {
        [2, 2] => K2,
        _ => K3,
    };
    let (parameters, eps, file) =
        (parameters.map(|o| U64(o.address)), F32(op.norm.eps as f32), file_of(x.ty.dtype, FILES));
    let (cut, down) = Columns::reducing_down(&[walked, x, dy, indices], TALL_HELD);
    let results = [U64(workspace), parameters[0], parameters[1], eps];
    let args = [&maps[..], &cut.args(GRADIENT)?, &results, &sizes(down)?].concat();
    let sums = cut.launch(GRADIENT, file, cut.pick(packed[0], single[0]), args)?;
    if x.elements() == 0 {
        return Ok(vec![sums].into());
    }
    let (cut, down) = Columns::applying_down(&[walked, x, dy, dx, indices]);
    let numbers = [eps, F32((1.0 / x.rows() as f64) as f32)];
    let args =
        [&maps[..], &parameters, &address_and_stride(&dx), &cut.args(GRADIENT)?, &numbers, &sizes(down)?].concat();
    Ok(vec![sums, cut.launch(GRADIENT, file, cut.pick(packed[1], single[1]), args)?].into())
}

/// Functions of a gradient, in packs and by single channels: the sums' and dX's.
const K2: [[&str; 2]; 2] = [
    ["batch_norm_pool_k2_sums_packed", "batch_norm_pool_k2_grad_packed"],
    ["batch_norm_pool_k2_sums_single", "batch_norm_pool_k2_grad_single"],
];
const K3: [[&str; 2]; 2] = [
    ["batch_norm_pool_k3_sums_packed", "batch_norm_pool_k3_grad_packed"],
    ["batch_norm_pool_k3_sums_single", "batch_norm_pool_k3_grad_single"],
];

/// `SIZES` of images `x` and pooled maps `y` as arguments, for a walk down columns of another map, `down` rows at a time.
fn sizes(
    op: &'static str,
    pool: &MaxPool2d,
    x: &Operand<'_>,
    y: &Operand<'_>,
    walked: &TensorType,
    down: u64,
) -> Result<Vec<KernelArg>, KernelError> {
    geometry(op, &pool.window, size(x), size(y))?;
    at_most(op, "the number of windows", walked.rows(), SAMPLE_LIMIT)?;
    let [rows, columns] = [walked.shape.dim(2), walked.shape.dim(3)];
    let pieces = rows.div_ceil(down);
    let numbers = [&size(x)[..], &size(y), &pool.window.padding, &[down, pieces]].concat();
    let divisors = [pieces * columns, columns].map(|count| divisor(count as u32));
    Ok(numbers.iter().map(|&v| U32(v as u32)).chain(divisors).collect())
}

/// Refuses what is not of half precision.
fn check_half(op: &'static str, x: &Operand<'_>) -> Result<(), KernelError> {
    if x.ty.dtype.is_half() {
        return Ok(());
    }
    let (operand, found) = ("operand 0".to_string(), Box::new(x.ty.clone()));
    Err(KernelError::Type { op, operand, expected: "f16 or bf16 in NHWC order", found })
}
