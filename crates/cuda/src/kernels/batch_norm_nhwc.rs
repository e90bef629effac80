//! Batch normalisation of half precision with channels innermost, with ReLU and a residual in the same pass: two passes over the
//! maps in each direction, sums and application.

use super::elementwise::address_and_stride;
use super::nhwc::{Columns, partial_bytes};
use super::plan::{KernelArg, KernelLaunch, THREADS, at_most};
use super::{KernelError, LaunchPlan, Operand, file_of, files, operands};
use KernelArg::{F32, U32, U64};
use vdnn_tensor::{Bytes, TensorType};

const FILES: [&str; 3] = files!("batch_norm_nhwc");

/// Which elements of dY a gradient lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// All: [`vdnn_graph::Op::BatchNormGrad`].
    Open,
    /// Those whose normalised X is above 0: [`vdnn_graph::Op::BatchNormReluGrad`].
    BySign,
    /// Those with a bit: [`vdnn_graph::Op::BatchNormAddReluGrad`].
    ByMask,
}

/// Bytes of partial sums, of the statistics as of the gradient: two sums a stretch.
pub(super) fn workspace(x: &TensorType) -> Bytes {
    partial_bytes(x, 2)
}

/// (X) → mean, biased variance.
pub(super) fn prepare_stats(
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let op = "batch_norm_stats";
    let ([x], [mean, variance]) = (operands(op, inputs)?, operands(op, outputs)?);
    if mean.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let (cut, file) = (Columns::reducing(&[x]), file_of(x.ty.dtype, FILES));
    let args = [&address_and_stride(&x)[..], &cut.args(op)?, &[U64(workspace)]].concat();
    let function = cut.pick("batch_norm_stats_packed", "batch_norm_stats_single");
    let sums = KernelLaunch::new(op, file, function, cut.blocks(), args)?;
    let further = [U64(x.address), U64(cut.rows), U64(mean.address), U64(variance.address)];
    Ok(vec![sums, cut.finish(op, file, "batch_norm_stats_finish", workspace, &further)?].into())
}

/// (X, mean, variance, gamma, beta) → Y, with or without ReLU.
pub(super) fn prepare(
    name: &'static str,
    eps: f64,
    functions: [&'static str; 2],
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let ([x, mean, variance, gamma, beta], [y]) = (operands(name, inputs)?, operands(name, outputs)?);
    if x.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let cut = Columns::applying(&[x, y]);
    let coefficients = [mean, variance, gamma, beta].map(|o| U64(o.address));
    let maps = [address_and_stride(&x), address_and_stride(&y)];
    let args = [&maps[0][..], &coefficients, &maps[1], &cut.args(name)?, &[F32(eps as f32)]].concat();
    let function = cut.pick(functions[0], functions[1]);
    Ok(vec![KernelLaunch::new(name, file_of(x.ty.dtype, FILES), function, cut.blocks(), args)?].into())
}

/// (X, mean, variance, gamma, beta, R) → Y, mask.
pub(super) fn prepare_add_relu(
    eps: f64,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let name = "batch_norm_add_relu";
    let ([x, mean, variance, gamma, beta, r], [y, mask]) = (operands(name, inputs)?, operands(name, outputs)?);
    if x.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let cut = Columns::applying(&[x, r, y]);
    let coefficients = [mean, variance, gamma, beta].map(|o| U64(o.address));
    let [x_args, r_args, y_args] = [x, r, y].map(|o| address_and_stride(&o));
    let mut args = [&x_args[..], &coefficients, &r_args, &y_args, &[U64(mask.address)]].concat();
    let (function, blocks) = if cut.lanes > 1 {
        args.extend(cut.args(name)?);
        ("batch_norm_add_relu_packed", cut.blocks())
    } else {
        let (sample, bytes) = (x.sample(), x.sample().div_ceil(8));
        let total = x.samples() * bytes;
        let channels = at_most(name, "the number of channels", cut.channels, (1 << 31) - 1)?;
        args.extend([U32(channels), U64(sample), U64(bytes), U64(total)]);
        ("batch_norm_add_relu_single", total.div_ceil(u64::from(THREADS)))
    };
    args.push(F32(eps as f32));
    Ok(vec![KernelLaunch::new(name, file_of(x.ty.dtype, FILES), function, blocks, args)?].into())
}

/// Operands of a gradient; what an op lacks has address 0.
pub(super) struct Gradient<'a> {
    pub x: Operand<'a>,
    pub dy: Operand<'a>,
    pub mask: u64,
    /// Mean, variance, gamma, beta.
    pub coefficients: [u64; 4],
    pub dx: Operand<'a>,
    /// dgamma, dbeta.
    pub parameters: [Operand<'a>; 2],
    pub dr: Option<Operand<'a>>,
}

/// The two sums, then dX from them.
pub(super) fn prepare_grad(
    name: &'static str,
    eps: f64,
    gate: Gate,
    of: &Gradient<'_>,
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let [dgamma, dbeta] = of.parameters;
    if dgamma.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let (file, eps) = (file_of(of.x.ty.dtype, FILES), F32(eps as f32));
    let (sample, hw) = (of.x.sample(), of.x.channels().1);
    let mask = [of.mask, hw, sample.div_ceil(8)].map(U64);
    let maps = [&address_and_stride(&of.x)[..], &address_and_stride(&of.dy), &mask].concat();
    let coefficients = of.coefficients.map(U64);
    let ([sums_packed, sums_single], [packed, single]) = functions(gate);

    let cut = Columns::reducing(&[of.x, of.dy]);
    let args = [&maps[..], &coefficients, &cut.args(name)?, &[eps, U64(workspace)]].concat();
    let sums = KernelLaunch::new(name, file, cut.pick(sums_packed, sums_single), cut.blocks(), args)?;
    let parameters = [dgamma, dbeta].map(|o| U64(o.address));
    let further = [U64(of.coefficients[1]), parameters[0], parameters[1], eps];
    let finish = cut.finish(name, file, "batch_norm_grad_finish", workspace, &further)?;
    if of.x.elements() == 0 {
        return Ok(vec![sums, finish].into());
    }
    let all: Vec<Operand<'_>> = [of.x, of.dy, of.dx].into_iter().chain(of.dr).collect();
    let cut = Columns::applying(&all);
    let dr = of.dr.map_or([U64(0), U64(0)], |dr| address_and_stride(&dr));
    let results = [address_and_stride(&of.dx), dr].concat();
    let count = F32((1.0 / cut.rows as f64) as f32);
    let args = [&maps[..], &coefficients, &parameters, &results, &cut.args(name)?, &[eps, count]].concat();
    let apply = KernelLaunch::new(name, file, cut.pick(packed, single), cut.blocks(), args)?;
    Ok(vec![sums, finish, apply].into())
}

/// Functions of a gate: its sums' and its application's.
fn functions(gate: Gate) -> ([&'static str; 2], [&'static str; 2]) {
    match gate {
        Gate::Open => (
            ["batch_norm_grad_sums_packed", "batch_norm_grad_sums_single"],
            ["batch_norm_grad_packed", "batch_norm_grad_single"],
        ),
        Gate::BySign => (
            ["batch_norm_relu_grad_sums_packed", "batch_norm_relu_grad_sums_single"],
            ["batch_norm_relu_grad_packed", "batch_norm_relu_grad_single"],
        ),
        Gate::ByMask => (
            ["batch_norm_add_relu_grad_sums_packed", "batch_norm_add_relu_grad_sums_single"],
            ["batch_norm_add_relu_grad_packed", "batch_norm_add_relu_grad_single"],
        ),
    }
}
