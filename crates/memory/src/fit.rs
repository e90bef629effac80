//! Making a choice of offloads fit a budget: first the windows that hide the copies, then shorter ones where bytes lack.
//!
//! A policy's *floor* is the peak with every window as short as the rules allow (or as long as hides the copies, in the
//! rare case that addresses then happen to pack better). At or above it there is a plan; below it there is none, and the
//! floor is what the refusal states.

use crate::address::extent_within_budget;
use crate::estimate::{Copies, Pace, starts_under};
use crate::held::Held;
use crate::peak::largest_at_peak;
use crate::stream::with_streamed;
use crate::stretch::{Intervals, Window};
use crate::window::{relaxed, tight};
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
    fit(problem, plan, gaps, |refused| refused.infeasible(policy))
}

/// The same where nobody asks why not: no floor is looked for.
pub(crate) fn fits(problem: &Problem<'_>, plan: &MemoryPlan, gaps: &[Gap]) -> Option<MemoryPlan> {
    fit(problem, plan, gaps, |_| ()).ok().map(|fitted| fitted.plan)
}

fn fit<E>(
    problem: &Problem<'_>,
    plan: &MemoryPlan,
    gaps: &[Gap],
    refusal: impl FnOnce(Refused<'_>) -> E,
) -> Result<Fitted, E> {
    let homes = problem.homes.with(&problem.program.graph, &plan.streamed);
    let problem = &Problem { homes: &homes, ..*problem };
    let liveness = Liveness::of(problem, &plan.order);
    let gaps = &*with_streamed(problem, plan, &liveness, gaps);
    let Shapes { relaxed, tight, .. } = Shapes::of(problem, plan, gaps);
    let attempt = |windows| Attempt::of(problem, plan, &liveness, windows);
    let mut first = attempt(relaxed);
    let Some(budget) = problem.budgets.device else { return Ok(first.fitted()) };
    if first.is_within(budget) {
        return Ok(first.fitted());
    }
    let mut least = attempt(tight);
    if !least.is_within(budget) {
        return Err(refusal(Refused { budget, first, least, liveness: &liveness }));
    }
    let mut room = budget.saturating_sub(problem.homes.extent());
    let mut excess = 0;
    for _ in 0..ATTEMPTS {
        room = room.saturating_sub(excess);
        let live = least.live.clone();
        let mut candidate =
            attempt(lengthen(problem, live, (&first.windows, &least.windows), room, Streamed::Lengthened));
        if candidate.extent() <= budget {
            return Ok(candidate.fitted());
        }
        excess = candidate.extent() - budget;
    }
    Ok(least.fitted())
}

/// Windows of a plan, and the addresses under them, which are looked for when they are asked for.
struct Attempt<'a> {
    problem: &'a Problem<'a>,
    plan: &'a MemoryPlan,
    windows: Vec<Window>,
    /// `None` where the plan is not legal.
    intervals: Option<Intervals>,
    /// Bytes at each step, homes not counted.
    live: Vec<Bytes>,
    extent: Option<Bytes>,
}

impl<'a> Attempt<'a> {
    fn of(problem: &'a Problem<'a>, plan: &'a MemoryPlan, liveness: &Liveness, windows: Vec<Window>) -> Self {
        let intervals = Intervals::with_windows(problem, plan, liveness, &windows).ok();
        let live = intervals.as_ref().map_or(Vec::new(), Intervals::live_profile);
        Attempt { problem, plan, windows, intervals, live, extent: None }
    }

    /// The extent, or one within the budget that compilation stays below.
    fn extent(&mut self) -> Bytes {
        let Attempt { problem, plan, intervals, extent, .. } = self;
        let place = |intervals: &Intervals| extent_within_budget(problem, plan, intervals);
        *extent.get_or_insert_with(|| intervals.as_ref().map_or(Bytes::MAX, place))
    }

    /// Whether the extent is within so many bytes. Where the largest live set is not, no addresses are looked for.
    fn is_within(&mut self, bytes: Bytes) -> bool {
        let live = self.live.iter().copied().max().unwrap_or(0);
        let may = self.intervals.is_some() && self.problem.homes.extent() + live <= bytes;
        may && self.extent() <= bytes
    }

    fn fitted(mut self) -> Fitted {
        Fitted { plan: with_windows(self.plan, &self.windows), peak: self.extent() }
    }
}

/// A plan that does not keep the budget.
struct Refused<'a> {
    budget: Bytes,
    /// With the longest windows and the shortest.
    first: Attempt<'a>,
    least: Attempt<'a>,
    liveness: &'a Liveness,
}

