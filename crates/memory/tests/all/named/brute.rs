//! Every plan of a tiny program, one after the other: what `optimal` must equal.
//!
//! ```text
//!  each way to forget feature maps × algorithm of each kernel, by the seconds of the kernels
//!    └─► each gap kept, or away from each step to each step ─► compiled within the budget and simulated
//! ```
//! Left out is only what is plainly no better: more live bytes than the budget wherever kernels write, kernels alone that take as long as the best
//! plan, or a walk without contention that does. Nothing of the policy under test is used, nor any search of the crate.

use std::collections::{BTreeMap, BTreeSet};
use vdnn_graph::{NodeId, Phase, Role, Step, Use, ValueId};
use vdnn_memory::{Forget, Gap, Liveness, MemoryPlan, Problem, Residency, Tier, compile, recompute};
use vdnn_schedule::Space;
use vdnn_sim::simulate;

/// An order, what is made again in it, and the gaps that may leave.
struct Order {
    plan: MemoryPlan,
    gaps: Vec<Gap>,
    /// By step: bytes above the homes of what may not leave there, at least: outputs may take over bytes of inputs.
    fixed: Vec<u64>,
}

/// A gap that is away, from the step `release` to the step `fetch`.
#[derive(Clone, Copy)]
struct Away {
    gap: Gap,
    release: usize,
    fetch: usize,
}

/// The least simulated seconds of all plans within the problem's budget, infinite where there is none.
pub fn least_seconds(problem: &Problem<'_>) -> f64 {
    let orders = orders(problem);
    let mut ways: Vec<(f64, usize, Vec<usize>)> = Vec::new();
    for (index, order) in orders.iter().enumerate() {
        ways.extend(algorithms(problem, order).into_iter().map(|(seconds, picks)| (seconds, index, picks)));
    }
    ways.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut best = f64::INFINITY;
    for (seconds, index, picks) in ways {
        if seconds >= best {
            break;
        }
        let order = &orders[index];
        let algos = problem.program.graph.node_ids().zip(picks).collect();
        let plan = MemoryPlan { algos, ..order.plan.clone() };
        let mut every = Every { problem, gaps: &order.gaps, plan: &plan, live: order.fixed.clone(), away: Vec::new() };
        for (live, u) in every.live.iter_mut().zip(&plan.order) {
            *live += problem.chosen(&plan, u.node).workspace;
        }
        every.from(0, &mut best);
    }
    best
}

/// The least extent of all plans.
pub fn least_extent(problem: &Problem<'_>) -> u64 {
    let mut best = u64::MAX;
    for order in orders(problem) {
        let lean = |id: NodeId| {
            let choices = problem.kernels.all(id).enumerate();
            (id, choices.min_by_key(|(_, choice)| choice.workspace).unwrap().0)
        };
        let plan = MemoryPlan { algos: problem.program.graph.node_ids().map(lean).collect(), ..order.plan };
        let mut every = Every { problem, gaps: &order.gaps, plan: &plan, live: order.fixed, away: Vec::new() };
        for (live, u) in every.live.iter_mut().zip(&plan.order) {
            *live += problem.chosen(&plan, u.node).workspace;
        }
        every.extents(0, &mut best);
    }
    best
}

/// All plans of an order with its algorithms.
struct Every<'a> {
    problem: &'a Problem<'a>,
    plan: &'a MemoryPlan,
    gaps: &'a [Gap],
    live: Vec<u64>,
    away: Vec<Away>,
}

