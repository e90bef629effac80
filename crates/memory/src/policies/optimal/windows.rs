//! All windows of the gaps that leave, for one order and one choice of algorithms: depth first, gap by gap.
//!
//! ```text
//!  gap 1   |from ▓▓ release ······ fetch ▓▓▓ to|     every release and fetch, the longest stay first
//!    gap 2     |from ▓ release ·········· fetch to|  … as far as bytes last and the walk with full-rate links is short enough
//! ```
//! A branch is left when the bytes of some step do not suffice, or when the windows chosen so far make a walk over the
//! steps (`estimate`) that takes as long as the best plan: it knows no contention and delays no launch, so no simulation is
//! shorter, and another copy never makes it shorter. What is complete gets addresses and is simulated.

use super::space::{Arrangement, Space, tightest};
use crate::compile::compile_unplaced;
use crate::estimate::stretched_starts;
use crate::fit::{Streamed, peak_of, windows_within, with_windows};
use crate::stretch::Window;
use crate::{Gap, MemoryPlan, Problem};
use vdnn_graph::Step;
use vdnn_sim::simulate;
use vdnn_tensor::Bytes;

/// The shortest plan so far, and the looks that are left.
pub(super) struct Best {
    pub seconds: f64,
    pub plan: Option<MemoryPlan>,
    /// Choices of one window, and whole plans simulated.
    pub looks: usize,
    pub plans: usize,
}

impl Best {
    /// Whether there is something left to look with.
    pub fn spent(&self) -> bool {
        self.looks == 0 || self.plans == 0
    }
}

/// Looks at all windows in which the gaps of `away` leave under the algorithms of `plan`.
pub(super) fn search(space: &Space<'_>, arrangement: &Arrangement, plan: &MemoryPlan, away: &[Gap], best: &mut Best) {
    let Some(left) = left_beside(space, arrangement, plan, away) else { return };
    let problem = space.problem;
    let undelayed = Problem { links: problem.links.without_launch_delays(), ..*problem };
    let mut search = Search { space, undelayed, arrangement, plan, away, left, chosen: Vec::new(), best };
    // What the other policies would do is near enough to be compared with.
    let room = problem.budgets.device.and_then(|budget| budget.checked_sub(problem.homes.extent()));
    let about = (&arrangement.liveness, &arrangement.holds);
    if let Some((_, windows)) =
        room.and_then(|room| windows_within(problem, plan, about, away, (room, Streamed::Lengthened)))
    {
        search.weigh(&windows);
    }
    search.gap(0);
}

struct Search<'s, 'a> {
    space: &'s Space<'a>,
    /// The problem whose walks no simulation is shorter than.
    undelayed: Problem<'a>,
    arrangement: &'s Arrangement,
    plan: &'s MemoryPlan,
    away: &'s [Gap],
    /// By step: bytes that windows may still take.
    left: Vec<Bytes>,
    chosen: Vec<Window>,
    best: &'s mut Best,
}

impl Search<'_, '_> {
    /// Every window of the gap of this number and of those after it.
    fn gap(&mut self, number: usize) {
        let starts = stretched_starts(&self.undelayed, self.plan, &self.chosen);
        if self.best.spent() || starts.last().is_none_or(|&end| end >= self.best.seconds) {
            return;
        }
        let Some(&gap) = self.away.get(number) else {
            let windows = self.chosen.clone();
            return self.weigh(&windows);
        };
        let (from, to) = (gap.from.step.0, gap.to.step.0);
        let bytes = self.space.bytes(&gap);
        for steps_away in 1..to - from {
            for release in (from + 1..=to - steps_away).rev() {
                let window = Window { gap, release: Step(release), fetch: Step(release + steps_away) };
                self.best.looks = self.best.looks.saturating_sub(1);
                if self.take(&window, bytes) {
                    self.chosen.push(window);
                    self.gap(number + 1);
                    self.chosen.pop();
                    self.give(&window, bytes);
                }
            }
        }
    }

    /// Takes what a window holds in the middle of its gap, if it is there.
    fn take(&mut self, window: &Window, bytes: Bytes) -> bool {
        let fits = middle(window).all(|step| self.left[step] >= bytes);
        if fits {
            middle(window).for_each(|step| self.left[step] -= bytes);
        }
        fits
    }

    fn give(&mut self, window: &Window, bytes: Bytes) {
        middle(window).for_each(|step| self.left[step] += bytes);
    }

    /// Addresses and simulates.
    fn weigh(&mut self, windows: &[Window]) {
        self.best.plans = self.best.plans.saturating_sub(1);
        let plan = with_windows(self.plan, windows);
        let Some(seconds) = simulated(self.space.problem, &plan).filter(|&seconds| seconds < self.best.seconds) else {
            return;
        };
        let budget = self.space.problem.budgets.device.unwrap_or(Bytes::MAX);
        if peak_of(self.space.problem, &plan, &self.arrangement.liveness) <= budget {
            (self.best.seconds, self.best.plan) = (seconds, Some(plan));
        }
    }
}

/// Steps between the two uses at which a window holds the bytes.
fn middle(window: &Window) -> impl Iterator<Item = usize> + use<> {
    let before = window.gap.from.step.index() + 1..window.release.index();
    before.chain(window.fetch.index()..window.gap.to.step.index())
}

/// By step: bytes left beside what is kept and the workspaces. `None` where that is too much.
fn left_beside(space: &Space<'_>, arrangement: &Arrangement, plan: &MemoryPlan, away: &[Gap]) -> Option<Vec<Bytes>> {
    let mut left = arrangement.left(space.room(space.problem.budgets.device?)?)?;
    let kept = arrangement.gaps.iter().filter(|gap| !away.contains(gap));
    for gap in kept {
        let Window { release, fetch, .. } = tightest(gap);
        for left in &mut left[release.index()..fetch.index()] {
            *left = left.checked_sub(space.bytes(gap))?;
        }
    }
    for (left, u) in left.iter_mut().zip(&plan.order) {
        *left = left.checked_sub(space.aligned(space.problem.chosen(plan, u.node).workspace))?;
    }
    Some(left)
}

/// Seconds of the schedule that a plan makes, `None` where it breaks the host budget.
pub(super) fn simulated(problem: &Problem<'_>, plan: &MemoryPlan) -> Option<f64> {
    let schedule = compile_unplaced(problem, plan, "optimal").ok()?;
    simulate(&schedule, problem.kernels, &problem.links).ok().map(|timeline| timeline.seconds)
}
