//! Batch normalisation: statistics, normalisation, gradient, running statistics. Where channels are
//! innermost it is [`batch_norm_nhwc`]'s.

use super::batch_norm_nhwc::{self, Gate, Gradient};
use super::elementwise::address_and_stride;
use super::nhwc::is_innermost;
use super::plan::{KernelArg, KernelLaunch, Reduction, Rows, divisor, partial_bytes, sample_len};
use super::table::{Table, stretches};
use super::{KernelError, LaunchPlan, Operand, operands};
use KernelArg::{F32, U32, U64};
use vdnn_graph::op::{BatchNorm, BatchNormUpdate};
use vdnn_tensor::{Bytes, TensorType};

const FILE: &str = "batch_norm.cu";

/// Bytes of partial sums, of the statistics as of the gradient: two sums a stretch.
pub(super) fn workspace(x: &TensorType) -> Bytes {
    if is_innermost(x) { batch_norm_nhwc::workspace(x) } else { partial_bytes(x, 2) }
}

/// (X) → mean, biased variance.
pub(super) fn prepare_stats(
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let op = "batch_norm_stats";
    let ([x], [mean, variance]) = (operands(op, inputs)?, operands(op, outputs)?);
    if is_innermost(x.ty) {
        return batch_norm_nhwc::prepare_stats(inputs, outputs, workspace);
    }
    if mean.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let cut = Reduction::new(op, &[x])?;
    let results = [U64(mean.address), U64(variance.address)];
    let args = [&address_and_stride(&x)[..], &cut.args(), &[U64(workspace)], &results].concat();
    let function = cut.pick("batch_norm_stats_v4", "batch_norm_stats_v1");
    let mut launches = vec![KernelLaunch::new(op, FILE, function, cut.blocks(), args)?];
    if cut.splits > 1 {
        let count = cut.total * u64::from(cut.lanes);
        let partial = [U64(workspace), U32(cut.channels), U32(cut.splits), U64(count)];
        let args = [&partial[..], &results].concat();
        launches.push(KernelLaunch::new(op, FILE, "batch_norm_stats_finish", cut.finish_blocks(), args)?);
    }
    Ok(launches.into())
}

/// (X, mean, variance, gamma, beta) → Y.
pub(super) fn prepare(
    op: &BatchNorm,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let inner = ["batch_norm_packed", "batch_norm_single"];
    prepare_by("batch_norm", op.eps, inner, ["batch_norm_v4", "batch_norm_v1"], inputs, outputs)
}

