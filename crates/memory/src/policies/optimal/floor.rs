//! The least bytes at which there is a plan: over all orders and windows, with the least workspace of each kernel.
//!
//! An order cannot do with less than it holds when every gap is away as long as can be. The orders that need least by that
//! count are looked at first, and their windows from the shortest stay on, until none can need less than what was placed.

use super::Limits;
use super::search::Spent;
use super::space::{Arrangement, Space};
use super::windows::simulated;
use crate::fit::{Fitted, peak_of, with_windows};
use crate::stretch::Window;
use crate::{Budgets, Liveness, MemoryPlan, Problem};
use vdnn_graph::Step;
use vdnn_tensor::Bytes;

/// The plan of the least extent.
pub(super) fn least(space: &Space<'_>, limits: &Limits) -> Result<(Fitted, Liveness), Spent> {
    let budgets = Budgets { device: None, ..space.problem.budgets };
    let problem = Problem { budgets, ..*space.problem };
    let mut orders: Vec<(Bytes, Arrangement)> =
        space.arrangements().into_iter().map(|arrangement| (lower(space, &arrangement), arrangement)).collect();
    orders.sort_by_key(|(bytes, _)| *bytes);
    let mut found: Option<(Fitted, Liveness)> = None;
    let mut looks = limits.looks;
    for (bytes, arrangement) in orders {
        if found.as_ref().is_some_and(|(least, _)| bytes >= least.peak) {
            break;
        }
        let peak = found.as_ref().map_or(Bytes::MAX, |(least, _)| least.peak);
        let plan = with_least(space, arrangement.plan.clone());
        let live = live(space, &arrangement);
        let mut search = Search {
            space,
            problem: &problem,
            arrangement: &arrangement,
            plan,
            live,
            chosen: Vec::new(),
            peak,
            looks,
            best: None,
        };
        search.gap(0);
        looks = search.looks;
        if looks == 0 {
            return Err(Spent { what: "windows", most: limits.looks });
        }
        if let Some(plan) = search.best {
            found = Some((Fitted { plan, peak: search.peak }, arrangement.liveness));
        }
    }
    // The plain order with everything kept is one of them.
    found.ok_or(Spent { what: "windows", most: limits.looks })
}

/// `plan` with the least workspace of every kernel.
fn with_least(space: &Space<'_>, mut plan: MemoryPlan) -> MemoryPlan {
    let picks = space.problem.program.graph.node_ids().zip(&space.picks);
    plan.algos = picks.filter_map(|(node, picks)| Some((node, picks.last()?.number))).collect();
    plan
}

/// By step: what is held with the least workspace when every gap is away as long as can be.
fn live(space: &Space<'_>, arrangement: &Arrangement) -> Vec<Bytes> {
    let workspace = |step: usize| space.picks[arrangement.node(step).index()].last().map_or(0, |pick| pick.bytes);
    arrangement.held.iter().enumerate().map(|(step, held)| held + workspace(step)).collect()
}

/// No plan of an order has a smaller extent.
fn lower(space: &Space<'_>, arrangement: &Arrangement) -> Bytes {
    let live = live(space, arrangement);
    (0..live.len()).map(|step| extent(space, arrangement, step, live[step])).max().unwrap_or(0)
}

/// The least extent if a step holds so many bytes.
fn extent(space: &Space<'_>, arrangement: &Arrangement, step: usize, bytes: Bytes) -> Bytes {
    let homes = space.problem.homes.extent();
    if bytes == 0 { homes } else { (space.aligned(homes) + bytes - arrangement.slack[step]).max(homes) }
}

struct Search<'s, 'a> {
    space: &'s Space<'a>,
    /// Without a device budget.
    problem: &'s Problem<'a>,
    arrangement: &'s Arrangement,
    plan: MemoryPlan,
    live: Vec<Bytes>,
    chosen: Vec<Window>,
    /// The least extent of all so far, and this order's plan that has it.
    peak: Bytes,
    best: Option<MemoryPlan>,
    looks: usize,
}

impl Search<'_, '_> {
    /// Every window of the gap of this number and of those after it, and staying.
    fn gap(&mut self, number: usize) {
        let extents = (0..self.live.len()).map(|step| extent(self.space, self.arrangement, step, self.live[step]));
        if self.looks == 0 || extents.max().unwrap_or(0) >= self.peak {
            return;
        }
        self.looks -= 1;
        let Some(&gap) = self.arrangement.gaps.get(number) else { return self.place() };
        let (from, to) = (gap.from.step.0, gap.to.step.0);
        let windows = (1..to - from).rev().flat_map(|steps_away| {
            (from + 1..=to - steps_away).map(move |release| (Step(release), Step(release + steps_away)))
        });
        for (release, fetch) in windows {
            self.held(number, Window { gap, release, fetch });
        }
        self.held(number, Window { gap, release: gap.to.step, fetch: gap.to.step });
    }

    /// Goes on with one window.
    fn held(&mut self, number: usize, window: Window) {
        let bytes = self.space.bytes(&window.gap);
        let steps = || {
            let before = window.gap.from.step.index() + 1..window.release.index();
            before.chain(window.fetch.index()..window.gap.to.step.index())
        };
        steps().for_each(|step| self.live[step] += bytes);
        self.chosen.push(window);
        self.gap(number + 1);
        self.chosen.pop();
        steps().for_each(|step| self.live[step] -= bytes);
    }

    fn place(&mut self) {
        let plan = with_windows(&self.plan, &self.chosen);
        let peak = peak_of(self.problem, &plan, &self.arrangement.liveness);
        let host = self.problem.budgets.host.is_none() || simulated(self.problem, &plan).is_some();
        if peak < self.peak && host {
            (self.peak, self.best) = (peak, Some(plan));
        }
    }
}