impl Every<'_> {
    fn from(&mut self, index: usize, best: &mut f64) {
        let (homes, budget) = (self.problem.homes.extent(), self.problem.budgets.device.unwrap());
        if self.live.iter().any(|live| homes + live > budget) || self.walk() >= *best {
            return;
        }
        if index == self.gaps.len() {
            let Ok(schedule) = compile(self.problem, &self.complete(), "brute") else { return };
            let seconds = simulate(&schedule, self.problem.kernels, &self.problem.links).unwrap().seconds;
            assert!(self.walk() <= seconds * (1.0 + 1e-9), "a walk without contention takes no longer");
            *best = best.min(seconds);
            return;
        }
        self.each_way(index, |every| every.from(index + 1, best));
    }

    fn extents(&mut self, index: usize, best: &mut u64) {
        if self.live.iter().any(|live| self.problem.homes.extent() + live >= *best) {
            return;
        }
        if index == self.gaps.len() {
            let schedule = compile(self.problem, &self.complete(), "brute").unwrap();
            *best = schedule.peak_bytes(Space::Device).min(*best);
            return;
        }
        self.each_way(index, |every| every.extents(index + 1, best));
    }

    /// Away as long as can be first, kept last.
    fn each_way(&mut self, index: usize, mut then: impl FnMut(&mut Self)) {
        let gap = self.gaps[index];
        let (from, to) = (gap.from.step.index(), gap.to.step.index());
        let bytes = self.problem.program.aliases.storage_bytes(gap.root);
        for release in from + 1..=to {
            for fetch in (release + 1..=to).rev().chain((release == to).then_some(to)) {
                let middle = || (from + 1..release).chain(fetch..to);
                middle().for_each(|step| self.live[step] += bytes);
                let leaves = release < fetch;
                if leaves {
                    self.away.push(Away { gap, release, fetch });
                }
                then(self);
                if leaves {
                    self.away.pop();
                }
                middle().for_each(|step| self.live[step] -= bytes);
            }
        }
    }

    fn complete(&self) -> MemoryPlan {
        let mut plan = self.plan.clone();
        for away in &self.away {
            let (release, fetch) = (Step(away.release as u32), Step(away.fetch as u32));
            let ends = plan.order[away.gap.to.step.index()];
            plan.gaps.insert((away.gap.root, ends), Residency::Offload { tier: Tier::Host, release, fetch });
        }
        plan
    }

    /// Seconds if each direction of the link had its full rate all the time: kernels in a row, copies in a row each way.
    fn walk(&self) -> f64 {
        let links = &self.problem.links;
        let seconds = |away: &Away, rate: f64| {
            links.latency + self.problem.program.aliases.storage_bytes(away.gap.root) as f64 / rate
        };
        let (mut now, mut down, mut up) = (0.0f64, 0.0f64, 0.0f64);
        let mut done: Vec<(f64, f64)> = vec![(0.0, 0.0); self.away.len()];
        let mut order: Vec<usize> = (0..self.away.len()).collect();
        order.sort_by_key(|&i| (self.away[i].gap.to.step, self.away[i].gap.root));
        for (step, u) in self.plan.order.iter().enumerate() {
            for (away, done) in self.away.iter().zip(&done) {
                if away.release == step {
                    now = now.max(done.0);
                }
            }
            for &i in order.iter().filter(|&&i| self.away[i].fetch == step) {
                up = up.max(now) + seconds(&self.away[i], links.h2d);
                done[i].1 = up;
            }
            for (away, done) in self.away.iter().zip(&done) {
                if away.gap.to.step.index() == step {
                    now = now.max(done.1);
                }
            }
            let begun = now;
            now += self.problem.chosen(self.plan, u.node).seconds;
            for &i in &order {
                let Away { gap, .. } = self.away[i];
                // A copy made earlier may still be good; then nothing moves.
                let again = |other: &Away| {
                    other.gap.root == gap.root
                        && other.gap.from.step < gap.from.step
                        && gap.written.is_none_or(|written| written <= other.gap.from.step)
                };
                if gap.from.step.index() == step && !self.away.iter().any(again) {
                    let ready = if gap.from.writes { now } else { begun };
                    down = down.max(ready) + seconds(&self.away[i], links.d2h);
                    done[i].0 = down;
                }
            }
        }
        now
    }
}

/// Every order that forgetting some of the feature maps makes.
fn orders(problem: &Problem<'_>) -> Vec<Order> {
    let maps = maps(problem);
    let mut seen = BTreeSet::new();
    let mut orders = Vec::new();
    for way in 0..3usize.pow(maps.len() as u32) {
        let digit = |i: usize| way / 3usize.pow(i as u32) % 3;
        let forgotten: BTreeMap<ValueId, Forget> = maps
            .iter()
            .enumerate()
            .filter(|&(i, _)| digit(i) > 0)
            .map(|(i, &root)| (root, if digit(i) == 1 { Forget::Once } else { Forget::AfterEachUse }))
            .collect();
        let Ok(made) = recompute(problem.program, &forgotten) else { continue };
        if !seen.insert((made.order.clone(), made.drops.clone())) {
            continue;
        }
        let plan = MemoryPlan { order: made.order, gaps: made.drops, ..MemoryPlan::keep_all(problem.program) };
        orders.push(order(problem, plan, &maps));
    }
    orders
}