/// The same by these functions, those with channels innermost or of f32 in NCHW order.
pub(super) fn prepare_by(
    name: &'static str,
    eps: f64,
    inner: [&'static str; 2],
    f32s: [&'static str; 2],
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let ([x, mean, variance, gamma, beta], [y]) = (operands(name, inputs)?, operands(name, outputs)?);
    if is_innermost(x.ty) {
        return batch_norm_nhwc::prepare(name, eps, inner, inputs, outputs);
    }
    normalise(name, eps, f32s, &[x], [mean, variance, gamma, beta], &y)
}

/// One launch over X, or X and another map, with a channel's coefficients.
pub(super) fn normalise(
    name: &'static str,
    eps: f64,
    functions: [&'static str; 2],
    maps: &[Operand<'_>],
    coefficients: [Operand<'_>; 4],
    y: &Operand<'_>,
) -> Result<LaunchPlan, KernelError> {
    let rows = Rows::by_sample(&[maps, &[*y]].concat());
    if rows.is_empty() {
        return Ok(LaunchPlan::default());
    }
    let mut args = address_and_stride(&maps[0]).to_vec();
    args.extend(coefficients.map(|o| U64(o.address)));
    args.extend(maps[1..].iter().chain([y]).flat_map(address_and_stride));
    args.extend(walk(name, &maps[0], &rows)?);
    args.push(F32(eps as f32));
    let function = rows.pick(functions[0], functions[1]);
    Ok(vec![KernelLaunch::new(name, FILE, function, rows.blocks(), args)?].into())
}

/// (length of a sample, length of a channel, its divisor, tiles of a sample) as arguments.
fn walk(op: &'static str, x: &Operand<'_>, rows: &Rows) -> Result<[KernelArg; 4], KernelError> {
    let hw = x.channels().1 as u32;
    Ok([U32(sample_len(op, x)?), U32(hw), divisor(hw), rows.tiles_arg(op)?])
}

/// (X, dY, mean, variance, gamma) → dX, dgamma, dbeta: the two sums, then dX from them.
pub(super) fn prepare_grad(
    op: &BatchNorm,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let name = "batch_norm_grad";
    let ([x, dy, mean, variance, gamma], [dx, dgamma, dbeta]) = (operands(name, inputs)?, operands(name, outputs)?);
    if is_innermost(x.ty) {
        let coefficients = [mean.address, variance.address, gamma.address, 0];
        let of = Gradient { x, dy, coefficients, dx, parameters: [dgamma, dbeta] };
        return batch_norm_nhwc::prepare_grad(name, op.eps, Gate::Open, &of, workspace);
    }
    if dgamma.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let mut launches = sums(op.eps as f32, [x, dy, mean, variance], [dgamma, dbeta], workspace)?;
    let rows = Rows::by_sample(&[x, dy, dx]);
    if !rows.is_empty() {
        let mut args = [address_and_stride(&x), address_and_stride(&dy)].concat();
        args.extend([mean, variance, gamma, dgamma, dbeta].map(|o| U64(o.address)));
        args.extend(address_and_stride(&dx));
        args.extend(walk(name, &x, &rows)?);
        let count = x.samples() * x.channels().1;
        args.extend([F32(op.eps as f32), F32((1.0 / count as f64) as f32)]);
        let function = rows.pick("batch_norm_grad_v4", "batch_norm_grad_v1");
        launches.push(KernelLaunch::new(name, FILE, function, rows.blocks(), args)?);
    }
    Ok(launches.into())
}

/// dgamma and dbeta.
fn sums(
    eps: f32,
    [x, dy, mean, variance]: [Operand<'_>; 4],
    [dgamma, dbeta]: [Operand<'_>; 2],
    workspace: u64,
) -> Result<Vec<KernelLaunch>, KernelError> {
    let name = "batch_norm_grad";
    let cut = Reduction::new(name, &[x, dy])?;
    let results = [U64(dgamma.address), U64(dbeta.address), F32(eps)];
    let mut args = [address_and_stride(&x), address_and_stride(&dy)].concat();
    args.extend([U64(mean.address), U64(variance.address)]);
    args.extend(cut.args());
    args.push(U64(workspace));
    args.extend(results);
    let function = cut.pick("batch_norm_grad_sums_v4", "batch_norm_grad_sums_v1");
    let mut launches = vec![KernelLaunch::new(name, FILE, function, cut.blocks(), args)?];
    if cut.splits > 1 {
        let partial = [U64(workspace), U32(cut.channels), U32(cut.splits), U64(variance.address)];
        let args = [&partial[..], &results].concat();
        launches.push(KernelLaunch::new(name, FILE, "batch_norm_grad_finish", cut.finish_blocks(), args)?);
    }
    Ok(launches)
}

/// (mean, variance, running mean, running variance) → the updated running statistics; the same of each further member.
pub(super) fn prepare_updates<'a>(
    op: &BatchNormUpdate,
    members: impl Iterator<Item = (&'a [Operand<'a>], &'a [Operand<'a>])>,
) -> Result<LaunchPlan, KernelError> {
    let name = "batch_norm_update";
    let member = |(inputs, outputs)| {
        let (from, to) = (operands::<4>(name, inputs)?, operands::<2>(name, outputs)?);
        let len = from[0].elements();
        let in_place = from[2].address == to[0].address && from[3].address == to[1].address;
        let [a, b, c, d] = from.map(|o| o.address);
        // Without a batch the running statistics stay what they are: 1 times the old ones, 0 times the new.
        let nothing = op.count == 0 && in_place;
        Ok(([a, b, c, d, to[0].address, to[1].address, len], if nothing { 0 } else { stretches(len) }))
    };
    let members = members.map(member).collect::<Result<Vec<_>, KernelError>>()?;
    let momentum = if op.count == 0 { 0.0 } else { op.momentum };
    let unbias = op.count.max(1) as f64 / op.count.saturating_sub(1).max(1) as f64;
    let further = [F32((1.0 - momentum) as f32), F32(momentum as f32), F32(unbias as f32)];
    let launch =
        |table: &Table<7>| KernelLaunch::new(name, FILE, name, table.blocks, [&table.args()[..], &further].concat());
    let launches = Table::cut(members.into_iter()).iter().map(launch).collect::<Result<Vec<_>, _>>()?;
    Ok(launches.into())
}
