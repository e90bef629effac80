//! `checkpoint`: recomputation alone. Forward keeps little; backward makes the rest again, a segment at a time.
//!
//! ```text
//!  forward    X1 ─ X2 ─ X3 │ X4 ─ X5 ─ X6 │ X7 ─ X8 ─ loss        │ segment ends: what is read across them stays
//!  backward                                 dX8 … X5' X6' dX6 … X2' X3' dX3 …
//! ```
//! *Square root* (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"): about √n segments of n values, so that
//! the bytes across ends and the bytes of one segment are of one size. An end that falls at an even distance is moved, by
//! at most half a segment, to where the fewest bytes are read across it: to the end of a residual block rather than into
//! it, where the shortcut stays too. The last segment is never made again, since backward begins with it. This is the
//! policy without a budget.
//!
//! *Cost-aware*, under a budget: not every forgotten byte costs the same seconds. A batch norm's output is made again in a
//! few passes over memory, a convolution's in milliseconds. Three things are varied together, and what fits is compared by
//! estimated seconds, the best few by simulated ones:
//! - how many segments there are: few ends keep little but make long segments, which live at once when made again; and
//!   whether they are of as many values or of as many bytes, since early values are often the largest;
//! - how many of them are forgotten, those of the least seconds a byte first, since a budget rarely asks for all;
//! - which values stay although they lie inside a segment, and which go although theirs stays: both by their own seconds a
//!   byte. With a single segment this is the choice value by value, with all of them the choice by segments.
//!
//! The decisions compared do not depend on the budget, only whether they fit does. Not done here: copies; joint choices
//! with them are `hybrid`'s.

use super::{Algorithms, MemoryPolicy};
use crate::fit::fits;
use crate::joint::{Decision, Fate, Joint};
use crate::{Forget, Infeasible, MemoryPlan, Problem, fit_to_budget, recompute};
use std::collections::BTreeSet;
use vdnn_tensor::Bytes;

/// Numbers of segments as multiples of √n.
const SEGMENTS: [f64; 6] = [0.0, 0.3, 0.6, 1.0, 2.0, 4.0];
/// Shares of what can be forgotten whose segments are.
const FORGOTTEN: [f64; 7] = [0.0, 0.12, 0.25, 0.4, 0.6, 0.8, 1.0];
/// Shares of all bytes that go wherever they lie, those of the least seconds a byte first.
const CHEAP: [f64; 8] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 1.0];
/// Shares of all bytes that stay even in a forgotten segment, those of the most seconds a byte first.
const DEAR: [f64; 2] = [0.0, 0.3];
/// Decisions given addresses and simulated.
const FINALISTS: usize = 3;
/// Decisions of which finalists may come: addresses do not always fit where bytes do.
const TRIED: usize = 12;
/// Estimates of steps in all: what bounds the time of planning.
const ESTIMATED_STEPS: usize = 300_000;

/// Recomputation by segments.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint;

impl MemoryPolicy for Checkpoint {
    fn name(&self) -> &str {
        "checkpoint"
    }

    fn plan(&self, problem: &Problem<'_>) -> Result<MemoryPlan, Infeasible> {
        found(problem).ok_or_else(|| refusal(problem))
    }
}

/// The plan, if there is one.
pub(super) fn found(problem: &Problem<'_>) -> Option<MemoryPlan> {
    let joint = Joint::new(problem, "checkpoint");
    let forgetting = Forgetting::new(&joint);
    let first = fits(problem, &square_root(&joint, &forgetting), &[]);
    if problem.budgets.device.is_none() {
        return first;
    }
    let sure = first.or_else(|| leanest(&joint, &forgetting).find_map(|fates| joint.least(&fates)))?;
    let plans = fastest(&joint, &forgetting).into_iter().filter_map(|decision| joint.settle(&decision, joint.room()?));
    let timed = plans.map(|(plan, _)| plan).take(FINALISTS).chain([sure.clone()]);
    let timed = timed.filter_map(|plan| Some((joint.simulated(&plan)?, plan)));
    let best = timed.reduce(|best, next| if next.0 < best.0 { next } else { best });
    Some(best.map_or(sure, |(_, plan)| plan))
}

/// Why there is none: the least of the floors of the square root and the leanest forms.
fn refusal(problem: &Problem<'_>) -> Infeasible {
    let joint = Joint::new(problem, "checkpoint");
    let forgetting = Forgetting::new(&joint);
    let first = fit_to_budget(problem, "checkpoint", &square_root(&joint, &forgetting), &[]).err();
    let leanest = leanest(&joint, &forgetting).filter_map(|fates| joint.lacking(&fates));
    let least = first.into_iter().chain(leanest).reduce(|a, b| if b.floor < a.floor { b } else { a });
    least.unwrap_or_else(|| panic!("checkpoint refuses what one of its forms fits"))
}

