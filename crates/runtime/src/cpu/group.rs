//! A group: its members' kernels, one after the other, in one workspace.

use super::choices::{LOOP, choices_of};
use super::launch::{self, Launch};
use super::operand::Input;
use crate::DeviceError;
use vdnn_graph::op::Group;
use vdnn_schedule::Choice;
use vdnn_tensor::TensorType;

/// Runs every member.
pub(super) fn run(op: &Group, launch: Launch<'_>) -> Result<(), DeviceError> {
    let Launch { node, input_types, output_types, algorithm, inputs, outputs, mut workspace, .. } = launch;
    let (each_input, each_output) = (op.share(inputs.len()), op.share(outputs.len()));
    let (mut inputs, mut outputs) = (inputs.into_iter(), outputs.into_iter());
    for (member, (input_types, output_types)) in op.shares(input_types).zip(op.shares(output_types)).enumerate() {
        launch::launch(Launch {
            node,
            op: &op.op,
            input_types,
            output_types,
            algorithm,
            inputs: inputs.by_ref().take(each_input).map(|input| from(member * each_output, input)).collect(),
            outputs: outputs.by_ref().take(each_output).collect(),
            workspace: workspace.as_deref_mut(),
        })?;
    }
    Ok(())
}

/// An input with outputs counted from the member's first.
fn from(first: usize, input: Input<'_>) -> Input<'_> {
    match input {
        Input::InPlace(output) => Input::InPlace(output - first),
        apart => apart,
    }
}

/// The members' loops as one choice: their times together, and the largest workspace.
///
/// # Errors
/// As [`choices_of`] of a member.
pub(super) fn choices(op: &Group, inputs: &[TensorType], outputs: &[TensorType]) -> Result<Vec<Choice>, DeviceError> {
    let mut all = Choice { algorithm: LOOP.to_string(), workspace: 0, seconds: 0.0, deterministic: true };
    for (inputs, outputs) in op.shares(inputs).zip(op.shares(outputs)) {
        let of_member = choices_of(&op.op, inputs, outputs)?;
        let Some(first) = of_member.iter().find(|choice| choice.algorithm == LOOP) else { return Ok(Vec::new()) };
        all.workspace = all.workspace.max(first.workspace);
        all.seconds += first.seconds;
    }
    Ok(vec![all])
}
