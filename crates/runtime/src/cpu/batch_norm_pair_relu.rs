//! Two batch norms, their sum and ReLU in one pass. The bits are those of the ops one after the other; in half precision, where what
//! is between them is rounded, they do run one after the other.

use super::batch_norm::{Coefficients, Gradient};
use super::choices::{LOOP, choices_of};
use super::launch::{self, Launch};
use super::operand::{Input, Output};
use super::real::Real;
use super::relu::{rectified, through_mask, write_mask};
use super::stretch::zip;
use crate::DeviceError;
use rayon::prelude::*;
use vdnn_graph::Op;
use vdnn_graph::op::{BatchNorm, BatchNormPair};
use vdnn_schedule::Choice;
use vdnn_tensor::TensorType;

/// (A, mean, variance, gamma, beta, B, mean, variance, gamma, beta) → Y, mask, with Y also over B.
pub(super) fn forward<T: Real>(op: &BatchNormPair, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let [of_a, of_b] = norms(op);
    let (of_a, of_b) = (Coefficients::of(&of_a, &launch, 1)?, Coefficients::of(&of_b, &launch, 6)?);
    let (a, b) = (launch.input::<T>(0)?, launch.source::<T>(5, 0)?);
    let [n, c, ..] = launch.input_dims(0);
    let (y, mask) = (launch.output::<T>(0)?, launch.byte_output(1)?);
    let samples = y.into_parts(n).into_par_iter().zip(mask.into_parts(n)).enumerate();
    samples.for_each(|(sample, (y, mask))| {
        let plane = y.len() / c.max(1);
        for (channel, y) in y.chunks_exact_mut(plane.max(1)).enumerate() {
            let (line_a, line_b) = (of_a.channel(channel), of_b.channel(channel));
            let (a, b) = (a.part(sample * c + channel, n * c), b.map(|b| b.part(sample * c + channel, n * c)));
            for (i, y) in y.iter_mut().enumerate() {
                *y = rectified(line_a.apply(a[i]) + line_b.apply(b.map_or(*y, |b| b[i])));
            }
        }
        write_mask(y, mask);
    });
    Ok(())
}

/// (A, dY, mask, mean, variance, gamma, B, mean, variance, gamma, dY'?) → dA, dgamma, dbeta, dB, dgamma, dbeta, with dA or dB also
/// over dY and dA over dY'. dB first holds ReLU's dX, from which both norms' gradients follow; nothing reads dY or dY' after that.
pub(super) fn grad<T: Real>(op: &BatchNormPair, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let [of_a, of_b] = norms(op);
    let (of_a, of_b) = (Gradient::of(&of_a, &launch, 3)?, Gradient::about(&of_b, &launch, 6, 7)?);
    let (samples, mask) = (launch.samples(), launch.bytes(2)?);
    let [dy_under_da, second_under_da] = [1, 10].map(|at| matches!(launch.inputs.get(at), Some(Input::InPlace(0))));
    let has_second = launch.inputs.len() > 10;
    let dy = if dy_under_da { None } else { launch.source::<T>(1, 3)? };
    let second = if has_second && !second_under_da { Some(launch.input::<T>(10)?) } else { None };
    let [da, mut db] = [launch.output::<T>(0)?, launch.output::<T>(3)?];
    let dy = if dy_under_da { Some(da.as_view()) } else { dy };
    if has_second {
        let second = second.unwrap_or(da.as_view());
        zip(samples, second, dy, db.reborrow(), |second, dy| dy + second);
        through_mask(samples, mask, None, db.reborrow());
    } else {
        through_mask(samples, mask, dy, db.reborrow());
    }
    of_a.write(Some(db.as_view()), [da, launch.output::<T>(1)?, launch.output::<T>(2)?]);
    of_b.write(None, [db, launch.output::<T>(4)?, launch.output::<T>(5)?]);
    Ok(())
}

fn norms(op: &BatchNormPair) -> [BatchNorm; 2] {
    op.eps.map(|eps| BatchNorm { eps })
}

/// Whether an op is a pair whose maps are of half precision.
pub(super) fn is_of_two(op: &Op, inputs: &[TensorType]) -> bool {
    let pair = matches!(op, Op::BatchNormPairRelu(_) | Op::BatchNormPairReluGrad(_));
    pair && inputs.first().is_some_and(|ty| ty.dtype.is_half())
}

