//! Algorithms beside what a step holds: the fastest whose workspace fits, step by step.
//!
//! The paper's policies choose among the kernels of the whole batch; those that ask for it may also run a kernel in pieces of
//! the batch, with about a piece's share of the workspace (docs/decisions/0017).

use crate::estimate::Pace;
use crate::held::Held;
use crate::stream::with_streamed;
use crate::window::tight;
use crate::{Gap, Liveness, MemoryPlan, Problem};
use std::collections::BTreeMap;
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
    /// The same, and of those that take about the same time the one with the least workspace, which leaves more room for
    /// copies under way.
    LeanPieces,
}

/// By how much longer about the same time is.
const ABOUT: f64 = 0.003;

impl Offered {
    /// With the least workspace of what is about as fast, where there are pieces.
    pub fn lean(self) -> Self {
        if self == Offered::Whole { self } else { Offered::LeanPieces }
    }

    /// The choices with their numbers, in two rows each of which has the fastest first.
    fn rows<'a>(self, problem: &Problem<'a>, node: NodeId) -> [&'a [Choice]; 2] {
        let pieces = if self == Offered::Whole { &[] } else { problem.kernels.pieces_of(node) };
        [problem.kernels.of(node), pieces]
    }
}

/// Puts into `plan` an algorithm for every node, none of which makes a step hold more than `room` bytes when `gaps` are
/// offloaded, nor, where it can be helped, more than `room - reserve`. `None` where not even the least workspace fits. `held`
/// is what the plan holds without them.
pub(crate) fn choose_beside(
    problem: &Problem<'_>,
    plan: &MemoryPlan,
    (liveness, held): (&Liveness, &Held),
    gaps: &[Gap],
    (room, reserve): (Bytes, Bytes),
    offered: Offered,
) -> Option<MemoryPlan> {
    let gaps = &*with_streamed(problem, plan, liveness, gaps);
    let held = held.under(problem, &tight(problem, &Pace::of(problem, plan), gaps));
    // A node's runs share one algorithm, so the run with the least room decides.
    let mut left: Vec<Option<Bytes>> = vec![None; problem.program.graph.nodes().len()];
    for (u, held) in plan.order.iter().zip(held) {
        let here = room.checked_sub(held)?;
        let least = &mut left[u.node.index()];
        *least = Some(least.map_or(here, |other| other.min(here)));
    }
    let mut plan = plan.clone();
    let mut algos = Vec::new();
    for node in problem.program.graph.node_ids() {
        let left = left[node.index()].unwrap_or(0);
        let rows = offered.rows(problem, node);
        let fastest = step_down(rows, left.saturating_sub(reserve)).or_else(|| leanest(rows, left))?;
        let choice = if offered == Offered::LeanPieces { about_as_fast(rows, fastest) } else { fastest };
        // The fastest needs no word.
        if choice > 0 {
            algos.push((node, choice));
        }
    }
    plan.algos.append(&mut algos.into_iter().collect());
    Some(plan)
}

/// The algorithm of each node that wants the least workspace.
pub(crate) fn least_workspace(problem: &Problem<'_>, offered: Offered) -> BTreeMap<NodeId, usize> {
    let number = |node| least(offered.rows(problem, node)).map_or(0, |(number, _)| number);
    problem.program.graph.node_ids().map(|node| (node, number(node))).collect()
}

/// The fastest choice of a node whose workspace is no more than `room`.
pub(crate) fn fastest_within(problem: &Problem<'_>, node: NodeId, offered: Offered, room: Bytes) -> Option<usize> {
    step_down(offered.rows(problem, node), room)
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

/// The choice with the least workspace of those that take about the time of choice `number`.
fn about_as_fast(rows: [&[Choice]; 2], number: usize) -> usize {
    let all = || rows.into_iter().flatten().enumerate();
    let Some((_, chosen)) = all().nth(number) else { return number };
    let near = all().filter(|(_, choice)| choice.seconds <= chosen.seconds * (1.0 + ABOUT));
    near.min_by_key(|&(other, choice)| (choice.workspace, other)).map_or(number, |(other, _)| other)
}

/// The choice with the least workspace, if that fits.
fn leanest(rows: [&[Choice]; 2], room: Bytes) -> Option<usize> {
    least(rows).filter(|&(_, workspace)| workspace <= room).map(|(number, _)| number)
}

fn least(rows: [&[Choice]; 2]) -> Option<(usize, Bytes)> {
    let choices = rows.into_iter().flatten().map(|choice| choice.workspace).enumerate();
    choices.min_by_key(|&(number, workspace)| (workspace, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(seconds: f64, workspace: Bytes) -> Choice {
        Choice { algorithm: "any".to_string(), workspace, seconds, deterministic: true }
    }

    #[test]
    fn pieces_are_numbered_after_the_whole_batch_and_taken_where_they_are_faster() {
        let whole = [choice(1.0, 100), choice(5.0, 10)];
        let pieces = [choice(1.002, 50), choice(1.1, 30), choice(6.0, 5)];
        let rows: [&[Choice]; 2] = [&whole, &pieces];
        for (room, number) in [(100, Some(0)), (99, Some(2)), (49, Some(3)), (29, Some(1)), (9, Some(4)), (4, None)] {
            assert_eq!(step_down(rows, room), number, "{room} bytes");
        }
        assert_eq!((least(rows), leanest(rows, 5), leanest(rows, 4)), (Some((4, 5)), Some(4), None));
        // Within 0.3 % of the fastest, but no further.
        assert_eq!([0, 2, 3, 1].map(|number| about_as_fast(rows, number)), [2, 2, 3, 1]);
        let none: [&[Choice]; 2] = [&whole, &[]];
        assert_eq!((step_down(none, 99), least(none), about_as_fast(none, 0)), (Some(1), Some((1, 10)), 0));
    }
}
