//! `hybrid`: offload, recomputation, algorithms and addresses chosen together, to any byte budget.
//!
//! ```text
//!  seeds: how much stays × how much the links carry × who is made again     estimated, hundreds
//!    └─► the best few ─► one value's fate changed at a time                 estimated, counted
//!          └─► addresses, schedule ─► simulated                             the shortest wins; `dyn` among them
//! ```
//! A seed splits what must leave in two: as much as the links carry beside the kernels (times a share) is offloaded, the rest
//! made again, cheapest seconds a byte first. Other seeds keep every n-th value and make the rest again, so that
//! long chains are made in pieces. All counts are fixed by the size of the problem; nothing looks at a clock.

use super::{Algorithms, Dynamic, MemoryPolicy, None as KeepAll};
use crate::joint::{Decision, Fate, Joint};
use crate::{Infeasible, MemoryPlan, Problem, compile};
use vdnn_sim::simulate;
use vdnn_tensor::Bytes;

/// Shares of the room (or of what there is) that stay.
const KEPT: [f64; 8] = [1.0, 0.9, 0.8, 0.7, 0.55, 0.4, 0.2, 0.0];
/// Shares of what the links carry beside the kernels that are offloaded.
const CARRIED: [f64; 6] = [0.0, 0.4, 0.7, 1.0, 1.5, f64::INFINITY];
/// One checkpoint in so many values.
const STRIDES: [usize; 8] = [2, 3, 4, 6, 8, 12, 20, 32];
/// Shares of the room that algorithms leave to copies.
const RESERVES: [f64; 3] = [0.0, 0.12, 0.3];
/// Seeds improved by changing one fate at a time.
const IMPROVED: usize = 2;
/// Decisions given addresses and simulated.
const FINALISTS: usize = 4;
/// Estimates of steps in all: what bounds the time of planning.
const ESTIMATED_STEPS: usize = 1_500_000;

/// The joint policy.
#[derive(Clone, Copy, Debug)]
pub struct Hybrid;

/// A decision and the seconds it is estimated to take.
#[derive(Clone, Debug)]
struct Scored {
    seconds: f64,
    decision: Decision,
}

impl MemoryPolicy for Hybrid {
    fn name(&self) -> &str {
        "hybrid"
    }

    fn plan(&self, problem: &Problem<'_>) -> Result<MemoryPlan, Infeasible> {
        let keep = KeepAll { algorithms: Algorithms::PerformanceOptimal };
        if problem.budgets.device.is_none() {
            return keep.plan(problem);
        }
        if let Ok(plan) = keep.plan(problem) {
            return Ok(plan);
        }
        let joint = Joint::new(problem, "hybrid");
        // What says whether there is a plan at all: `dyn`, and below its floor the leanest decisions.
        let sure = Dynamic.plan(problem).or_else(|refusal| leanest(&joint, refusal))?;
        let mut found = improve(&mut Estimates::new(&joint), seeds(&joint));
        found.truncate(FINALISTS);
        let plans = found.iter().filter_map(|scored| joint.settle(&scored.decision)).chain([sure.clone()]);
        let timed = plans.filter_map(|plan| Some((simulated(problem, &plan)?, plan)));
        let best = timed.reduce(|best, next| if next.0 < best.0 { next } else { best });
        Ok(best.map_or(sure, |(_, plan)| plan))
    }
}

/// Seconds of the schedule that a plan makes; `None` when it makes none.
fn simulated(problem: &Problem<'_>, plan: &MemoryPlan) -> Option<f64> {
    let schedule = compile(problem, plan, "hybrid").ok()?;
    simulate(&schedule, problem.kernels, &problem.links).ok().map(|timeline| timeline.seconds)
}

/// Estimates up to a count.
struct Estimates<'a, 'b> {
    joint: &'b Joint<'a>,
    left: usize,
}

impl<'a, 'b> Estimates<'a, 'b> {
    fn new(joint: &'b Joint<'a>) -> Self {
        let steps = joint.problem.program.n_steps().max(1);
        Estimates { joint, left: (ESTIMATED_STEPS / steps).clamp(24, 1500) }
    }

    fn of(&mut self, decision: Decision) -> Option<Scored> {
        self.left = self.left.checked_sub(1)?;
        let seconds = self.joint.estimate(&decision)?;
        Some(Scored { seconds, decision })
    }
}

/// Decisions to begin with, the most promising kinds first.
fn seeds(joint: &Joint<'_>) -> Vec<Decision> {
    let mut fates: Vec<Vec<Fate>> = Vec::new();
    for carried in CARRIED {
        for kept in KEPT {
            fates.push(split(joint, kept, carried));
        }
    }
    for stride in STRIDES {
        for checkpoint in [Fate::Keep, Fate::Offload] {
            fates.push(strided(joint, stride, checkpoint));
        }
    }
    let mut decisions: Vec<Decision> = Vec::new();
    for reserve in RESERVES {
        decisions.extend(fates.iter().map(|fates| Decision { fates: fates.clone(), reserve }));
    }
    decisions.dedup();
    decisions
}

