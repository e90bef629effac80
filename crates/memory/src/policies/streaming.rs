//! Which parameters and states stream: tried where everything at home on the device is refused or slow.
//!
//! ```text
//!   at home ──► refused, or slower than it must be ──► momentum, then parameters too, largest first: shares of their bytes,
//!                                                     a few estimates each; the most promising is searched like any other
//! ```
//! States come first: momentum is used once an iteration and costs a copy up and one down, a parameter two up and one
//! down. What stays has no copies at all, so nothing streams while everything fits.

use super::optimal;
use crate::compile::compile_unplaced;
use crate::{Infeasible, MemoryPlan, Options, Problem, State, compile, step_time_bound};
use std::cell::LazyCell;
use std::collections::BTreeSet;
use vdnn_graph::{Role, ValueId};
use vdnn_sim::simulate;
use vdnn_tensor::Bytes;

/// How much slower than the lower bound an iteration may be before streaming is tried, as a share; of a short program, where a
/// search takes no time worth sparing.
const SLOW: f64 = 0.02;
const SLOW_SHORT: f64 = 0.003;
/// How much slower than the bound a plan may be before all is tried, whatever is estimated, as a share.
const FAR: f64 = 0.15;
/// How much slower than the best a share may be estimated and still be preferred because it leaves more room to the search.
const LIKE: f64 = 0.02;
/// Steps up to which a program is short, and what a search of one may gain over its seeds, as a share.
pub(super) const SHORT: usize = 400;
const SEARCH_GAINS: f64 = 0.15;
/// One in so many simulations is left to a share of a long program for which there is a plan with all at home.
const PART: usize = 3;
/// Shares of the bytes that may stream.
const SHARES: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

/// The better of the plans that `searched`, by one in so many of its simulations, finds with all at home and with the most
/// `promising` share streaming, whose estimate that gives. Where there is neither, the `refusal` of the lower floor.
pub(super) fn plan(
    problem: &Problem<'_>,
    searched: impl Fn(&Problem<'_>, usize) -> Option<MemoryPlan>,
    refusal: impl Fn(&Problem<'_>) -> Infeasible,
    promising: impl Fn(&Problem<'_>) -> Option<f64>,
) -> Result<MemoryPlan, Infeasible> {
    let tiny = optimal::of_tiny(problem, "hybrid");
    let at_home = tiny.as_ref().map_or_else(|| searched(problem, 1), |planned| planned.as_ref().ok().cloned());
    let shares = if problem.options.state == State::Auto { shares(problem) } else { Vec::new() };
    if let Some(plan) = fastest(problem, &shares, at_home, searched, promising) {
        return Ok(plan);
    }
    let at_home = tiny.and_then(Result::err).unwrap_or_else(|| refusal(problem));
    let all = shares.last().map(|all| streaming(problem, all, refusal));
    Err(all.filter(|all| all.floor < at_home.floor).unwrap_or(at_home))
}

/// The plan with all at home, or a faster one with some share streaming.
fn fastest(
    problem: &Problem<'_>,
    shares: &[BTreeSet<ValueId>],
    at_home: Option<MemoryPlan>,
    searched: impl Fn(&Problem<'_>, usize) -> Option<MemoryPlan>,
    promising: impl Fn(&Problem<'_>) -> Option<f64>,
) -> Option<MemoryPlan> {
    if shares.is_empty() || problem.budgets.device.is_none() {
        return at_home;
    }
    let least = at_home.as_ref().map_or(f64::INFINITY, |plan| seconds(problem, plan));
    let short = problem.program.n_steps() <= SHORT;
    let slow = 1.0 + if short { SLOW_SHORT } else { SLOW };
    // No plan is faster than the lesser of the bounds of both programs.
    let plain = LazyCell::new(|| step_time_bound(&problem.plain()).seconds);
    let encoded =
        LazyCell::new(|| problem.with_encodings().map_or(f64::INFINITY, |other| step_time_bound(&other).seconds));
    let is_near = |seconds: f64, share: f64| seconds <= *plain * share && seconds <= *encoded * share;
    let there = at_home.is_some();
    if there && (least <= oracle(problem) * slow || is_near(least, slow)) {
        return at_home;
    }
    let estimate = |streamed| streaming(problem, streamed, &promising).unwrap_or(f64::INFINITY);
    let estimates: Vec<f64> = shares.iter().map(estimate).collect();
    let best = estimates.iter().copied().fold(f64::INFINITY, f64::min);
    // Where nothing is estimated to fit, all of it streams: that decides whether there is a plan.
    let chosen = estimates.iter().rposition(|&estimate| estimate <= best * (1.0 + LIKE));
    let Some(chosen) = chosen else { return at_home };
    let hope = if short { SEARCH_GAINS } else { 0.0 };
    let part = if there && !short { PART } else { 1 };
    let find = |share: usize| {
        let found = streaming(problem, &shares[share], |problem| searched(problem, part))?;
        let plan = MemoryPlan { streamed: shares[share].clone(), ..found };
        Some((seconds(problem, &plan), plan))
    };
    let hopeless = there && best >= least * (1.0 + hope);
    // A search of a short program takes no time worth sparing: all that are estimated alike are searched.
    let alike = |share: &usize| *share == chosen || (short && estimates[*share] <= best * (1.0 + LIKE));
    let tried: Vec<usize> = if hopeless { Vec::new() } else { (0..shares.len()).filter(alike).collect() };
    let mut found = tried.iter().filter_map(|&share| find(share)).min_by(|a, b| a.0.total_cmp(&b.0));
    let reached = found.as_ref().map_or(f64::INFINITY, |found| found.0).min(least);
    if !tried.contains(&(shares.len() - 1)) && !is_near(reached, 1.0 + FAR) {
        let all = find(shares.len() - 1);
        let faster = |all: &(f64, MemoryPlan)| found.as_ref().is_none_or(|found| all.0 < found.0);
        if all.as_ref().is_some_and(faster) {
            found = all;
        }
    }
    found.filter(|found| !there || found.0 < least).map(|(_, plan)| plan).or(at_home)
}

/// What `of` says of the problem when `streamed` have their homes in host memory.
pub(super) fn streaming<T>(problem: &Problem<'_>, streamed: &BTreeSet<ValueId>, of: impl Fn(&Problem<'_>) -> T) -> T {
    let homes = problem.homes.with(&problem.program.graph, streamed);
    let options = Options { state: State::Device, ..problem.options };
    of(&Problem { homes: &homes, options, ..*problem })
}

/// Seconds of the fastest kernels.
fn oracle(problem: &Problem<'_>) -> f64 {
    problem.kernels.choices.iter().filter_map(|choices| choices.first()).map(|choice| choice.seconds).sum()
}

/// Seconds of the schedule that a plan makes; infinite when it makes none.
pub(super) fn seconds(problem: &Problem<'_>, plan: &MemoryPlan) -> f64 {
    // Where copies have a budget below the device, what goes where is found with care; else addresses are nothing to the time.
    let careful = problem.budgets.host.is_some();
    let schedule = if careful { compile(problem, plan, "hybrid") } else { compile_unplaced(problem, plan, "hybrid") };
    let timeline =
        schedule.ok().and_then(|schedule| simulate(&schedule, problem.of(plan).kernels, &problem.links).ok());
    timeline.map_or(f64::INFINITY, |timeline| timeline.seconds)
}

/// What may stream: ever more of it, states before parameters, large before small.
pub(super) fn shares(problem: &Problem<'_>) -> Vec<BTreeSet<ValueId>> {
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
