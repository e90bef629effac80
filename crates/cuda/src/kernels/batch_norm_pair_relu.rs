//! Two batch normalisations under a sum and a ReLU.
//!
//! Where channels are innermost there are kernels of their own: one pass forward, two backward, the first of which leaves what goes
//! through where dB will be. f32 in NCHW order puts the kernels of the single ops together. Both give the single ops' bits.

use super::elementwise::address_and_stride;
use super::nhwc::{Columns, TALL_PAIR, is_innermost, partial_bytes};
use super::plan::{KernelArg, KernelLaunch, THREADS, at_most};
use super::{KernelError, LaunchPlan, Operand, add, batch_norm, batch_norm_relu, file_of, files, operands, relu};
use KernelArg::{F32, U32, U64};
use vdnn_graph::op::{BatchNorm, BatchNormPair};
use vdnn_tensor::{Bytes, TensorType};

const FILES: [&str; 3] = files!("batch_norm_pair_relu_nhwc");
const FORWARD: &str = "batch_norm_pair_relu";
const GRADIENT: &str = "batch_norm_pair_relu_grad";

/// Bytes of partial sums: three a stretch where channels are innermost, of which both norms share one.
pub(super) fn workspace(a: &TensorType) -> Bytes {
    if is_innermost(a) { partial_bytes(a, 3) } else { batch_norm::workspace(a) }
}

/// (A, mean, variance, gamma, beta, B, mean, variance, gamma, beta) → Y, mask.
pub(super) fn prepare(
    op: &BatchNormPair,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
) -> Result<LaunchPlan, KernelError> {
    let ([a, of_a @ .., b, _, _, _, _], [y, mask]) = (operands::<10>(FORWARD, inputs)?, operands(FORWARD, outputs)?);
    if !is_innermost(a.ty) {
        // Y first holds the residual.
        let [norm, other] = op.eps.map(|eps| BatchNorm { eps });
        let residual = batch_norm::prepare(&other, &inputs[5..], &[y])?;
        let with_residual = [&[a][..], &of_a, &[y]].concat();
        let sum = batch_norm_relu::prepare_add(&norm, &with_residual, &[y, mask])?;
        return Ok([residual.launches, sum.launches].concat().into());
    }
    if a.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let file = file_of(a.ty.dtype, FILES);
    let mut args = Vec::with_capacity(24);
    for of in [&inputs[..5], &inputs[5..]] {
        args.extend(address_and_stride(&of[0]));
        args.extend(of[1..].iter().map(|o| U64(o.address)));
    }
    args.extend(address_and_stride(&y));
    args.push(U64(mask.address));
    let numbers = op.eps.map(|eps| F32(eps as f32));
    if let Some(cut) = Columns::applying_with_mask(&[a, b, y]) {
        args.extend(cut.args(FORWARD)?);
        args.extend(numbers);
        return Ok(vec![cut.launch(FORWARD, file, "batch_norm_pair_relu_packed", args)?].into());
    }
    let (sample, bytes) = (a.sample(), a.sample().div_ceil(8));
    let total = a.samples() * bytes;
    let channels = at_most(FORWARD, "the number of channels", a.channels().0, (1 << 31) - 1)?;
    args.extend([U32(channels), U64(sample), U64(bytes), U64(total)]);
    args.extend(numbers);
    let blocks = total.div_ceil(u64::from(THREADS));
    Ok(vec![KernelLaunch::new(FORWARD, file, "batch_norm_pair_relu_single", blocks, args)?].into())
}

/// (A, dY, mask, mean, variance, gamma, B, mean, variance, gamma, dY'?) → dA, dgamma, dbeta, dB, dgamma, dbeta.
pub(super) fn prepare_grad(
    op: &BatchNormPair,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let (inputs, second) = inputs.split_at(inputs.len().min(10));
    let [a, dy, mask, mean_a, variance_a, gamma_a, b, mean_b, variance_b, gamma_b] = operands(GRADIENT, inputs)?;
    let [da, dgamma_a, dbeta_a, db, dgamma_b, dbeta_b] = operands(GRADIENT, outputs)?;
    let of = Gradient {
        maps: [a, b],
        coefficients: [[mean_a, variance_a, gamma_a], [mean_b, variance_b, gamma_b]],
        dy,
        second: second.first().copied(),
        mask,
        gradients: [da, db],
        parameters: [[dgamma_a, dbeta_a], [dgamma_b, dbeta_b]],
    };
    if !is_innermost(a.ty) {
        return of.by_single_ops(op, workspace);
    }
    if dgamma_a.elements() == 0 {
        return Ok(LaunchPlan::default());
    }
    let sums = of.sums(op, workspace)?;
    if a.elements() == 0 {
        return Ok(vec![sums].into());
    }
    Ok(vec![sums, of.apply(op)?].into())
}

