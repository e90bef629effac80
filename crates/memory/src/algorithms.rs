//! Algorithms beside what a step holds: the fastest whose workspace fits, step by step.
//!
//! The paper's policies choose among the kernels of the whole batch; those that ask for it may also run a kernel in pieces of
//! the batch, with about a piece's share of the workspace (docs/decisions/0017).

use crate::stretch::Intervals;
use crate::window::{Slack, windows};
use crate::{Gap, Liveness, MemoryPlan, Problem};
use vdnn_graph::NodeId;
use vdnn_schedule::Choice;
use vdnn_tensor::Bytes;

/// Which of a node's choices a policy sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// Those of the whole batch.
    Whole,
    /// Those in pieces of the batch as well.
    Pieces,
}

impl Offered {
    /// The choices with their numbers, in two rows each of which has the fastest first.
    fn rows<'a>(self, problem: &Problem<'a>, node: NodeId) -> [&'a [Choice]; 2] {
        let pieces = if self == Offered::Pieces { problem.kernels.pieces_of(node) } else { &[] };
        [problem.kernels.of(node), pieces]
    }
}

/// Puts into `plan` an algorithm for every node, none of which makes a step hold more than `room` bytes when `gaps` are
/// offloaded, nor, where it can be helped, more than `room - reserve`. `None` where not even the least workspace fits.
pub(crate) fn choose_beside(
    problem: &Problem<'_>,
    plan: &MemoryPlan,
    liveness: &Liveness,
    gaps: &[Gap],
    (room, reserve): (Bytes, Bytes),
    offered: Offered,
) -> Option<MemoryPlan> {
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
        let rows = offered.rows(problem, node);
        let choice = step_down(rows, left.saturating_sub(reserve)).or_else(|| leanest(rows, left))?;
        // The fastest needs no word.
        if choice > 0 {
            plan.algos.insert(node, choice);
        }
    }
    Some(plan)
}

/// Puts into `plan` the algorithm of each node that wants the least workspace.
pub(crate) fn least_workspace(problem: &Problem<'_>, mut plan: MemoryPlan, offered: Offered) -> MemoryPlan {
    for node in problem.program.graph.node_ids() {
        plan.algos.insert(node, least(offered.rows(problem, node)).map_or(0, |(number, _)| number));
    }
    plan
}

/// The fastest choice whose workspace fits.
fn step_down([whole, pieces]: [&[Choice]; 2], room: Bytes) -> Option<usize> {
    let fits = |choice: &Choice| choice.workspace <= room;
    match (whole.iter().position(fits), pieces.iter().position(fits)) {
        (Some(one), Some(many)) if pieces[many].seconds < whole[one].seconds => Some(whole.len() + many),
        (None, Some(many)) => Some(whole.len() + many),
        (one, _) => one,
    }
}

/// The choice with the least workspace, if that fits.
fn leanest(rows: [&[Choice]; 2], room: Bytes) -> Option<usize> {
    least(rows).filter(|&(_, workspace)| workspace <= room).map(|(number, _)| number)
}

fn least(rows: [&[Choice]; 2]) -> Option<(usize, Bytes)> {
    let choices = rows.into_iter().flatten().map(|choice| choice.workspace).enumerate();
    choices.min_by_key(|&(number, workspace)| (workspace, number))
}
