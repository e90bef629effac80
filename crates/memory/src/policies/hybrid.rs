//! `hybrid`: offload, recomputation, algorithms and addresses chosen together, to any byte budget.
//!
//! ```text
//!  seeds: how much stays × how much the links carry × who is made again     estimated, hundreds
//!    └─► the best few ─► fates of blocks, then of single values, changed      estimated; what is faster
//!                                is given addresses and simulated          the shortest wins, `dyn` and
//!                                                                          `checkpoint` among them
//!  near the floor, of short programs ─► exchanges: what stays for what leaves
//!  seeds that keep pace with the links, where one is estimated about as fast ─► the same
//!  what fills room and link, where that is estimated about as fast (`pace`) ─► the faster of both
//! ```
//! A seed splits what must leave in two: as much as the links carry beside the kernels (times a share) is offloaded, the rest
//! made again, cheapest seconds a byte first. Other seeds keep every n-th value and make the rest again, so that
//! long chains are made in pieces. Of a program and its encoded alternative, the one whose first seeds are estimated
//! faster is searched; where everything fits, the one with the faster kernels is kept whole. What streams is chosen around
//! all of this (`streaming`). All counts are fixed by the size of the problem; nothing looks at a clock.

mod exchange;
mod filled;
mod greedy;
mod pace;
mod seeds;

use super::{Algorithms, MemoryPolicy, checkpoint, dynamic, streaming};
use crate::fit::fits;
use crate::joint::{Decision, Fate, Joint};
use crate::recompute::First;
use crate::{Infeasible, MemoryPlan, Problem, VariantId};
use greedy::Greedy;
use seeds::{comes_again, paced_seeds, seeds, strided, ways};
use std::collections::BTreeMap;
use vdnn_graph::NodeId;
use vdnn_tensor::Bytes;

/// Estimates that say which of two programs is searched.
const GLANCES: usize = 32;
/// What a candidate's fate may be, and what else near the floor.
const FATES: [Fate; 5] = [Fate::Keep, Fate::Offload, Fate::Recompute, Fate::OffloadEach, Fate::RecomputeEach];
const NEAR_FATES: [Fate; 8] = [
    Fate::Keep,
    Fate::Offload,
    Fate::Recompute,
    Fate::OffloadEach,
    Fate::RecomputeEach,
    Fate::RecomputeApart,
    Fate::RecomputeAhead,
    Fate::OffloadApart,
];
/// How much slower than the fastest kernels the best seed is estimated where the floor is near, as a share.
const NEAR: f64 = 0.1;
/// Looks at the fullest step in a greedy search, in steps.
const LOOKED_STEPS: usize = 1_000_000;
/// How many times as many of a short program, and as many estimates from its starts on, where its floor is near.
const WIDE_LOOKS: usize = 4;
const WIDE_ESTIMATES: usize = 2;
/// Of those, one in so many for a glance.
const GLANCED: usize = 20;
/// Estimates that improving a seed deserves, for each candidate: decides how many seeds are improved, two at least.
const MOVES_A_CANDIDATE: usize = 12;
/// Seeds given addresses and simulated.
const STARTS: usize = 12;
/// Estimates in all, in steps: what bounds the time of planning, with the next.
const ESTIMATED_STEPS: usize = 1_400_000;
/// Plans with addresses and a simulated schedule, in steps.
const SIMULATED_STEPS: usize = 100_000;
/// Estimates for each share of parameters and states that could stream, in steps.
const GLANCED_STEPS: usize = 30_000;
/// Estimates for paced seeds and what comes of them, in steps, and their simulations.
const PACED_STEPS: usize = 700_000;
const PACED_SIMULATIONS: usize = 20;
/// Ends of climbs from which exchanges begin.
const EXCHANGED: usize = 4;
/// By how much such a seed may be slower than all there is and still be gone on from, as a share.
const PACED_SLOWER: f64 = 0.02;
/// Seconds over the oracle's, as a share, that are rounding.
const PERFECT: f64 = 1e-6;
/// Simulations from which on each faster estimate gets one.
const SIMULATED_EACH: usize = 60;

/// The joint policy.
#[derive(Clone, Copy, Debug)]
pub struct Hybrid;

impl MemoryPolicy for Hybrid {
    fn name(&self) -> &str {
        "hybrid"
    }

    fn takes_pieces(&self) -> bool {
        true
    }

