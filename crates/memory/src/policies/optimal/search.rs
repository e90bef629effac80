//! The shortest plan within a budget: integer solutions of all orders in the order of their bounds, each simulated.
//!
//! ```text
//!  orders, each with a bound ─► the least ─► solved? no ─► its program is solved: a better bound, decisions
//!        ▲                                       yes ─► all windows of these decisions are looked at; they are cut off
//!        └────────────────────── again, until no bound is below the best plan
//! ```

use super::Limits;
use super::model::{Visit, solve};
use super::space::{Arrangement, Space};
use super::windows::{Best, search};
use crate::algorithms::{Offered, choose_beside};
use crate::fit::{Streamed, windows_within};
use crate::{Gap, MemoryPlan};
use vdnn_tensor::Bytes;

/// By how much a solver's bound may be too high, as a share.
const ROUNDING: f64 = 1e-9;

/// The counts did not suffice for a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spent {
    /// What was counted, and how many there may be.
    pub what: &'static str,
    pub most: usize,
}

/// An order that is not done with.
struct Open {
    arrangement: Arrangement,
    bound: f64,
    /// Decisions that meet the bound, once it is that of the program.
    next: Option<Visit>,
    visited: Vec<Visit>,
}

/// The plan of the least simulated seconds that keeps the budget, if one takes less than `below`.
pub(super) fn fastest(space: &Space<'_>, below: f64, limits: &Limits) -> Result<Option<(f64, MemoryPlan)>, Spent> {
    let Some(room) = space.problem.budgets.device.and_then(|budget| space.room(budget)) else { return Ok(None) };
    let mut open = opened(space, room);
    let mut best = Best { seconds: below, plan: None, looks: limits.looks, plans: limits.plans };
    begin(space, &open, &mut best);
    let mut programs = limits.programs;
    while let Some(least) = least(&mut open) {
        if least.bound >= best.seconds {
            break;
        }
        match least.next.take() {
            Some(visit) => {
                let (plan, away) = decided(space, &least.arrangement, &visit);
                search(space, &least.arrangement, &plan, &away, &mut best);
                least.visited.push(visit);
            }
            None => {
                let horizon = best.seconds.min(longest(space, &least.arrangement));
                programs = programs.checked_sub(1).ok_or(Spent { what: "programs", most: limits.programs })?;
                let solved = solve(space, &least.arrangement, room, horizon, &least.visited);
                least.next = solved.map_err(|_| Spent { what: "programs", most: limits.programs })?;
                let of_program = |visit: &Visit| (visit.bound * (1.0 - ROUNDING)).max(least.bound);
                least.bound = least.next.as_ref().map_or(f64::INFINITY, of_program);
            }
        }
        if best.spent() {
            let (what, most) = if best.plans == 0 { ("plans", limits.plans) } else { ("windows", limits.looks) };
            return Err(Spent { what, most });
        }
    }
    Ok(best.plan.map(|plan| (best.seconds, plan)))
}

/// All orders that may fit, with the seconds of their kernels.
fn opened(space: &Space<'_>, room: Bytes) -> Vec<Open> {
    let bounded = |arrangement: Arrangement| {
        let bound = kernels(space, &arrangement, room)?;
        Some(Open { arrangement, bound, next: None, visited: Vec::new() })
    };
    space.arrangements().into_iter().filter_map(bounded).collect()
}

/// Plans to begin with: in each order some gaps leave, beside algorithms that fit; the windows of the most promising choice
/// of an order are all looked at. The better the best plan, the less is left to prove.
fn begin(space: &Space<'_>, open: &[Open], best: &mut Best) {
    let Some(room) = space.problem.budgets.device.and_then(|b| b.checked_sub(space.problem.homes.extent())) else {
        return;
    };
    let mut order: Vec<&Open> = open.iter().collect();
    order.sort_by(|a, b| a.bound.total_cmp(&b.bound));
    for Open { arrangement, bound, .. } in order {
        let mut likely: Option<(f64, MemoryPlan, Vec<Gap>)> = None;
        for away in some_gaps(&arrangement.gaps) {
            let least = likely.as_ref().map_or(best.seconds, |(seconds, ..)| seconds.min(best.seconds));
            let Some((plan, seconds)) = estimated(space, arrangement, &away, room).filter(|(_, s)| *s < least) else {
                continue;
            };
            likely = Some((seconds, plan, away));
        }
        if *bound < best.seconds
            && let Some((_, plan, away)) = likely
        {
            search(space, arrangement, &plan, &away, best);
        }
    }
}

/// None of the gaps, each by itself, all but each, all.
fn some_gaps(gaps: &[Gap]) -> Vec<Vec<Gap>> {
    let mut some = vec![Vec::new(), gaps.to_vec()];
    some.extend(gaps.iter().map(|&gap| vec![gap]));
    some.extend((0..gaps.len()).map(|out| [&gaps[..out], &gaps[out + 1..]].concat()));
    some
}

/// The plan with the fastest algorithms that fit beside what is held, and its estimated seconds.
fn estimated(space: &Space<'_>, arrangement: &Arrangement, away: &[Gap], room: Bytes) -> Option<(MemoryPlan, f64)> {
    let (problem, about) = (space.problem, (&arrangement.liveness, &arrangement.holds));
    let plan = choose_beside(problem, &arrangement.plan, about, away, (room, 0), Offered::Pieces)?;
    let (seconds, _) = windows_within(problem, &plan, about, away, (room, Streamed::Lengthened))?;
    Some((plan, seconds))
}

/// Seconds of an order's kernels, each the fastest that fits.
fn kernels(space: &Space<'_>, arrangement: &Arrangement, room: Bytes) -> Option<f64> {
    let left = arrangement.left(room)?;
    let fits = |step: usize| {
        let picks = &space.picks[arrangement.node(step).index()];
        picks.iter().find(|pick| pick.bytes <= left[step]).map(|pick| pick.seconds)
    };
    (0..arrangement.n_steps()).map(fits).sum()
}

/// Seconds that no order takes if nothing ever overlaps.
fn longest(space: &Space<'_>, arrangement: &Arrangement) -> f64 {
    let links = &space.problem.links;
    let slowest = |step: usize| space.picks[arrangement.node(step).index()].last().map_or(0.0, |pick| pick.seconds);
    let copies = |gap: &Gap| {
        let bytes = space.problem.program.aliases.storage_bytes(gap.root) as f64;
        2.0 * links.latency + bytes / links.d2h + bytes / links.h2d
    };
    let kernels: f64 = (0..arrangement.n_steps()).map(slowest).sum();
    (kernels + arrangement.gaps.iter().map(copies).sum::<f64>()).max(f64::MIN_POSITIVE)
}

/// The open order of the least bound, the first of equals.
fn least(open: &mut [Open]) -> Option<&mut Open> {
    open.iter_mut().filter(|open| open.bound.is_finite()).reduce(|a, b| if b.bound < a.bound { b } else { a })
}

/// A plan with the algorithms of a visit, and the gaps that leave.
fn decided(space: &Space<'_>, arrangement: &Arrangement, visit: &Visit) -> (MemoryPlan, Vec<Gap>) {
    let mut plan = arrangement.plan.clone();
    for (node, (&place, picks)) in space.problem.program.graph.node_ids().zip(visit.picks.iter().zip(&space.picks)) {
        let number = picks[place].number;
        if number > 0 {
            plan.algos.insert(node, number);
        }
    }
    let away = arrangement.gaps.iter().zip(&visit.away).filter(|(_, away)| **away);
    (plan, away.map(|(gap, _)| *gap).collect())
}