/// Feature maps with a gap from forward to backward.
fn maps(problem: &Problem<'_>) -> Vec<ValueId> {
    let (graph, liveness) = (&problem.program.graph, problem.liveness());
    let forward = |step: Step| problem.program.node_at(step).phase == Phase::Forward;
    let crosses = |gap: Gap| forward(gap.from.step) && !forward(gap.to.step) && gap.to.step.0 > gap.from.step.0 + 1;
    let roots = liveness.roots().iter().copied().filter(|&root| graph.value(root).role == Role::FeatureMap);
    roots.filter(|&root| liveness.gaps(root).any(crosses)).collect()
}

fn order(problem: &Problem<'_>, plan: MemoryPlan, maps: &[ValueId]) -> Order {
    let liveness = Liveness::of(problem, &plan.order);
    let forward = |u: &Use| u.run == 0 && problem.program.graph.node(u.node).phase == Phase::Forward;
    let turn = plan.order.iter().position(|u| !forward(u)).unwrap();
    let mut fixed = vec![0; plan.order.len()];
    let mut gaps = Vec::new();
    for &root in liveness.roots() {
        let bytes = problem.program.aliases.storage_bytes(root);
        liveness.accesses(root).iter().for_each(|access| fixed[access.step.index()] += bytes);
        let mut refilled = false;
        // From the last gap to the first: what a later run still writes into is not whole before.
        for gap in liveness.gaps(root).collect::<Vec<_>>().into_iter().rev() {
            let ends = plan.order[gap.to.step.index()];
            let dropped = plan.gaps.contains_key(&(root, ends));
            refilled = !dropped && (refilled || (gap.to.writes && ends.run > 0));
            let may_leave = maps.contains(&root) && gap.to.step.index() >= turn && !refilled;
            if dropped {
                continue;
            }
            if may_leave && gap.to.step.0 > gap.from.step.0 + 1 {
                gaps.push(gap);
            } else {
                (gap.from.step.index() + 1..gap.to.step.index()).for_each(|step| fixed[step] += bytes);
            }
        }
    }
    for (fixed, u) in fixed.iter_mut().zip(&plan.order) {
        *fixed -= overwritten(problem, u.node);
    }
    Order { plan, gaps, fixed }
}

/// The most bytes that a kernel may write over storages that end with it.
fn overwritten(problem: &Problem<'_>, id: NodeId) -> u64 {
    let (node, aliases) = (problem.program.graph.node(id), &problem.program.aliases);
    let pairs = node.op.in_place().iter().filter(|&&(input, _)| input < node.inputs.len());
    let roots = pairs.map(|&(input, output)| [node.inputs[input], node.outputs[output]].map(|id| aliases.root(id)));
    let apart: BTreeMap<ValueId, ValueId> =
        roots.filter(|[from, to]| from != to).map(|[from, to]| (to, from)).collect();
    apart.keys().map(|&to| aliases.storage_bytes(to)).sum()
}

/// Every choice of algorithms, with the seconds of the order's kernels.
fn algorithms(problem: &Problem<'_>, order: &Order) -> Vec<(f64, Vec<usize>)> {
    let mut ways: Vec<(f64, Vec<usize>)> = vec![(0.0, Vec::new())];
    for id in problem.program.graph.node_ids() {
        let runs = order.plan.order.iter().filter(|u| u.node == id).count() as f64;
        let longer = |(seconds, picks): &(f64, Vec<usize>)| {
            let choices = problem.kernels.all(id).enumerate();
            let next =
                choices.map(|(number, choice)| (seconds + runs * choice.seconds, [&picks[..], &[number]].concat()));
            next.collect::<Vec<_>>()
        };
        ways = ways.iter().flat_map(longer).collect();
    }
    ways
}
