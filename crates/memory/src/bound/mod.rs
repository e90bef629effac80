//! The least time of an iteration under a budget, whatever the plan: which is better, this plan or none?
//!
//! ```text
//!   kernels   ───made──────────────┬── t ──┬───────need───      F: the fastest choices that fit, in the program's order
//!   link down      ├── departure ──┤
//!   link up                        ├──── return ───┤
//! ```
//! At every step t the operands and a workspace are on the device; of the storages across t only what fits beside them can
//! be. Every byte of the rest went down before t and comes up after it, or its kernels run again after it. Each stretch of
//! time in which that must happen lasts at least as long as the link needs; what it lasts beyond its kernels is a *wait*,
//! and waits of stretches that do not overlap add up. The proof is in `docs/decisions/0014-lower-bound.md`.
//!
//! Not done here: finding a plan. Left out of the bound: latencies, the slowing of the links by each other, what a kernel
//! that runs again reads from other storages, fragmentation.

mod chain;
mod cuts;
mod kernels;
mod lives;
mod waits;
mod whole;

use crate::Problem;
use chain::Waits;
use cuts::{Across, Sweep};
use kernels::Kernels;
use lives::Lives;
use vdnn_graph::Step;
use vdnn_sim::Links;
use vdnn_tensor::Bytes;
use waits::{Kind, Look, Wait, departures, returns};

/// Halvings of the interval that holds the recompute time.
const HALVINGS: usize = 48;

/// The least time of an iteration under the problem's device budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTimeBound {
    /// No plan takes less. Infinite when a kernel alone exceeds the budget: then there is no plan.
    pub seconds: f64,
    /// Of these, the fastest kernels that fit. The rest is waiting, slower choices and kernels that run again.
    pub kernel_seconds: f64,
    /// Number of stretches of time in which bytes hold up the kernels.
    pub waits: usize,
    /// Where that costs most; `None` when the kernels alone bind.
    pub cut: Option<Cut>,
}

/// A step at which not everything can be on the device that is needed after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    /// The step, in the program's order.
    pub step: Step,
    /// Bytes that must be elsewhere.
    pub absent: Bytes,
    /// Of these, bytes that cross the link where the bound is least.
    pub offloaded: Bytes,
    /// The others, whose kernels run again.
    pub recomputed: Bytes,
    /// What it adds to the iteration, in seconds.
    pub seconds: f64,
}

impl StepTimeBound {
    /// How much longer than the bound a step is, as a share of the bound.
    pub fn gap(&self, step_seconds: f64) -> f64 {
        if self.seconds > 0.0 { step_seconds / self.seconds - 1.0 } else { 0.0 }
    }

    fn of_kernels(seconds: f64) -> Self {
        StepTimeBound { seconds, kernel_seconds: seconds, waits: 0, cut: None }
    }
}

/// A time that no plan for `problem` undercuts: no choice of algorithms, offloads, recomputation and addresses within the
/// device budget, the first run of every kernel in the program's order. With an encoded alternative the lesser of both
/// programs' bounds, since a plan is for one of them.
///
/// Time grows about linearly with the steps of the program, since long programs are looked at in fewer of their steps.
pub fn step_time_bound(problem: &Problem<'_>) -> StepTimeBound {
    let plain = bound_of(&problem.plain());
    let encoded = problem.with_encodings().map(|encoded| bound_of(&encoded));
    encoded.filter(|encoded| encoded.seconds < plain.seconds).unwrap_or(plain)
}

fn bound_of(problem: &Problem<'_>) -> StepTimeBound {
    let Some(kernels) = Kernels::of(problem) else { return StepTimeBound::of_kernels(f64::INFINITY) };
    if problem.budgets.device.is_none() {
        return StepTimeBound::of_kernels(kernels.total());
    }
    let (cuts, waits) = waits_of(problem, &kernels);
    let beyond = Beyond { cuts: &cuts, waits: &waits, links: &problem.links };
    let found = beyond.by_chain().longer(beyond.by_pair());
    let seconds = kernels.total() + found.seconds;
    StepTimeBound { seconds, kernel_seconds: kernels.total(), waits: found.waits, cut: found.cut }
}