/// One way to forget.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// Which of [`Forgetting::segments`].
    cut: usize,
    /// Share of what can be forgotten whose segments are.
    forgotten: f64,
    /// Share of all bytes that go wherever they lie.
    cheap: f64,
    /// Share of all bytes that stay in any case.
    dear: f64,
}

/// The plan of the square root, with the fastest algorithms.
fn square_root(joint: &Joint<'_>, forgetting: &Forgetting) -> MemoryPlan {
    with_fastest(joint, &forgetting.fates(joint, &SQUARE_ROOT))
}

const SQUARE_ROOT: Form = Form { cut: 0, forgotten: 1.0, cheap: 0.0, dear: 0.0 };

/// The orders in which values and segments are forgotten.
struct Forgetting {
    /// Ways to cut: the segment of each candidate, `None` when it is read across an end. The first is the square root's.
    segments: Vec<Vec<Option<usize>>>,
    /// By candidate: bytes of those that are cheaper to make again, as a share of all.
    rank: Vec<f64>,
}

impl Forgetting {
    fn new(joint: &Joint<'_>) -> Self {
        let spans = Spans::of(joint);
        let even = vec![1.0; joint.candidates.len()];
        let bytes: Vec<f64> = joint.candidates.iter().map(|candidate| candidate.bytes as f64).collect();
        let mut segments = vec![spans.cut(1.0, &even)];
        for multiple in SEGMENTS {
            segments.extend([&even, &bytes].map(|weights| spans.cut(multiple, weights)));
        }
        Forgetting { segments, rank: ranks(joint) }
    }

    fn fates(&self, joint: &Joint<'_>, form: &Form) -> Vec<Fate> {
        let segments = &self.segments[form.cut];
        let goes = chosen_segments(joint, segments, form.forgotten);
        let fate = |i: usize| {
            let with_segment = segments[i].is_some_and(|segment| goes[segment]) && self.rank[i] < 1.0 - form.dear;
            let remade = joint.candidates[i].repeatable && (with_segment || self.rank[i] < form.cheap);
            if remade { Fate::Recompute } else { Fate::Keep }
        };
        (0..joint.candidates.len()).map(fate).collect()
    }

    /// Every decision that is compared, each once.
    fn decisions(&self, joint: &Joint<'_>) -> Vec<Decision> {
        let mut seen = BTreeSet::new();
        let mut decisions = Vec::new();
        for cheap in CHEAP {
            for cut in 0..self.segments.len() {
                for forgotten in FORGOTTEN {
                    for dear in DEAR {
                        let fates = self.fates(joint, &Form { cut, forgotten, cheap, dear });
                        let bits: Vec<bool> = fates.iter().map(|&fate| fate == Fate::Recompute).collect();
                        if seen.insert(bits) {
                            decisions.push(Decision::of(fates, 0));
                        }
                    }
                }
            }
        }
        decisions
    }
}

/// Where candidates lie in forward.
struct Spans {
    /// First step that writes, and last in forward that uses, each candidate.
    spans: Vec<(usize, usize)>,
    /// Bytes of feature maps read across each step of forward.
    across: Vec<Bytes>,
}

impl Spans {
    fn of(joint: &Joint<'_>) -> Self {
        let liveness = joint.problem.liveness();
        let first = |i: usize| liveness.accesses(joint.candidates[i].gap.root)[0].step.index();
        let spans: Vec<(usize, usize)> =
            (0..joint.candidates.len()).map(|i| (first(i), joint.candidates[i].gap.from.step.index())).collect();
        let n = spans.iter().map(|&(_, last)| last + 1).max().unwrap_or(0);
        let mut across = vec![0; n];
        // Also what is too small to be a candidate, or dies in forward, is read across.
        for &root in liveness.roots() {
            let accesses = liveness.accesses(root);
            let last = accesses.iter().map(|access| access.step.index()).take_while(|&step| step < n).last();
            let bytes = joint.problem.program.aliases.storage_bytes(root);
            (accesses[0].step.index()..last.unwrap_or(0)).for_each(|step| across[step] += bytes);
        }
        Spans { spans, across }
    }

    /// The segment of each candidate when forward is cut into a multiple of √n parts of about equal weight.
    fn cut(&self, multiple: f64, weights: &[f64]) -> Vec<Option<usize>> {
        let n = self.spans.len();
        let segments = (((n as f64).sqrt() * multiple).round() as usize).clamp(1, n.max(1));
        let total: f64 = weights.iter().sum();
        let running = |sum: &mut f64, weight: &f64| Some(std::mem::replace(sum, *sum + weight));
        let reached: Vec<f64> = weights.iter().scan(0.0, running).collect();
        // The first step of the candidate at which so many segments' weight is reached.
        let step = |parts: f64| {
            let weight = parts / segments as f64 * total;
            self.spans[reached.partition_point(|&reached| reached < weight).min(n - 1)].0
        };
        let mut ends: Vec<usize> = Vec::new();
        for k in (1..segments).map(|k| k as f64) {
            let (low, at, high) = (step(k - 0.5), step(k), step(k + 0.5));
            let narrowest = (low..=high).min_by_key(|&step| (self.across[step], step.abs_diff(at)));
            ends.extend(narrowest.filter(|step| ends.last().is_none_or(|last| last < step)));
        }
        let segment = |&(first, last): &(usize, usize)| {
            let before = ends.partition_point(|&end| end < first);
            let crosses = ends.get(before).is_some_and(|&end| end < last);
            let begins_backward = segments > 1 && before == ends.len();
            (!crosses && !begins_backward).then_some(before)
        };
        self.spans.iter().map(segment).collect()
    }
}