impl Refused<'_> {
    /// The refusal, which states the floor.
    fn infeasible(mut self, policy: &str) -> Infeasible {
        let extent = self.least.extent();
        let longest = extent > 0 && self.first.is_within(extent - 1);
        let floor = if longest { self.first } else { self.least };
        infeasible(floor.problem, policy, self.budget, &floor.fitted(), self.liveness)
    }
}

/// The longest and the shortest windows of some gaps.
struct Shapes {
    pace: Pace,
    copies: Copies,
    /// As long as the copies are estimated to take, and the seconds of the iteration then.
    relaxed: Vec<Window>,
    seconds: f64,
    /// As short as the rules allow; kernels wait for copies.
    tight: Vec<Window>,
}

impl Shapes {
    fn of(problem: &Problem<'_>, plan: &MemoryPlan, gaps: &[Gap]) -> Self {
        let pace = Pace::of(problem, plan);
        let tight = tight(problem, &pace, gaps);
        let copies = Copies::of(problem, &tight, plan.order.len());
        let (seconds, relaxed) = relaxed(problem, &pace, &copies, gaps, &tight);
        Shapes { pace, copies, relaxed, seconds, tight }
    }
}

/// Windows for `gaps` under which no step holds more than `room` bytes, as long as that allows, and the seconds that the
/// iteration is estimated to take then; addresses not considered. `held` is what the plan holds without them.
pub(crate) fn windows_within(
    problem: &Problem<'_>,
    plan: &MemoryPlan,
    (liveness, held): (&Liveness, &Held),
    gaps: &[Gap],
    (room, streamed): (Bytes, Streamed),
) -> Option<(f64, Vec<Window>)> {
    let workspaces = problem.by_step(plan, |choice| choice.workspace);
    let live = |chosen: &[Window]| {
        let mut live = held.under(problem, chosen);
        live.iter_mut().zip(&workspaces).for_each(|(live, workspace)| *live += workspace);
        live
    };
    let most = |live: &[Bytes]| live.iter().copied().max().unwrap_or(0);
    let gaps = &*with_streamed(problem, plan, liveness, gaps);
    let Shapes { pace, copies, relaxed, seconds, tight } = Shapes::of(problem, plan, gaps);
    if most(&live(&relaxed)) <= room {
        return Some((seconds, relaxed));
    }
    let least = live(&tight);
    if most(&least) > room {
        return None;
    }
    let windows = lengthen(problem, least, (&relaxed, &tight), room, streamed);
    let seconds = starts_under(problem, &pace, &copies, &windows).last().copied()?;
    Some((seconds, windows))
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

/// What becomes of windows that wrap around the iteration, those of what streams, where the room does not suffice for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streamed {
    /// They are lengthened like all others, which then have less room.
    Lengthened,
    /// They stay as short as the rules allow.
    Tight,
}

impl Streamed {
    fn or(self, relaxed: Step, tight: Step) -> Step {
        if self == Streamed::Lengthened { relaxed } else { tight }
    }
}

/// Lengthens the tight windows towards the relaxed ones, step by step, as far as every step holds at most `room` bytes. `live`
/// is what each step holds under the tight ones.
///
/// Releases go in order of issue, fetches in order of need. A fetch never moves ahead of one that is needed earlier, since
/// the copies up run one after the other.
fn lengthen(
    problem: &Problem<'_>,
    mut live: Vec<Bytes>,
    (relaxed, tight): (&[Window], &[Window]),
    room: Bytes,
    streamed: Streamed,
) -> Vec<Window> {
    let mut chosen = tight.to_vec();
    let bytes = |i: usize| problem.program.aliases.storage_bytes(tight[i].gap.root);
    // What streams is fetched before it is released, since the iteration ends in between.
    let wraps = |i: usize| tight[i].gap.wraps();
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
        let latest = if wraps(i) {
            streamed.or(relaxed[i].release, tight[i].release)
        } else {
            relaxed[i].release.min(tight[i].fetch)
        };
        while chosen[i].release < latest && take(chosen[i].release.0, bytes(i)) {
            chosen[i].release.0 += 1;
        }
    }
    order.sort_by_key(|&i| (tight[i].gap.to.step, tight[i].gap.root));
    let mut not_before = Step(0);
    for &i in &order {
        let earliest = if wraps(i) {
            streamed.or(relaxed[i].fetch, tight[i].fetch)
        } else {
            relaxed[i].fetch.max(chosen[i].release)
        };
        let earliest = earliest.max(not_before);
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
