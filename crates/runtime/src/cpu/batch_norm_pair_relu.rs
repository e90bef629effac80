//! Two batch norms, their sum and ReLU: the two ops that a pair stands for one after the other, in one workspace. So the bits are
//! theirs, in half precision too, where what is between them is rounded.

use super::choices::{LOOP, choices_of};
use super::launch::{self, Launch};
use super::operand::{Input, Output};
use crate::DeviceError;
use vdnn_graph::Op;
use vdnn_graph::op::{BatchNorm, BatchNormPair};
use vdnn_schedule::Choice;
use vdnn_tensor::TensorType;

/// Whether an op is a pair or its gradient.
pub(super) fn is_pair(op: &Op) -> bool {
    matches!(op, Op::BatchNormPairRelu(_) | Op::BatchNormPairReluGrad(_))
}

fn norms(op: &BatchNormPair) -> [BatchNorm; 2] {
    op.eps.map(|eps| BatchNorm { eps })
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