/// One of the two ops: which of the pair's inputs it reads, where `None` is what the first left under its first output, and which of
/// the pair's outputs it makes.
struct Part {
    op: Op,
    inputs: Vec<Option<usize>>,
    outputs: Vec<usize>,
}

/// B's norm into Y and A's with that residual; or A's gradient, whose dR lies where dB will, and B's of that.
fn parts(op: &Op, inputs: usize) -> Option<[Part; 2]> {
    match op {
        Op::BatchNormPairRelu(pair) => {
            let [a, b] = norms(pair);
            let residual = Part { op: Op::BatchNorm(b), inputs: (5..10).map(Some).collect(), outputs: vec![0] };
            let of_a = (0..5).map(Some).chain([None]).collect();
            Some([residual, Part { op: Op::BatchNormAddRelu(a), inputs: of_a, outputs: vec![0, 1] }])
        }
        Op::BatchNormPairReluGrad(pair) => {
            let [a, b] = norms(pair);
            let of_a = (0..6).chain(10..inputs).map(Some).collect();
            let of_b = [Some(6), None, Some(7), Some(8), Some(9)].to_vec();
            let first = Part { op: Op::BatchNormAddReluGrad(a), inputs: of_a, outputs: vec![0, 1, 2, 3] };
            Some([first, Part { op: Op::BatchNormGrad(b), inputs: of_b, outputs: vec![3, 4, 5] }])
        }
        _ => None,
    }
}

impl Part {
    /// Types of what it reads, the map between being of `between`'s type, and of what it makes.
    fn types(&self, inputs: &[TensorType], outputs: &[TensorType]) -> (Vec<TensorType>, Vec<TensorType>) {
        let reads = self.inputs.iter().map(|input| input.map_or(&outputs[0], |index| &inputs[index]).clone());
        (reads.collect(), self.outputs.iter().map(|&index| outputs[index].clone()).collect())
    }
}

/// Runs the two ops one after the other, in one workspace. What is between lies in an output of both, and nothing else does.
pub(super) fn run(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let Some(parts) = parts(launch.op, launch.inputs.len()) else { return Err(launch.refuse("expected a pair")) };
    let mut inputs: Vec<Option<Input<'_>>> = std::mem::take(&mut launch.inputs).into_iter().map(Some).collect();
    let mut outputs = std::mem::take(&mut launch.outputs);
    for part in &parts {
        let (reads, makes) = part.types(launch.input_types, launch.output_types);
        let given = part.inputs.iter().map(|input| match input {
            Some(index) => inputs.get_mut(*index).and_then(Option::take),
            None => Some(Input::InPlace(0)),
        });
        let given: Option<Vec<Input<'_>>> = given.collect();
        let Some(given) = given else { return Err(launch.refuse("expected each input once")) };
        let made = outputs.iter_mut().enumerate().filter(|(index, _)| part.outputs.contains(index));
        launch::launch(Launch {
            node: launch.node,
            op: &part.op,
            input_types: &reads,
            output_types: &makes,
            algorithm: LOOP,
            inputs: given,
            outputs: made.map(|(_, output)| output.reborrow()).collect::<Vec<Output<'_>>>(),
            workspace: launch.workspace.as_deref_mut(),
        })?;
    }
    Ok(())
}

/// The two ops' one way each: the times together, the larger workspace.
///
/// # Errors
/// As [`choices_of`] of the two.
pub(super) fn choices(op: &Op, inputs: &[TensorType], outputs: &[TensorType]) -> Result<Vec<Choice>, DeviceError> {
    let mut both: Option<Choice> = None;
    for part in parts(op, inputs.len()).into_iter().flatten() {
        let (reads, makes) = part.types(inputs, outputs);
        for choice in choices_of(&part.op, &reads, &makes)?.into_iter().take(1) {
            both = Some(match both {
                None => choice,
                Some(first) => Choice {
                    workspace: first.workspace.max(choice.workspace),
                    seconds: first.seconds + choice.seconds,
                    ..first
                },
            });
        }
    }
    Ok(both.into_iter().collect())
}