/// All cuts, with what their members cost where something departs for them, and all waits.
fn waits_of(problem: &Problem<'_>, kernels: &Kernels<'_>) -> (Vec<Across>, Waits) {
    let lives = Lives::of(problem, kernels);
    let mut sweep = Sweep::new(problem, &lives);
    let (mut cuts, mut all) = (Vec::new(), Vec::new());
    let mut members = Vec::new();
    for step in cuts::steps(problem) {
        sweep.across(step, &mut members);
        let (members, choices, links) = (&members[..], &kernels.fitting(step)[..], &problem.links);
        let look = Look { step, members, cut: cuts.len(), choices, kernels, links, sizes: &sweep.sizes };
        let (returning, departing) = (returns(&look), departures(&look));
        // Only what departs is asked again what making it again takes.
        cuts.push(Across::of(step, if departing.is_empty() { &[] } else { members }));
        all.extend(returning);
        all.extend(departing);
    }
    (cuts, Waits::new(all, problem.program.n_steps()))
}

/// What an iteration lasts beyond its kernels.
struct Beyond<'a> {
    cuts: &'a [Across],
    waits: &'a Waits,
    links: &'a Links,
}

/// One answer, and what it rests on.
#[derive(Clone, Copy, Default)]
struct Found {
    seconds: f64,
    waits: usize,
    cut: Option<Cut>,
}

impl Found {
    fn longer(self, other: Found) -> Found {
        if other.seconds > self.seconds { other } else { self }
    }
}

impl Beyond<'_> {
    /// All waits of a chain, where r seconds of recomputation anywhere shorten all departures: the least of max(chain, r).
    /// The chain shortens with r, so the least lies where both are equal.
    fn by_chain(&self) -> Found {
        let (mut low, mut high) = (0.0, self.chain(0.0).seconds[0]);
        if high <= 0.0 {
            return Found::default();
        }
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            let bound = if self.chain(middle).seconds[0] >= middle { &mut low } else { &mut high };
            *bound = middle;
        }
        let chain = self.chain(low);
        let along = self.waits.along(&chain, 0);
        let longest = along.iter().max_by(|a, b| self.seconds(a, low).total_cmp(&self.seconds(b, low)));
        Found { seconds: low, waits: along.len(), cut: longest.map(|wait| self.cut(wait, low)) }
    }

    fn chain(&self, recompute: f64) -> chain::Chain {
        let made: Vec<f64> = self.cuts.iter().map(|across| across.made_in(recompute)).collect();
        self.waits.longest(|wait| wait.kind.seconds(made[wait.cut], self.links))
    }

    fn seconds(&self, wait: &Wait, recompute: f64) -> f64 {
        wait.kind.seconds(self.cuts[wait.cut].made_in(recompute), self.links)
    }

    /// One departure, then the longer of the returns after it and the recomputation that shortens it, r seconds after the
    /// cut: the least over r of departure(r) + max(r, returns).
    fn by_pair(&self) -> Found {
        let returns = self.waits.longest_of_returns();
        let mut best = Found::default();
        for wait in &self.waits.all {
            let Kind::Departure { choices } = &wait.kind else { continue };
            let after = returns.seconds[wait.to];
            let with = |&(extra, over): &(f64, f64)| {
                let (seconds, recompute) = self.least(&self.cuts[wait.cut], over, after);
                (extra + seconds, recompute)
            };
            let least = choices.iter().map(with).min_by(|a, b| a.0.total_cmp(&b.0));
            if let Some((seconds, recompute)) = least.filter(|least| least.0 > best.seconds) {
                let waits = 1 + self.waits.along(&returns, wait.to).len();
                best = Found { seconds, waits, cut: Some(self.cut(wait, recompute)) };
            }
        }
        best
    }

    /// The least over r of (over − made(r)) / rate + max(r, after), and that r. Below `after` recomputation is free;
    /// beyond it pays where it is quicker than the link.
    fn least(&self, across: &Across, over: f64, after: f64) -> (f64, f64) {
        let rate = self.links.d2h;
        let worthwhile = across.quicker_than(rate).min(across.seconds_of(over.max(0.0)));
        let recompute = worthwhile.max(after);
        (recompute + ((over - across.made_in(recompute)) / rate).max(0.0), recompute)
    }

    fn cut(&self, wait: &Wait, recompute: f64) -> Cut {
        let across = &self.cuts[wait.cut];
        let recomputed = match wait.kind {
            Kind::Return { recomputed, .. } => recomputed,
            Kind::Departure { .. } => across.made_in(recompute),
        };
        let absent = wait.absent.max(0.0);
        let recomputed = recomputed.clamp(0.0, absent) as Bytes;
        Cut {
            step: Step(across.step as u32),
            absent: absent as Bytes,
            offloaded: (absent as Bytes).saturating_sub(recomputed),
            recomputed,
            seconds: self.seconds(wait, recompute),
        }
    }
}
