//! A convolution and the statistics of its output: the two kernels one after the other, in one workspace. So the bits are those of
//! the two ops, in half precision too, where statistics are taken of the numbers that were rounded.

use super::choices::{LOOP, choices_of};
use super::launch::{self, Launch};
use super::operand::Output;
use crate::DeviceError;
use vdnn_graph::Op;
use vdnn_graph::op::Conv2d;
use vdnn_schedule::Choice;
use vdnn_tensor::TensorType;

/// (X, W) → Y, mean, variance.
pub(super) fn run(op: &Conv2d, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let outputs = <[Output<'_>; 3]>::try_from(std::mem::take(&mut launch.outputs));
    let Ok([mut y, mean, variance]) = outputs else {
        return Err(launch.refuse("expected Y, mean and variance as outputs"));
    };
    let Launch { node, input_types, output_types, algorithm, inputs, mut workspace, .. } = launch;
    let (y_type, statistics) = output_types.split_at(1);
    launch::launch(Launch {
        node,
        op: &Op::Conv2d(*op),
        input_types,
        output_types: y_type,
        algorithm,
        inputs,
        outputs: vec![y.reborrow()],
        workspace: workspace.as_deref_mut(),
    })?;
    launch::launch(Launch {
        node,
        op: &Op::BatchNormStats,
        input_types: y_type,
        output_types: statistics,
        algorithm: LOOP,
        inputs: vec![y.as_input()],
        outputs: vec![mean, variance],
        workspace,
    })
}

/// The convolution's choices with the statistics behind them: the times together, the larger workspace.
///
/// # Errors
/// As [`choices_of`] of the two.
pub(super) fn choices(op: &Conv2d, inputs: &[TensorType], outputs: &[TensorType]) -> Result<Vec<Choice>, DeviceError> {
    let (y, statistics) = outputs.split_at(1);
    let after = choices_of(&Op::BatchNormStats, y, statistics)?;
    let mut choices = choices_of(&Op::Conv2d(*op), inputs, y)?;
    for (choice, after) in choices.iter_mut().flat_map(|choice| Some((choice, after.first()?))) {
        choice.workspace = choice.workspace.max(after.workspace);
        choice.seconds += after.seconds;
    }
    Ok(choices)
}
