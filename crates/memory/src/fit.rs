//! Making a choice of offloads fit a budget: first the windows that hide the copies, then shorter ones where bytes lack.
//!
//! A policy's *floor* is the peak with every window as short as the rules allow (or as long as hides the copies, in the
//! rare case that addresses then happen to pack better). At or above it there is a plan; below it there is none, and the
//! floor is what the refusal states.

use crate::address::extent_within_budget;
use crate::peak::largest_at_peak;
use crate::stream::with_streamed;
use crate::stretch::Intervals;
use crate::stretch::Window;
use crate::window::{Slack, windows};
use crate::{Gap, Infeasible, Liveness, MemoryPlan, Problem};
use vdnn_graph::{Step, Use};
use vdnn_tensor::Bytes;

/// Attempts at leaving room for fragmentation before settling for the shortest windows.
const ATTEMPTS: usize = 6;

/// A plan that keeps the budget.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The plan.
    pub plan: MemoryPlan,
    /// Extent of the device arena at most.
    pub peak: Bytes,
}

/// Fits `plan` (order, algorithms, allocation) with `gaps` offloaded into the problem's device budget. What streams is away
/// besides.
///
/// # Errors
/// [`Infeasible`] when even the shortest windows do not fit.
pub fn fit_to_budget(
    problem: &Problem<'_>,
    policy: &str,
    plan: &MemoryPlan,
    gaps: &[Gap],
) -> Result<Fitted, Infeasible> {
    let homes = problem.homes.with(&problem.program.graph, &plan.streamed);
    let problem = &Problem { homes: &homes, ..*problem };
    let liveness = Liveness::of(problem, &plan.order);
    let gaps = &*with_streamed(problem, plan, &liveness, gaps);
    let try_windows = |chosen: &[Window]| {
        let plan = with_windows(plan, chosen);
        let peak = peak_of(problem, &plan, &liveness);
        Fitted { plan, peak }
    };
    let relaxed = windows(problem, plan, gaps, Slack::Relaxed);
    let Some(budget) = problem.budgets.device else { return Ok(try_windows(&relaxed)) };
    let tight = windows(problem, plan, gaps, Slack::Tight);
    let (first, least) = (try_windows(&relaxed), try_windows(&tight));
    if first.peak <= budget {
        return Ok(first);
    }
    if least.peak > budget {
        let floor = if first.peak < least.peak { &first } else { &least };
        return Err(infeasible(problem, policy, budget, floor, &liveness));
    }
    let mut room = budget.saturating_sub(problem.homes.extent());
    let mut excess = 0;
    for _ in 0..ATTEMPTS {
        room = room.saturating_sub(excess);
        let candidate = try_windows(&lengthen(problem, plan, &liveness, &relaxed, &tight, room));
        if candidate.peak <= budget {
            return Ok(candidate);
        }
        excess = candidate.peak - budget;
    }
    Ok(least)
}

/// Windows for `gaps` under which no step holds more than `room` bytes, as long as that allows; addresses not considered.
pub(crate) fn windows_within(
    problem: &Problem<'_>,
    plan: &MemoryPlan,
    liveness: &Liveness,
    gaps: &[Gap],
    room: Bytes,
) -> Option<Vec<Window>> {
    let holds = |chosen: &[Window]| {
        let intervals = Intervals::with_windows(problem, plan, liveness, chosen).ok()?;
        intervals.live_profile().into_iter().max()
    };
    let gaps = &*with_streamed(problem, plan, liveness, gaps);
    let relaxed = windows(problem, plan, gaps, Slack::Relaxed);
    if holds(&relaxed)? <= room {
        return Some(relaxed);
    }
    let tight = windows(problem, plan, gaps, Slack::Tight);
    (holds(&tight)? <= room).then(|| lengthen(problem, plan, liveness, &relaxed, &tight, room))
}

/// The extent of a plan's device arena, or one within the budget that compilation stays below.
pub(crate) fn peak_of(problem: &Problem<'_>, plan: &MemoryPlan, liveness: &Liveness) -> Bytes {
    match Intervals::of(problem, plan, liveness) {
        Ok(intervals) => extent_within_budget(problem, plan, &intervals),
        Err(_) => Bytes::MAX,
    }
}

pub(crate) fn with_windows(plan: &MemoryPlan, chosen: &[Window]) -> MemoryPlan {
    let mut plan = plan.clone();
    for window in chosen.iter().filter(|window| !window.is_empty()) {
        let ends: Use = plan.order[window.gap.to.step.index()];
        plan.gaps.insert((window.gap.root, ends), window.residency());
    }
    plan
}

/// Lengthens the tight windows towards the relaxed ones, step by step, as far as every step holds at most `room` bytes.
///
/// Releases go in order of issue, fetches in order of need. A fetch never moves ahead of one that is needed earlier, since
/// the copies up run one after the other.
fn lengthen(
    problem: &Problem<'_>,
    plan: &MemoryPlan,
    liveness: &Liveness,
    relaxed: &[Window],
    tight: &[Window],
    room: Bytes,
) -> Vec<Window> {
    let mut chosen = tight.to_vec();
    let Ok(intervals) = Intervals::with_windows(problem, plan, liveness, tight) else { return chosen };
    let mut live = intervals.live_profile();
    let bytes = |i: usize| problem.program.aliases.storage_bytes(tight[i].gap.root);
    let mut take = |step: u32, bytes: Bytes| {
        let fits = live[step as usize].saturating_add(bytes) <= room;
        if fits {
            live[step as usize] += bytes;
        }
        fits
    };
    // An empty window holds its bytes all the time: there is nothing to lengthen.
    let mut order: Vec<usize> = (0..tight.len()).filter(|&i| !tight[i].is_empty()).collect();
    order.sort_by_key(|&i| (tight[i].gap.from.step, tight[i].gap.root));
    for &i in &order {
        let latest = relaxed[i].release.min(tight[i].fetch);
        while chosen[i].release < latest && take(chosen[i].release.0, bytes(i)) {
            chosen[i].release.0 += 1;
        }
    }
    order.sort_by_key(|&i| (tight[i].gap.to.step, tight[i].gap.root));
    let mut not_before = Step(0);
    for &i in &order {
        let earliest = relaxed[i].fetch.max(chosen[i].release).max(not_before);
        while chosen[i].fetch > earliest && take(chosen[i].fetch.0 - 1, bytes(i)) {
            chosen[i].fetch.0 -= 1;
        }
        not_before = chosen[i].fetch;
    }
    chosen
}

/// The refusal of a budget that `least`, the plan that needs least, does not keep.
pub(crate) fn infeasible(
    problem: &Problem<'_>,
    policy: &str,
    budget: Bytes,
    least: &Fitted,
    liveness: &Liveness,
) -> Infeasible {
    let (step, largest) = Intervals::of(problem, &least.plan, liveness)
        .map_or((Step(0), Vec::new()), |intervals| largest_at_peak(problem, &intervals));
    let node = least.plan.order.get(step.index()).map(|u| problem.program.graph.node(u.node).name.clone());
    let (policy, step) = (policy.to_string(), node.unwrap_or_default());
    Infeasible { policy, budget, floor: least.peak, step, largest, too_large: None }
}