    fn plan(&self, problem: &Problem<'_>) -> Result<MemoryPlan, Infeasible> {
        let plan = streaming::plan(problem, searched, refusal, promising)?;
        Ok(if problem.budgets.device.is_some() { pace::kept(problem, plan) } else { plan })
    }

    fn takes_encodings(&self) -> bool {
        true
    }
}

/// The plan for one program, if there is one, by one in `part` of the simulations.
fn joint_plan(joint: &Joint<'_>, part: usize) -> Option<MemoryPlan> {
    // What says whether there is a plan at all: `dyn`, and below its floor the leanest decisions.
    let sure = dynamic::found(joint.problem).or_else(|| leanest(joint).find_map(|fates| joint.least(&fates)))?;
    let mut search = Search::new(joint);
    search.simulations = (search.simulations / part).max(4);
    search.offer(&sure);
    if !joint.streams()
        && !search.perfect()
        && let Some(plan) = checkpoint::found(joint.problem)
    {
        search.offer(&plan);
    }
    let best = search.run();
    Some(best.unwrap_or(sure))
}

/// The plan for the program that some seeds say is faster, and for the other one where that has none.
fn better(
    plain: &Joint<'_>,
    encoded: &Joint<'_>,
    variants: BTreeMap<NodeId, VariantId>,
    part: usize,
) -> Option<MemoryPlan> {
    let with_masks = || joint_plan(encoded, part).map(|plan| with(variants.clone(), plan));
    if plain.problem.program.n_steps() <= streaming::SHORT {
        let masked = twice(encoded.problem).map(|(seconds, plan)| (seconds, with(variants.clone(), plan)));
        let found = twice(plain.problem).chain(masked).min_by(|a, b| a.0.total_cmp(&b.0));
        return found.map(|(_, plan)| plan);
    }
    if glance(encoded, GLANCES) <= glance(plain, GLANCES) {
        with_masks().or_else(|| joint_plan(plain, part))
    } else {
        joint_plan(plain, part).or_else(with_masks)
    }
}

/// The plans of a short program, where a search takes no time worth sparing, and their seconds: with what streams as near to its
/// uses as can be, too, where room lacks.
fn twice<'a>(problem: &'a Problem<'a>) -> impl Iterator<Item = (f64, MemoryPlan)> {
    let joint = || Joint::new(problem, "hybrid").in_pieces();
    let near = joint().streams().then(|| joint().with_short_streams());
    let found = |joint: Joint<'_>| {
        let plan = joint_plan(&joint, 1)?;
        Some((joint.simulated(&plan)?, plan))
    };
    std::iter::once(joint()).chain(near).filter_map(found)
}

fn with(variants: BTreeMap<NodeId, VariantId>, plan: MemoryPlan) -> MemoryPlan {
    MemoryPlan { variants, ..plan }
}

/// The least estimate of a few seeds of all kinds; infinite where none of them fits.
fn glance(joint: &Joint<'_>, glances: usize) -> f64 {
    let Some(room) = joint.room() else { return f64::INFINITY };
    let seeds = seeds(joint);
    let every = seeds.len().div_ceil(glances).max(1);
    let estimate = |seed: &Decision| joint.estimate_seed(seed, room, comes_again(seed));
    let estimates = seeds.iter().step_by(every).filter_map(estimate);
    let best = estimates.fold(f64::INFINITY, f64::min);
    if is_near(joint, best) { Greedy::of(joint, room, looks(joint) / GLANCED).least(best).min(best) } else { best }
}

/// The least seconds of some decisions; infinite where there are none.
fn least_of(ranked: &[(f64, Decision)]) -> f64 {
    ranked.iter().map(|(seconds, _)| *seconds).fold(f64::INFINITY, f64::min)
}

/// Whether the floor is near, where nothing is estimated faster than this.
fn is_near(joint: &Joint<'_>, seconds: f64) -> bool {
    seconds > joint.oracle() * (1.0 + NEAR)
}

/// Whether a program has few steps, so that wide searches take no long time.
fn is_short(joint: &Joint<'_>) -> bool {
    joint.problem.program.n_steps() <= streaming::SHORT
}

/// Looks that a greedy search has.
fn looks(joint: &Joint<'_>) -> usize {
    let wide = if is_short(joint) { WIDE_LOOKS } else { 1 };
    wide * (LOOKED_STEPS / joint.problem.program.n_steps().max(1)).clamp(20, 10_000)
}

