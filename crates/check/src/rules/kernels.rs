//! Every launch uses an algorithm that its node has, with the workspace that algorithm asks for.

use crate::{Rule, Violation, describe};
use vdnn_schedule::{Action, KernelTable, Schedule};

pub(crate) fn check(schedule: &Schedule, table: &KernelTable) -> Vec<Violation> {
    if table.choices.len() != schedule.nodes.len() {
        let (expected, found) = (schedule.nodes.len(), table.choices.len());
        let message = format!("expected a kernel table of {expected} nodes, found one of {found}");
        return vec![Violation::whole(Rule::Kernels, message)];
    }
    let mut found = Vec::new();
    for (index, command) in schedule.commands.iter().enumerate() {
        let Action::Launch { node, algo, workspace, .. } = &command.action else { continue };
        let (name, algorithm) = (describe::node(schedule, *node), &schedule.algorithms[algo.index()]);
        let Some(choice) = table.find(*node, algorithm) else {
            let known: Vec<&str> = table.all(*node).map(|choice| choice.algorithm.as_str()).collect();
            let message = format!("expected {name} by one of {}, found {algorithm}", known.join(", "));
            found.push(Violation::at(Rule::Kernels, index, message));
            continue;
        };
        let given = workspace.map_or(0, |region| region.bytes());
        if given < choice.workspace {
            let wanted = choice.workspace;
            let message = format!("expected {wanted} bytes of workspace for {name} by {algorithm}, found {given}");
            found.push(Violation::at(Rule::Kernels, index, message));
        }
    }
    found
}
