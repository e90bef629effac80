//! Which parameters and states stream: tried where everything at home on the device is refused or slow.
//!
//! ```text
//!   at home ──► refused, or slower than it must be ──► momentum, then parameters too, largest first: shares of their bytes,
//!                                                     a few estimates each; the most promising is searched like any other
//! ```
//! States come first: momentum is used once an iteration and costs a copy up and one down, a parameter two up and one
//! down. What stays has no copies at all, so nothing streams while everything fits.

use crate::{Infeasible, MemoryPlan, Options, Problem, State, compile, step_time_bound};
use std::collections::BTreeSet;
use vdnn_graph::{Role, ValueId};
use vdnn_sim::simulate;
use vdnn_tensor::Bytes;

/// How much slower than the lower bound an iteration may be before streaming is tried, as a share.
const SLOW: f64 = 0.01;
/// Shares of the bytes that may stream.
const SHARES: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

/// The better of the plans that `searched` finds with all at home and with the most `promising` share streaming, whose
/// estimate that gives.
pub(super) fn plan(
    problem: &Problem<'_>,
    searched: impl Fn(&Problem<'_>) -> Result<MemoryPlan, Infeasible>,
    promising: impl Fn(&Problem<'_>) -> Option<f64>,
) -> Result<MemoryPlan, Infeasible> {
    let at_home = searched(problem);
    if problem.options.state != State::Auto || problem.budgets.device.is_none() {
        return at_home;
    }
    let least = at_home.as_ref().map_or(f64::INFINITY, |plan| seconds(problem, plan));
    if least <= step_time_bound(problem).seconds * (1.0 + SLOW) {
        return at_home;
    }
    let mut shares: Vec<(f64, BTreeSet<ValueId>)> = shares(problem)
        .into_iter()
        .map(|streamed| {
            let estimate = streaming(problem, &streamed, |problem| promising(problem));
            (estimate.unwrap_or(f64::INFINITY), streamed)
        })
        .collect();
    // Where nothing is estimated to fit, all of it streams: that decides whether there is a plan.
    shares.reverse();
    shares.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some((_, streamed)) = shares.into_iter().find(|(estimate, _)| at_home.is_err() || *estimate < least) else {
        return at_home;
    };
    match (streaming(problem, &streamed, |problem| searched(problem)), at_home) {
        (Ok(plan), at_home) => {
            let plan = MemoryPlan { streamed, ..plan };
            if seconds(problem, &plan) < least { Ok(plan) } else { at_home }
        }
        (Err(refusal), Err(other)) => Err(if refusal.floor < other.floor { refusal } else { other }),
        (Err(_), at_home) => at_home,
    }
}

/// What `of` says of the problem when `streamed` have their homes in host memory.
fn streaming<T>(problem: &Problem<'_>, streamed: &BTreeSet<ValueId>, of: impl Fn(&Problem<'_>) -> T) -> T {
    let homes = problem.homes.with(&problem.program.graph, streamed);
    let options = Options { state: State::Device, ..problem.options };
    of(&Problem { homes: &homes, options, ..*problem })
}

/// Seconds of the schedule that a plan makes; infinite when it makes none.
fn seconds(problem: &Problem<'_>, plan: &MemoryPlan) -> f64 {
    let timeline = compile(problem, plan, "hybrid")
        .ok()
        .and_then(|schedule| simulate(&schedule, problem.kernels, &problem.links).ok());
    timeline.map_or(f64::INFINITY, |timeline| timeline.seconds)
}

/// What may stream: ever more of it, states before parameters, large before small.
fn shares(problem: &Problem<'_>) -> Vec<BTreeSet<ValueId>> {
    let graph = &problem.program.graph;
    let least = problem.options.min_offload.max(1);
    let bytes = |id: ValueId| problem.program.aliases.storage_bytes(id);
    let mut persistent: Vec<ValueId> = graph.persistents().iter().map(|persistent| persistent.initial).collect();
    persistent.retain(|&id| bytes(id) >= least);
    persistent.sort_by_key(|&id| (graph.value(id).role != Role::State, std::cmp::Reverse(bytes(id)), id));
    let total: Bytes = persistent.iter().map(|&id| bytes(id)).sum();
    let mut shares: Vec<BTreeSet<ValueId>> = Vec::new();
    for share in SHARES {
        let wanted = total as f64 * share;
        let mut taken = 0.0;
        let within = persistent.iter().take_while(|&&id| {
            let more = taken < wanted;
            taken += bytes(id) as f64;
            more
        });
        let set: BTreeSet<ValueId> = within.copied().collect();
        if !set.is_empty() && shares.last() != Some(&set) {
            shares.push(set);
        }
    }
    shares
}