/// The best plan found with the problem's homes by one in `part` of the simulations, if there is one.
fn searched(problem: &Problem<'_>, part: usize) -> Option<MemoryPlan> {
    let keep = |problem: &Problem<'_>| fits(problem, &Algorithms::PerformanceOptimal.plan(problem), &[]);
    if problem.budgets.device.is_none() {
        return keep(problem);
    }
    let plain = problem.plain();
    let joint = Joint::new(&plain, "hybrid").in_pieces();
    // Where parameters stream, keeping all the rest need not be fastest.
    let kept = if joint.streams() { None } else { keep(&plain) };
    let Some(encoded) = problem.with_encodings() else { return kept.or_else(|| joint_plan(&joint, part)) };
    let encoded = Joint::new(&encoded, "hybrid").in_pieces();
    match kept {
        // What is quicker just below the peak of `none` is quicker above it, too.
        Some(plan) if joint.oracle() <= encoded.oracle() => Some(plan),
        Some(plan) => Some(keep(encoded.problem).map_or(plan, |plan| with(problem.variants(), plan))),
        None => better(&joint, &encoded, problem.variants(), part),
    }
}

/// Why there is none with the problem's homes: the least floor of both programs.
fn refusal(problem: &Problem<'_>) -> Infeasible {
    let of = |problem: Problem<'_>| {
        let joint = Joint::new(&problem, "hybrid").in_pieces();
        let lean = leanest(&joint).filter_map(|fates| joint.lacking(&fates));
        lean.fold(dynamic::refusal(&problem), lesser)
    };
    let (plain, encoded) = (of(problem.plain()), problem.with_encodings().map(of));
    let least = match encoded {
        Some(encoded) => lesser(encoded, plain),
        None => plain,
    };
    Infeasible { policy: "hybrid".to_string(), ..least }
}

/// The refusal of the lower floor, the first of equals.
fn lesser(first: Infeasible, second: Infeasible) -> Infeasible {
    if second.floor < first.floor { second } else { first }
}

/// The least seconds of a few seeds, as estimated; `None` where none of them fits.
fn promising(problem: &Problem<'_>) -> Option<f64> {
    problem.budgets.device?.checked_sub(problem.homes.extent())?;
    let glances = (GLANCED_STEPS / problem.program.n_steps().max(1)).clamp(8, 40);
    let programs = [Some(problem.plain()), problem.with_encodings()];
    let of = |problem: Problem<'_>| glance(&Joint::new(&problem, "hybrid").in_pieces(), glances);
    programs.into_iter().flatten().map(of).min_by(f64::total_cmp).filter(|least| least.is_finite())
}

/// A decision with a plan, and the seconds of its simulated schedule.
#[derive(Clone, Debug)]
struct Planned {
    decision: Decision,
    /// The room at which addresses fitted, and the seconds estimated there.
    room: Bytes,
    estimate: f64,
    seconds: f64,
}

/// The search: estimates and simulations left, and the best so far.
struct Search<'a, 'b> {
    joint: &'b Joint<'a>,
    estimates: usize,
    simulations: usize,
    /// Whether decisions near the floor are among the starts.
    near: bool,
    best: Option<(f64, MemoryPlan)>,
}

impl<'a, 'b> Search<'a, 'b> {
    fn new(joint: &'b Joint<'a>) -> Self {
        let steps = joint.problem.program.n_steps().max(1);
        Search {
            joint,
            estimates: (ESTIMATED_STEPS / steps).clamp(24, 25_000),
            simulations: (SIMULATED_STEPS / steps).clamp(4, 500),
            near: false,
            best: None,
        }
    }

    /// Remembers a plan if it is the best so far.
    fn offer(&mut self, plan: &MemoryPlan) -> Option<f64> {
        let seconds = self.joint.simulated(plan)?;
        if self.best.as_ref().is_none_or(|(least, _)| seconds < *least) {
            self.best = Some((seconds, plan.clone()));
        }
        Some(seconds)
    }

