//! Batch normalisation with channels innermost, with ReLU and a residual in the same pass: two passes over the
//! maps in each direction, sums and application.

use super::elementwise::address_and_stride;
use super::nhwc::{Columns, TALL, TALL_PAIR, partial_bytes};
use super::plan::{KernelArg, KernelLaunch, THREADS, at_most};
use super::{KernelError, LaunchPlan, Operand, file_of, files, operands};
use KernelArg::{F32, F64, U32, U64};
use vdnn_tensor::{Bytes, TensorType};

const FILES: [&str; 3] = files!("batch_norm_nhwc");

/// Which elements of dY a gradient lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// All: [`vdnn_graph::Op::BatchNormGrad`].
    Open,
    /// Those whose normalised X is above 0: [`vdnn_graph::Op::BatchNormReluGrad`].
    BySign,
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
    let cut = Columns::reducing(&[x], TALL);
    let results = [workspace, mean.address, variance.address].map(U64);
    let inverse = if cut.rows == 0 { 0.0 } else { 1.0 / cut.rows as f64 };
    let args = [&address_and_stride(&x)[..], &cut.args(op)?, &results, &[F64(inverse)]].concat();
    let function = cut.pick("batch_norm_stats_packed", "batch_norm_stats_single");
    Ok(vec![cut.launch(op, file_of(x.ty.dtype, FILES), function, args)?].into())
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
    Ok(vec![cut.launch(name, file_of(x.ty.dtype, FILES), function, args)?].into())
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
    let file = file_of(x.ty.dtype, FILES);
    let coefficients = [mean, variance, gamma, beta].map(|o| U64(o.address));
    let [x_args, r_args, y_args] = [x, r, y].map(|o| address_and_stride(&o));
    let mut args = [&x_args[..], &coefficients, &r_args, &y_args, &[U64(mask.address)]].concat();
    if let Some(cut) = Columns::applying_with_mask(&[x, r, y]) {
        args.extend(cut.args(name)?);
        args.push(F32(eps as f32));
        return Ok(vec![cut.launch(name, file, "batch_norm_add_relu_packed", args)?].into());
    }
    let (sample, bytes) = (x.sample(), x.sample().div_ceil(8));
    let total = x.samples() * bytes;
    let channels = at_most(name, "the number of channels", x.channels().0, (1 << 31) - 1)?;
    args.extend([U32(channels), U64(sample), U64(bytes), U64(total), F32(eps as f32)]);
    let blocks = total.div_ceil(u64::from(THREADS));
    Ok(vec![KernelLaunch::new(name, file, "batch_norm_add_relu_single", blocks, args)?].into())
}

/// Operands of a gradient; what an op lacks has address 0.
pub(super) struct Gradient<'a> {
    pub x: Operand<'a>,
    pub dy: Operand<'a>,
    /// Mean, variance, gamma, beta.
    pub coefficients: [u64; 4],
    pub dx: Operand<'a>,
    /// dgamma, dbeta.
    pub parameters: [Operand<'a>; 2],
}

impl Gradient<'_> {
    /// Partial sums, and `PARAMETERS`: what becomes of them by which mean and variance.
    fn results(&self, workspace: u64, eps: f64) -> [KernelArg; 6] {
        let [mean, variance, ..] = self.coefficients.map(U64);
        let [dgamma, dbeta] = [self.parameters[0].address, self.parameters[1].address].map(U64);
        [U64(workspace), mean, variance, dgamma, dbeta, F32(eps as f32)]
    }
}

/// What a gradient with a residual has besides.
pub(super) struct Gated<'a> {
    pub mask: u64,
    /// Added to dY.
    pub second: Option<Operand<'a>>,
    /// What of dY goes through.
    pub dr: Operand<'a>,
}

/// The two sums, then dX from them.
pub(super) fn prepare_grad(
    name: &'static str,
    eps: f64,
    gate: Gate,
    of: &Gradient<'_>,
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    if of.parameters[0].elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    // Sums without a sign are cut as those with a mask and those of a pair: a pair has the bits of one norm after the other.
    let cut = Columns::reducing(&[of.x, of.dy], if gate == Gate::Open { TALL_PAIR } else { TALL });
    let maps = [address_and_stride(&of.x), address_and_stride(&of.dy)].concat();
    let [_, _, gamma, beta] = of.coefficients.map(U64);
    let args = [&maps[..], &[gamma, beta], &cut.args(name)?, &of.results(workspace, eps)].concat();
    let [packed, single] = functions(gate).0;
    let sums = cut.launch(name, file_of(of.x.ty.dtype, FILES), cut.pick(packed, single), args)?;
    from_sums(name, eps, gate, of, sums)
}

/// The two sums of what goes through, which is written as dR on the way; then dX from them and dR, also over the second dY,
/// which nothing reads any more.
pub(super) fn prepare_gated_grad(
    eps: f64,
    of: &Gradient<'_>,
    gated: &Gated<'_>,
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let name = "batch_norm_add_relu_grad";
    if of.parameters[0].elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let all: Vec<Operand<'_>> = [of.x, of.dy, gated.dr].into_iter().chain(gated.second).collect();
    let cut = Columns::reducing(&all, TALL_PAIR);
    let (sample, hw) = (of.x.sample(), of.x.channels().1);
    let second = gated.second.map_or([U64(0), U64(0)], |second| address_and_stride(&second));
    let mut args = [address_and_stride(&of.x), address_and_stride(&of.dy), second].concat();
    args.extend([gated.mask, hw, sample.div_ceil(8)].map(U64));
    args.extend(address_and_stride(&gated.dr));
    args.extend(cut.args(name)?);
    args.extend(of.results(workspace, eps));
    let function = match gated.second {
        None => cut.pick("batch_norm_gated_sums_packed", "batch_norm_gated_sums_single"),
        Some(_) => cut.pick("batch_norm_gated_sums2_packed", "batch_norm_gated_sums2_single"),
    };
    let sums = cut.launch(name, file_of(of.x.ty.dtype, FILES), function, args)?;
    from_sums(name, eps, Gate::Open, &Gradient { dy: gated.dr, ..*of }, sums)
}

/// The launches of the sums, which leave dgamma and dbeta, and of dX from them.
fn from_sums(
    name: &'static str,
    eps: f64,
    gate: Gate,
    of: &Gradient<'_>,
    sums: KernelLaunch,
) -> Result<LaunchPlan, KernelError> {
    if of.x.elements() == 0 {
        return Ok(vec![sums].into());
    }
    let cut = Columns::applying(&[of.x, of.dy, of.dx]);
    let maps = [address_and_stride(&of.x), address_and_stride(&of.dy)].concat();
    let (coefficients, dx) = (of.coefficients.map(U64), address_and_stride(&of.dx));
    let parameters = of.parameters.map(|o| U64(o.address));
    let numbers = [F32(eps as f32), F32((1.0 / cut.rows as f64) as f32)];
    let args = [&maps[..], &coefficients, &parameters, &dx, &cut.args(name)?, &numbers].concat();
    let [packed, single] = functions(gate).1;
    let apply = cut.launch(name, file_of(of.x.ty.dtype, FILES), cut.pick(packed, single), args)?;
    Ok(vec![sums, apply].into())
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
    }
}