/// Keeps a share, offloads what the links carry (times a share), makes the rest again.
fn split(joint: &Joint<'_>, kept: f64, carried: f64) -> Vec<Fate> {
    let candidates = &joint.candidates;
    let total: Bytes = candidates.iter().map(|candidate| candidate.bytes).sum();
    let stays = kept * (joint.room().unwrap_or(0).min(total)) as f64;
    let leaves = (total as f64 - stays).max(0.0);
    let links = &joint.problem.links;
    let carries = (links.d2h * joint.halves[0]).min(links.h2d * joint.halves[1]);
    let remade = (leaves - carried * carries).max(0.0);
    let mut fates = vec![Fate::Keep; candidates.len()];
    let mut order: Vec<usize> = (0..candidates.len()).filter(|&i| candidates[i].repeatable).collect();
    let price = |i: usize| candidates[i].rerun_seconds / candidates[i].bytes as f64;
    order.sort_by(|&a, &b| price(a).total_cmp(&price(b)).then(a.cmp(&b)));
    let mut gone = 0.0;
    for i in order {
        if gone >= remade {
            break;
        }
        fates[i] = Fate::Recompute;
        gone += candidates[i].bytes as f64;
    }
    // What was made first has the longest time to leave and to come back.
    for i in 0..candidates.len() {
        if gone >= leaves {
            break;
        }
        if fates[i] == Fate::Keep {
            fates[i] = Fate::Offload;
            gone += candidates[i].bytes as f64;
        }
    }
    fates
}

/// Every n-th candidate is a checkpoint, the others are made again where they can be.
fn strided(joint: &Joint<'_>, stride: usize, checkpoint: Fate) -> Vec<Fate> {
    let fate = |(i, repeatable): (usize, bool)| match (repeatable, i % stride) {
        (true, 1..) => Fate::Recompute,
        _ => checkpoint,
    };
    joint.candidates.iter().map(|candidate| candidate.repeatable).enumerate().map(fate).collect()
}

/// Estimates the seeds and changes one fate at a time in the best of them, while there are estimates left.
fn improve(estimates: &mut Estimates<'_, '_>, seeds: Vec<Decision>) -> Vec<Scored> {
    let enough = estimates.left / 2;
    let mut scored = Vec::new();
    // Spread over all kinds of seeds when there are too many for the count.
    let step = seeds.len().div_ceil(enough.max(1)).max(1);
    for offset in 0..step {
        for decision in seeds.iter().skip(offset).step_by(step) {
            if estimates.left > enough {
                scored.extend(estimates.of(decision.clone()));
            }
        }
    }
    sort(&mut scored);
    scored.dedup_by(|a, b| a.decision == b.decision);
    for index in 0..IMPROVED.min(scored.len()) {
        let budget = estimates.left / (IMPROVED - index);
        let best = climb(estimates, scored[index].clone(), budget);
        scored.push(best);
    }
    sort(&mut scored);
    scored
}

fn sort(scored: &mut [Scored]) {
    scored.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
}

/// Changes one fate at a time, largest values first, and keeps what is faster.
fn climb(estimates: &mut Estimates<'_, '_>, mut best: Scored, budget: usize) -> Scored {
    let joint = estimates.joint;
    let mut order: Vec<usize> = (0..joint.candidates.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(joint.candidates[i].bytes), i));
    let stop = estimates.left.saturating_sub(budget);
    loop {
        let before = best.seconds;
        for &i in &order {
            for fate in [Fate::Keep, Fate::Offload, Fate::Recompute] {
                let allowed = fate != Fate::Recompute || joint.candidates[i].repeatable;
                if best.decision.fates[i] == fate || !allowed {
                    continue;
                }
                if estimates.left <= stop {
                    return best;
                }
                let mut decision = best.decision.clone();
                decision.fates[i] = fate;
                if let Some(next) = estimates.of(decision).filter(|next| next.seconds < best.seconds) {
                    best = next;
                }
            }
        }
        if best.seconds >= before {
            return best;
        }
    }
}

/// The first of the leanest decisions that fits, with the least workspace of each kernel; else how much the best of them
/// lacks.
fn leanest(joint: &Joint<'_>, mut least: Infeasible) -> Result<MemoryPlan, Infeasible> {
    for checkpoint in [Fate::Offload, Fate::Keep] {
        for stride in [1, 2, 4, 8] {
            match joint.least(&strided(joint, stride, checkpoint)) {
                Some(Ok(plan)) => return Ok(plan),
                Some(Err(refusal)) if refusal.floor < least.floor => least = refusal,
                _ => {}
            }
        }
    }
    Err(Infeasible { policy: "hybrid".to_string(), ..least })
}
