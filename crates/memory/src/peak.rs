//! Where a plan holds most, for refusals that say what to do about it.

use crate::stretch::Intervals;
use crate::{LargestBuffer, Problem};
use vdnn_graph::Step;

/// The step that holds most, and the five largest buffers live there.
pub(crate) fn largest_at_peak(problem: &Problem<'_>, intervals: &Intervals) -> (Step, Vec<LargestBuffer>) {
    let live = intervals.live_profile();
    let peak = live.iter().copied().max().unwrap_or(0);
    let step = Step(live.iter().position(|&bytes| bytes == peak).unwrap_or(0) as u32);
    let graph = &problem.program.graph;
    let stretches = intervals.stretches.iter().filter(|s| s.steps().contains(&step.index()));
    let mut largest: Vec<LargestBuffer> =
        stretches.map(|s| LargestBuffer { name: graph.value(s.root).name.clone(), bytes: s.bytes }).collect();
    let workspaces = intervals.workspaces.iter().filter(|w| w.step == step);
    largest.extend(
        workspaces.map(|w| LargestBuffer { name: format!("{}.workspace", graph.node(w.node).name), bytes: w.bytes }),
    );
    largest.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    largest.truncate(5);
    (step, largest)
}
