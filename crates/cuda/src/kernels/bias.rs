//! The bias of convolutions and linear layers, added in place after them, and its gradient; both with ReLU too.

use super::elementwise::address_and_stride;
use super::nhwc::{self, Columns, TALL, is_innermost};
use super::plan::{KernelArg, KernelLaunch, Reduction, Rows, THREADS, divisor, partial_bytes, sample_len};
use super::{KernelError, LaunchPlan, Operand, Takes, check, file_of, files, operands, relu};
use vdnn_tensor::{Bytes, TensorType};

/// Channels innermost, or half precision without pixels.
const NHWC: [&str; 3] = files!("bias_nhwc");

/// Y `[N, C, …]` += bias `[C]`: the second half of a convolution or linear layer with a bias.
///
/// # Errors
/// [`KernelError`] when an operand has a type that the kernels do not take or a sample is too large.
pub fn bias_add(y: Operand<'_>, bias: Operand<'_>) -> Result<LaunchPlan, KernelError> {
    check("bias_add", Takes::Channels, &[y])?;
    check("bias_add", Takes::Plain, &[bias])?;
    if is_innermost(y.ty) {
        return add_nhwc(["bias_add_packed", "bias_add_single"], y, bias);
    }
    let rows = Rows::by_sample(&[y]);
    if rows.is_empty() {
        return Ok(LaunchPlan::default());
    }
    let (len, hw) = (sample_len("bias_add", &y)?, y.channels().1 as u32);
    let mut args = address_and_stride(&y).to_vec();
    args.extend([KernelArg::U64(bias.address), KernelArg::U32(len), KernelArg::U32(hw), divisor(hw)]);
    args.push(rows.tiles_arg("bias_add")?);
    let function = rows.pick("bias_add_v4", "bias_add_v1");
    Ok(vec![KernelLaunch::new("bias_add", "bias.cu", function, rows.blocks(), args)?].into())
}

/// Y = max(Y + bias, 0): the second half of a convolution with ReLU.
///
/// # Errors
/// As [`bias_add`].
pub fn bias_relu(y: Operand<'_>, bias: Option<Operand<'_>>) -> Result<LaunchPlan, KernelError> {
    match bias {
        Some(bias) if is_innermost(y.ty) => {
            check("bias_relu", Takes::Channels, &[y])?;
            check("bias_relu", Takes::Plain, &[bias])?;
            add_nhwc(["bias_relu_packed", "bias_relu_single"], y, bias)
        }
        _ => {
            let sum = bias.map_or(Ok(LaunchPlan::default()), |bias| bias_add(y, bias))?;
            Ok([sum.launches, relu::prepare(&[y], &[y])?.launches].concat().into())
        }
    }
}

/// (Y, dY) → dZ, dbias: in one pass where channels are innermost, in NCHW order by the two kernels.
pub(super) fn prepare_relu_grad(
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let op = "relu_bias_grad";
    let ([y, dy], [dz, db]) = (operands(op, inputs)?, operands(op, outputs)?);
    if db.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    if !is_innermost(y.ty) {
        let gate = relu::prepare_grad(&[y, dy], &[dz])?;
        return Ok([gate.launches, prepare_grad(&[dz], &[db], workspace)?.launches].concat().into());
    }
    let cut = Columns::reducing(&[y, dy, dz], TALL);
    let maps = [address_and_stride(&y), address_and_stride(&dy), address_and_stride(&dz)].concat();
    let args = [&maps[..], &cut.args(op)?, &[workspace, db.address].map(KernelArg::U64)].concat();
    let function = cut.pick("relu_bias_grad_packed", "relu_bias_grad_single");
    Ok(vec![cut.launch(op, file_of(y.ty.dtype, NHWC), function, args)?].into())
}

fn add_nhwc(functions: [&'static str; 2], y: Operand<'_>, bias: Operand<'_>) -> Result<LaunchPlan, KernelError> {
    let (op, cut) = ("bias_add", Columns::applying(&[y]));
    if y.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let args = [&address_and_stride(&y)[..], &[KernelArg::U64(bias.address)], &cut.args(op)?].concat();
    let function = cut.pick(functions[0], functions[1]);
    Ok(vec![cut.launch(op, file_of(y.ty.dtype, NHWC), function, args)?].into())
}

fn grad_nhwc(dy: &Operand<'_>, db: &Operand<'_>, workspace: u64) -> Result<LaunchPlan, KernelError> {
    let (op, cut) = ("bias_grad", Columns::reducing(&[*dy], TALL));
    let args = [&address_and_stride(dy)[..], &cut.args(op)?, &[workspace, db.address].map(KernelArg::U64)].concat();
    let function = cut.pick("bias_grad_packed", "bias_grad_single");
    Ok(vec![cut.launch(op, file_of(dy.ty.dtype, NHWC), function, args)?].into())
}

/// Bytes of partial sums.
pub(super) fn workspace(dy: &TensorType) -> Bytes {
    if is_innermost(dy) {
        return nhwc::partial_bytes(dy, 1);
    }
    if has_pixels(dy) { partial_bytes(dy, 1) } else { 0 }
}

fn has_pixels(dy: &TensorType) -> bool {
    dy.shape.elements_per_sample() != dy.shape.dim(1)
}

/// (dY) → dbias.
pub(super) fn prepare_grad(
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let ([dy], [db]) = (operands("bias_grad", inputs)?, operands("bias_grad", outputs)?);
    if db.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    if is_innermost(dy.ty) {
        return grad_nhwc(&dy, &db, workspace);
    }
    if !has_pixels(dy.ty) {
        return columns(&dy, &db);
    }
    let cut = Reduction::new("bias_grad", &[dy])?;
    let mut args = address_and_stride(&dy).to_vec();
    args.extend(cut.args());
    args.extend([KernelArg::U64(workspace), KernelArg::U64(db.address)]);
    let function = cut.pick("bias_grad_v4", "bias_grad_v1");
    let mut launches = vec![KernelLaunch::new("bias_grad", "bias.cu", function, cut.blocks(), args)?];
    if cut.splits > 1 {
        let args = [KernelArg::U64(workspace), KernelArg::U32(cut.channels), KernelArg::U32(cut.splits)];
        let args = [&args[..], &[KernelArg::U64(db.address)]].concat();
        launches.push(KernelLaunch::new("bias_grad", "bias.cu", "bias_grad_finish", cut.finish_blocks(), args)?);
    }
    Ok(launches.into())
}

/// dY `[N, C]`: 32 columns a block.
fn columns(dy: &Operand<'_>, db: &Operand<'_>) -> Result<LaunchPlan, KernelError> {
    let channels = sample_len("bias_grad", dy)?;
    let mut args = address_and_stride(dy).to_vec();
    args.extend([KernelArg::U64(dy.samples()), KernelArg::U32(channels), KernelArg::U64(db.address)]);
    let blocks = u64::from(channels.div_ceil(THREADS / 8));
    Ok(vec![KernelLaunch::new("bias_grad", "bias.cu", "bias_grad_columns", blocks, args)?].into())
}