    fn run(mut self) -> Option<MemoryPlan> {
        let mut starts: Vec<Planned> = Vec::new();
        // Half of the simulations where every decision is a seed.
        let every = ways(self.joint.candidates.len()).is_some();
        let (most, kept) = if every { (usize::MAX, self.simulations / 2) } else { (STARTS, 0) };
        for (_, decision) in self.ranked_seeds() {
            if starts.len() == most || self.simulations == kept || self.simulations == 0 || self.perfect() {
                break;
            }
            starts.extend(self.planned(decision));
        }
        starts.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        if self.near && is_short(self.joint) {
            self.estimates *= WIDE_ESTIMATES;
        }
        let climbs = self.estimates / (MOVES_A_CANDIDATE * self.joint.candidates.len().max(1));
        let climbs = climbs.clamp(2, STARTS);
        if self.joint.copies_delay() {
            both_kinds(&mut starts, climbs);
        }
        starts.truncate(climbs);
        let count = starts.len();
        let mut reached = Vec::new();
        for (index, start) in starts.into_iter().enumerate() {
            let share = self.estimates / (count - index);
            reached.push(self.climb(start, share));
        }
        reached.sort_by(|a: &Planned, b| a.seconds.total_cmp(&b.seconds));
        // The best of them need not be where most can be exchanged.
        if self.near && is_short(self.joint) {
            reached.into_iter().take(EXCHANGED).for_each(|from| self.exchange(from));
        }
        self.keep_pace();
        self.best.map(|(_, plan)| plan)
    }

    /// Goes on from the paced seed that is estimated fastest, where that is about as fast as all there is.
    fn keep_pace(&mut self) {
        let Some(room) = self.joint.room().filter(|_| !self.perfect()) else { return };
        let steps = self.joint.problem.program.n_steps().max(1);
        (self.estimates, self.simulations) = ((PACED_STEPS / steps).clamp(24, 2_000), PACED_SIMULATIONS);
        let least = self.best.as_ref().map_or(f64::INFINITY, |(seconds, _)| *seconds);
        let fastest = paced_seeds(self.joint)
            .into_iter()
            .filter_map(|decision| Some((self.estimate_seed(&decision, room)?, decision)))
            .filter(|(seconds, _)| *seconds < least * (1.0 + PACED_SLOWER))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        if let Some(start) = fastest.and_then(|(_, decision)| self.planned(decision)) {
            self.climb(start, self.estimates);
        }
    }

    /// The seeds that fit as estimated, fastest first.
    fn ranked_seeds(&mut self) -> Vec<(f64, Decision)> {
        let Some(room) = self.joint.room() else { return Vec::new() };
        let seeds = seeds(self.joint);
        let enough = self.estimates * 2 / 3;
        // Spread over all kinds of seeds when there are too many for the count.
        let every = seeds.len().div_ceil(enough.max(1)).max(1);
        let mut ranked: Vec<(f64, Decision)> = Vec::new();
        for decision in seeds.into_iter().step_by(every) {
            if self.perfect() {
                break;
            }
            let Some(seconds) = self.estimate_seed(&decision, room) else { continue };
            // What seems perfect may be it: nothing else need be looked at then.
            if seconds <= self.joint.oracle() * (1.0 + PERFECT) && self.simulations > 0 {
                self.planned(decision.clone());
            }
            ranked.push((seconds, decision));
        }
        let best = least_of(&ranked);
        if is_near(self.joint, best) && ways(self.joint.candidates.len()).is_none() {
            ranked.extend(Greedy::of(self.joint, room, looks(self.joint)).decisions(best));
            let least = least_of(&ranked);
            self.near = least < best && is_near(self.joint, least);
        }
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        ranked.dedup_by(|a, b| a.1 == b.1);
        ranked
    }

    fn estimate_seed(&mut self, seed: &Decision, room: Bytes) -> Option<f64> {
        self.estimates = self.estimates.checked_sub(1)?;
        self.joint.estimate_seed(seed, room, comes_again(seed))
    }

    /// Less than so many seconds.
    fn estimate_below(&mut self, decision: &Decision, room: Bytes, limit: f64) -> Option<f64> {
        self.estimates = self.estimates.checked_sub(1)?;
        self.joint.estimate_below(decision, room, limit)
    }

    /// The decision's plan and simulated time, remembered if it is the best.
    fn planned(&mut self, decision: Decision) -> Option<Planned> {
        let room = self.joint.room()?;
        self.planned_within(decision, room)
    }

