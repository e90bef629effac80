//! Groups: many members' work in one launch where their op has a kernel for that, else launch after launch.

use super::plan::LaunchPlan;
use super::{KernelError, Operand, batch_norm, cast, prepare_one, sgd};
use vdnn_graph::Op;
use vdnn_graph::op::Group;

/// (inputs of each member) → (outputs of each member).
pub(super) fn prepare(
    op: &Group,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    let mut members = op.shares(inputs).zip(op.shares(outputs));
    match &*op.op {
        Op::Sgd(sgd) => sgd::prepare(sgd, members),
        Op::BatchNormUpdate(update) => batch_norm::prepare_updates(update, members),
        Op::Cast(_) => cast::prepare_many(members),
        other => {
            let mut launches = Vec::new();
            members.try_for_each(|(inputs, outputs)| {
                launches.extend(prepare_one(other, inputs, outputs, workspace)?.launches);
                Ok(())
            })?;
            Ok(launches.into())
        }
    }
}