/// Operands of the gradient; of two, A's come first.
struct Gradient<'a> {
    maps: [Operand<'a>; 2],
    /// Mean, variance, gamma.
    coefficients: [[Operand<'a>; 3]; 2],
    dy: Operand<'a>,
    /// Added to dY.
    second: Option<Operand<'a>>,
    mask: Operand<'a>,
    /// dA, dB. What goes through lies where dB will.
    gradients: [Operand<'a>; 2],
    /// dgamma, dbeta.
    parameters: [[Operand<'a>; 2]; 2],
}

impl Gradient<'_> {
    /// The sums of what goes through, which is written on the way.
    fn sums(&self, op: &BatchNormPair, workspace: u64) -> Result<KernelLaunch, KernelError> {
        let ([a, b], [_, through]) = (self.maps, self.gradients);
        let all: Vec<Operand<'_>> = [a, b, self.dy, through].into_iter().chain(self.second).collect();
        let cut = Columns::reducing(&all, TALL_PAIR);
        let (sample, hw) = (a.sample(), a.channels().1);
        let second = self.second.map_or([U64(0), U64(0)], |second| address_and_stride(&second));
        let mut args = [a, b, self.dy].map(|o| address_and_stride(&o)).concat();
        args.extend(second);
        args.extend([self.mask.address, hw, sample.div_ceil(8)].map(U64));
        args.extend(address_and_stride(&through));
        args.extend(cut.args(GRADIENT)?);
        args.push(U64(workspace));
        for ([mean, variance, _], parameters) in self.coefficients.iter().zip(&self.parameters) {
            args.extend([mean, variance, &parameters[0], &parameters[1]].map(|o| U64(o.address)));
        }
        args.extend(op.eps.map(|eps| F32(eps as f32)));
        let function = match self.second {
            None => cut.pick("batch_norm_pair_sums_packed", "batch_norm_pair_sums_single"),
            Some(_) => cut.pick("batch_norm_pair_sums2_packed", "batch_norm_pair_sums2_single"),
        };
        cut.launch(GRADIENT, file_of(a.ty.dtype, FILES), function, args)
    }

    /// dA and dB from the sums and from what goes through.
    fn apply(&self, op: &BatchNormPair) -> Result<KernelLaunch, KernelError> {
        let ([a, b], [da, db]) = (self.maps, self.gradients);
        let cut = Columns::applying(&[a, b, da, db]);
        let mut args = [a, b].map(|o| address_and_stride(&o)).concat();
        for of in &self.coefficients {
            args.extend(of.iter().map(|o| U64(o.address)));
            args.push(U64(0));
        }
        args.extend(self.parameters.iter().flatten().map(|o| U64(o.address)));
        args.extend([da, db].map(|o| address_and_stride(&o)).concat());
        args.extend(cut.args(GRADIENT)?);
        args.extend(op.eps.map(|eps| F32(eps as f32)));
        args.push(F32((1.0 / cut.rows as f64) as f32));
        let function = cut.pick("batch_norm_pair_grad_packed", "batch_norm_pair_grad_single");
        cut.launch(GRADIENT, file_of(a.ty.dtype, FILES), function, args)
    }

    /// The same by the kernels of f32: nothing reads dY once what goes through is known, so dA may lie over it.
    fn by_single_ops(&self, op: &BatchNormPair, workspace: u64) -> Result<LaunchPlan, KernelError> {
        let through = self.gradients[1];
        let sum =
            self.second.map_or(Ok(LaunchPlan::default()), |second| add::prepare(&[self.dy, second], &[through]))?;
        let dy = if self.second.is_some() { through } else { self.dy };
        let mut launches = [sum.launches, relu::prepare_mask_grad(&[self.mask, dy], &[through])?.launches].concat();
        for index in 0..2 {
            let ([mean, variance, gamma], [dgamma, dbeta]) = (self.coefficients[index], self.parameters[index]);
            let (inputs, outputs) =
                ([self.maps[index], through, mean, variance, gamma], [self.gradients[index], dgamma, dbeta]);
            let norm = BatchNorm { eps: op.eps[index] };
            launches.extend(batch_norm::prepare_grad(&norm, &inputs, &outputs, workspace)?.launches);
        }
        Ok(launches.into())
    }
}