    /// The same with live bytes of no more than `room`.
    fn planned_within(&mut self, decision: Decision, room: Bytes) -> Option<Planned> {
        self.simulations = self.simulations.checked_sub(1)?;
        let (plan, room) = self.joint.settle(&decision, room)?;
        let seconds = self.offer(&plan)?;
        let estimate = self.joint.estimate(&decision, room)?;
        Some(Planned { decision, room, estimate, seconds })
    }

    /// Gives ever smaller blocks of neighbours, and every other one of a block, another fate. Blocks come first because in
    /// deep networks one value alone changes nothing that can be seen. Small programs have each faster estimate planned and
    /// simulated before it counts, large ones what a pass has come to.
    fn climb(&mut self, mut best: Planned, share: usize) -> Planned {
        let fates = self.fates(&best.decision);
        let stop = self.estimates.saturating_sub(share);
        let each = self.simulations >= SIMULATED_EACH;
        let n = self.joint.candidates.len();
        let mut size = (n / 4).max(1).next_power_of_two();
        while self.estimates > stop && self.simulations > 0 && !self.perfect() {
            let before = best.seconds;
            let mut pass = best.clone();
            for first in (0..n).step_by(size) {
                let block = first..(first + size).min(n);
                let strides = 1..if size >= 4 { 3 } else { 2 };
                for (stride, &fate) in strides.flat_map(|stride| fates.iter().map(move |fate| (stride, fate))) {
                    if self.estimates <= stop {
                        break;
                    }
                    let moved = changed(self.joint, &pass.decision, block.clone().step_by(stride), fate);
                    let next = moved.and_then(|decision| self.faster(decision, &pass));
                    let next = if each { next.and_then(|next| self.planned(next.decision)) } else { next };
                    pass = next.filter(|next| !each || next.seconds < pass.seconds).unwrap_or(pass);
                }
            }
            let reached = if each { Some(pass) } else { self.planned(pass.decision) };
            best = reached.filter(|reached| reached.seconds < best.seconds).unwrap_or(best);
            if size > 1 {
                size /= 2;
            } else if best.seconds >= before {
                break;
            }
        }
        best
    }

    /// What a move may give a candidate of a decision.
    fn fates(&self, decision: &Decision) -> &'static [Fate] {
        match (self.near, decision.first) {
            (false, _) => &FATES,
            (true, First::Early) => &NEAR_FATES[..NEAR_FATES.len() - 1],
            (true, First::Large) => &NEAR_FATES,
        }
    }

    /// The decision if it is estimated faster, with the simulated time still that of the one it came from.
    fn faster(&mut self, decision: Decision, best: &Planned) -> Option<Planned> {
        let estimate = self.estimate_below(&decision, best.room, best.estimate)?;
        Some(Planned { decision, estimate, ..*best })
    }

    /// Nothing is faster than the fastest kernels.
    fn perfect(&self) -> bool {
        self.best.as_ref().is_some_and(|(seconds, _)| *seconds <= self.joint.oracle() * (1.0 + PERFECT))
    }
}

/// Puts one that copies and one that does not among the first `count` starts, if there are both: where copies delay launches,
/// a climb seldom leaves the last of them behind.
fn both_kinds(starts: &mut [Planned], count: usize) {
    let copies = |start: &Planned| start.decision.fates.iter().any(|fate| fate.copies());
    let Some(first) = starts.first().map(copies) else { return };
    if let Some(other) = starts.iter().position(|start| copies(start) != first).filter(|&other| other >= count) {
        starts[count - 1..=other].rotate_right(1);
    }
}

/// The decision with another fate for some candidates, if that is another decision.
fn changed(joint: &Joint<'_>, decision: &Decision, which: impl Iterator<Item = usize>, fate: Fate) -> Option<Decision> {
    let mut next = decision.clone();
    for i in which.filter(|&i| !fate.repeats() || joint.candidates[i].repeatable) {
        next.fates[i] = fate;
    }
    (next != *decision).then_some(next)
}

/// The leanest decisions, one of which fits where one does, with the least workspace of each kernel.
fn leanest(joint: &Joint<'_>) -> impl Iterator<Item = Vec<Fate>> {
    let checkpoints = [Fate::OffloadEach, Fate::Offload, Fate::Keep];
    let ways = checkpoints.into_iter().flat_map(|checkpoint| [1, 2, 4, 8].map(|stride| (stride, checkpoint)));
    ways.map(|(stride, checkpoint)| strided(joint, stride, checkpoint))
}