/// By candidate: bytes of those that are cheaper to make again, as a share of the bytes of all.
fn ranks(joint: &Joint<'_>) -> Vec<f64> {
    let candidates = &joint.candidates;
    let price = |&i: &usize| candidates[i].rerun_seconds / candidates[i].bytes as f64;
    let mut order: Vec<usize> = (0..candidates.len()).filter(|&i| candidates[i].repeatable).collect();
    order.sort_by(|a, b| price(a).total_cmp(&price(b)).then(a.cmp(b)));
    let total: Bytes = candidates.iter().map(|candidate| candidate.bytes).sum();
    let mut ranks = vec![1.0; candidates.len()];
    let mut cheaper: Bytes = 0;
    for i in order {
        ranks[i] = cheaper as f64 / total as f64;
        cheaper += candidates[i].bytes;
    }
    ranks
}

/// The segments of the least seconds a byte that make up a share of what can be forgotten.
fn chosen_segments(joint: &Joint<'_>, segments: &[Option<usize>], share: f64) -> Vec<bool> {
    let n = segments.iter().flatten().max().map_or(0, |last| last + 1);
    let (mut bytes, mut seconds) = (vec![0.0; n], vec![0.0; n]);
    for (candidate, segment) in joint.candidates.iter().zip(segments) {
        if let Some(segment) = segment.filter(|_| candidate.repeatable) {
            bytes[segment] += candidate.bytes as f64;
            seconds[segment] += candidate.rerun_seconds;
        }
    }
    let mut order: Vec<usize> = (0..n).filter(|&segment| bytes[segment] > 0.0).collect();
    order.sort_by(|&a, &b| (seconds[a] / bytes[a]).total_cmp(&(seconds[b] / bytes[b])).then(a.cmp(&b)));
    let enough = share * bytes.iter().sum::<f64>();
    let (mut gone, mut goes) = (0.0, vec![false; n]);
    for segment in order {
        goes[segment] = gone < enough;
        gone += bytes[segment];
    }
    goes
}

/// The fates with the fastest algorithms; everything kept where they cannot be.
fn with_fastest(joint: &Joint<'_>, fates: &[Fate]) -> MemoryPlan {
    let forgotten = joint.candidates.iter().zip(fates).filter(|(_, fate)| **fate == Fate::Recompute);
    let forgotten = forgotten.map(|(candidate, _)| (candidate.root, Forget::Once)).collect();
    let plan = Algorithms::PerformanceOptimal.plan(joint.problem);
    match recompute(joint.problem.program, &forgotten) {
        Ok(made) => MemoryPlan { order: made.order, gaps: made.drops, ..plan },
        Err(_) => plan,
    }
}

/// The decisions that fit, bytes alone considered, the fastest first; a fixed number of estimates spread over all.
fn fastest(joint: &Joint<'_>, forgetting: &Forgetting) -> Vec<Decision> {
    let Some(room) = joint.room() else { return Vec::new() };
    let decisions = forgetting.decisions(joint);
    let most = (ESTIMATED_STEPS / joint.problem.program.n_steps().max(1)).max(24);
    let step = decisions.len().div_ceil(most).max(1);
    let estimated = decisions.into_iter().step_by(step);
    let mut scored: Vec<(f64, Decision)> =
        estimated.filter_map(|decision| Some((joint.estimate(&decision, room)?, decision))).collect();
    scored.sort_by(|a, b| a.0.total_cmp(&b.0));
    scored.into_iter().map(|(_, decision)| decision).take(TRIED).collect()
}

/// The leanest forms, one of which fits where one does, with the least workspace of each kernel.
fn leanest<'a>(joint: &'a Joint<'_>, forgetting: &'a Forgetting) -> impl Iterator<Item = Vec<Fate>> + 'a {
    let forms = [(1.0, 0.0), (1.0, 0.5), (0.0, 0.0)];
    let form = move |cut| forms.map(|(forgotten, cheap)| Form { cut, forgotten, cheap, dear: 0.0 });
    (0..forgetting.segments.len()).flat_map(form).map(|form| forgetting.fates(joint, &form))
}
