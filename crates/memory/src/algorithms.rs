//! Algorithms beside what a step holds: the fastest whose workspace fits, step by step.

use crate::stream::with_streamed;
use crate::stretch::Intervals;
use crate::window::{Slack, windows};
use crate::{Gap, Liveness, MemoryPlan, Problem};
use vdnn_graph::NodeId;
use vdnn_tensor::Bytes;

/// Puts into `plan` an algorithm for every node, none of which makes a step hold more than `room` bytes when `gaps` are
/// offloaded, nor, where it can be helped, more than `room - reserve`. `None` where not even the least workspace fits.
pub(crate) fn choose_beside(
    problem: &Problem<'_>,
    plan: &MemoryPlan,
    liveness: &Liveness,
    gaps: &[Gap],
    room: Bytes,
    reserve: Bytes,
) -> Option<MemoryPlan> {
    let gaps = &*with_streamed(problem, plan, liveness, gaps);
    let tight = windows(problem, plan, gaps, Slack::Tight);
    let mut intervals = Intervals::with_windows(problem, plan, liveness, &tight).ok()?;
    intervals.workspaces.clear();
    // A node's runs share one algorithm, so the run with the least room decides.
    let mut left: Vec<Option<Bytes>> = vec![None; problem.program.graph.nodes().len()];
    for (u, held) in plan.order.iter().zip(intervals.live_profile()) {
        let here = room.checked_sub(held)?;
        let least = &mut left[u.node.index()];
        *least = Some(least.map_or(here, |other| other.min(here)));
    }
    let mut plan = plan.clone();
    for node in problem.program.graph.node_ids() {
        let left = left[node.index()].unwrap_or(0);
        let choice = step_down(problem, node, left.saturating_sub(reserve)).or_else(|| leanest(problem, node, left))?;
        // The fastest needs no word.
        if choice > 0 {
            plan.algos.insert(node, choice);
        }
    }
    Some(plan)
}

/// Puts into `plan` the algorithm of each node that wants the least workspace.
pub(crate) fn least_workspace(problem: &Problem<'_>, mut plan: MemoryPlan) -> MemoryPlan {
    for node in problem.program.graph.node_ids() {
        plan.algos.insert(node, least(problem, node).map_or(0, |(index, _)| index));
    }
    plan
}

/// The first choice, fastest first, whose workspace fits.
fn step_down(problem: &Problem<'_>, node: NodeId, room: Bytes) -> Option<usize> {
    problem.kernels.of(node).iter().position(|choice| choice.workspace <= room)
}

/// The choice with the least workspace, if that fits.
fn leanest(problem: &Problem<'_>, node: NodeId, room: Bytes) -> Option<usize> {
    least(problem, node).filter(|&(_, workspace)| workspace <= room).map(|(index, _)| index)
}

fn least(problem: &Problem<'_>, node: NodeId) -> Option<(usize, Bytes)> {
    let choices = problem.kernels.of(node).iter().map(|choice| choice.workspace).enumerate();
    choices.min_by_key(|&(index, workspace)| (workspace, index))
}
