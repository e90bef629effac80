//! Estimates: seconds of the iteration within some room, if addresses cost nothing. What was found is not looked for again.
//!
//! ```text
//!  fates ─► order, what is held ─┬─ reserve 0    ─► algorithms, windows ─► seconds
//!           kept for a seed's    ├─ reserve 0.12 ─►      "                    "
//!           other reserves       └─ reserve 0.3  ─►      "                    "
//! ```
//! Searches ask again: glances ask what seeds ask, plans with addresses what moves asked, passes what earlier ones asked. Whether
//! there is room for some algorithm in each step does not depend on the reserve. And where a search only takes what is faster than
//! something, kernels that take as long by themselves need no windows.

use super::{Arranged, Decision, Fate, Joint};
use crate::fit::windows_within;
use crate::recompute::First;
use std::collections::HashMap;
use vdnn_graph::Use;
use vdnn_schedule::Choice;
use vdnn_tensor::Bytes;

/// Runs of orders that are kept for other reserves at most.
const KEPT_RUNS: usize = 400_000;

/// What is known of decisions.
#[derive(Default)]
pub(super) struct Known {
    /// By all that an order is made from. Only looked up, so that its own order is nothing to a plan.
    decisions: HashMap<Fated, Found>,
    /// Runs of the orders that are kept.
    runs: usize,
}

/// A decision but for its reserve.
#[derive(PartialEq, Eq, Hash)]
struct Fated {
    fates: Vec<Fate>,
    patience: u32,
    first: First,
}

/// What is known of a decision with any reserve.
#[derive(Default)]
struct Found {
    /// The most bytes that were found too few, whatever the reserve.
    too_few: Option<Bytes>,
    /// By room and reserve: the seconds, if it fits.
    seconds: Vec<((Bytes, f64), Option<f64>)>,
    arranged: Option<Box<Arranged>>,
}

impl Found {
    /// The answer, if it is known.
    fn known(&self, room: Bytes, reserve: f64) -> Option<Option<f64>> {
        let too_few = self.too_few.is_some_and(|too_few| room <= too_few);
        let asked = self.seconds.iter().find(|(asked, _)| *asked == (room, reserve));
        if too_few { Some(None) } else { asked.map(|(_, seconds)| *seconds) }
    }
}

impl Joint<'_> {
    /// Seconds of the iteration within `room`, if addresses cost nothing; `None` when the fates do not fit.
    pub fn estimate(&self, decision: &Decision, room: Bytes) -> Option<f64> {
        self.known_or_found(decision, room, f64::INFINITY, false)
    }

    /// The same of a seed, whose order is kept if it `comes_again` with another reserve.
    pub fn estimate_seed(&self, decision: &Decision, room: Bytes, comes_again: bool) -> Option<f64> {
        self.known_or_found(decision, room, f64::INFINITY, comes_again)
    }

    /// The same if they are less than `limit`.
    pub fn estimate_below(&self, decision: &Decision, room: Bytes, limit: f64) -> Option<f64> {
        self.known_or_found(decision, room, limit, false).filter(|seconds| *seconds < limit)
    }

    /// The seconds; none, too, where it is plain that they are not less than `limit`.
    fn known_or_found(&self, decision: &Decision, room: Bytes, limit: f64, keep: bool) -> Option<f64> {
        if self.held.exceeds(&decision.fates, room) {
            debug_assert!(!self.has_room(decision, room), "what is held anyway does not fit, but all does");
            return None;
        }
        let Known { decisions, runs } = &mut *self.known.borrow_mut();
        let &Decision { ref fates, patience, first, reserve } = decision;
        let found = decisions.entry(Fated { fates: fates.clone(), patience, first }).or_default();
        if let Some(seconds) = found.known(room, reserve) {
            return seconds;
        }
        let kept = found.arranged.take();
        *runs -= kept.as_ref().map_or(0, |kept| kept.plan.order.len());
        let Some(arranged) = kept.or_else(|| self.arrange(decision).map(Box::new)) else {
            found.too_few = Some(Bytes::MAX);
            return None;
        };
        if self.kernels_alone(&arranged) >= limit {
            return None;
        }
        let Some(plan) = self.algorithms(&arranged, decision, room) else {
            found.too_few = found.too_few.max(Some(room));
            return None;
        };
        let about = (&arranged.liveness, &arranged.held);
        let within = windows_within(&self.for_windows(), &plan, about, &arranged.gaps, (room, self.streamed));
        let seconds = within.map(|(seconds, _)| seconds);
        found.seconds.push(((room, reserve), seconds));
        if keep && *runs + plan.order.len() <= KEPT_RUNS {
            *runs += plan.order.len();
            found.arranged = Some(arranged);
        }
        seconds
    }

    /// Whether there is room for some algorithm in each step.
    fn has_room(&self, decision: &Decision, room: Bytes) -> bool {
        self.arrange(decision).is_some_and(|arranged| self.algorithms(&arranged, decision, room).is_some())
    }

    /// Seconds of the runs of an order at their fastest: no estimate is less.
    fn kernels_alone(&self, arranged: &Arranged) -> f64 {
        let kernels = self.problem.kernels;
        let first = |choices: &[Choice]| choices.first().map_or(f64::INFINITY, |choice| choice.seconds);
        let fastest = |u: &Use| first(kernels.of(u.node)).min(first(kernels.pieces_of(u.node)));
        // One after the other, as the estimate adds them, so that rounding makes no difference.
        arranged.plan.order.iter().map(fastest).filter(|seconds| seconds.is_finite()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Budgets, HomeLayout, Options, Problem};
    use vdnn_autograd::{Optimizer, Options as Differentiation, differentiate};
    use vdnn_graph::op::Sgd;
    use vdnn_graph::{InPlace, Program};
    use vdnn_sim::Machine;

    fn training(model: &str, batch_size: u64) -> Program {
        let net = vdnn_models::build(model, &vdnn_models::Options { batch_size, ..Default::default() }).unwrap();
        let sgd = Optimizer::Sgd(Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 0.0, nesterov: false });
        let options = Differentiation::train(net.loss().unwrap(), sgd);
        let graph = differentiate(net.into_graph(), &options).unwrap().graph;
        Program::linearize(graph, InPlace::Allowed).unwrap()
    }

    #[test]
    fn what_was_asked_before_makes_no_difference() {
        let (program, machine) = (training("resnet50", 16), Machine::named("titan-x").unwrap());
        let kernels = machine.kernel_table(&program).unwrap();
        let homes = HomeLayout::for_graphs(&[&program.graph], 256);
        let budgets = Budgets { device: Some(homes.extent() + (1200 << 20)), ..Budgets::default() };
        let (links, options) = (machine.links(), Options::default());
        let problem =
            Problem { program: &program, kernels: &kernels, links, homes: &homes, budgets, options, encoded: None };
        let fresh = || Joint::new(&problem, "test").in_pieces();
        let (joint, limited, room) = (fresh(), fresh(), fresh().room().unwrap());
        let n = joint.candidates.len();
        let mixed = |fate: Fate| {
            let fate =
                |i: usize| if !i.is_multiple_of(3) && joint.candidates[i].repeatable { fate } else { Fate::Offload };
            (0..n).map(fate).collect::<Vec<_>>()
        };
        let fates = [vec![Fate::Keep; n], vec![Fate::OffloadEach; n], mixed(Fate::Recompute), mixed(Fate::Keep)];
        let (mut fitted, mut refused) = (0, 0);
        // Ever more room with one reserve after the other, all fates each time, and all of it twice.
        for turn in 0..2 {
            for (part, reserve) in (1..=16).zip([0.0, 0.12, 0.3].into_iter().cycle()) {
                let room = room / 16 * part;
                for fates in &fates {
                    let decision = Decision { reserve, ..Decision::of(fates.clone(), 12) };
                    let expected = fresh().estimate(&decision, room);
                    let limit = expected.map_or(1.0, |seconds| seconds * if turn == 0 { 0.5 } else { 1.01 });
                    let below = expected.filter(|seconds| *seconds < limit);
                    assert_eq!(limited.estimate_below(&decision, room, limit), below);
                    assert_eq!(joint.estimate_seed(&decision, room, reserve < 0.3), expected);
                    let kernels_alone = fresh().arrange(&decision).map(|arranged| joint.kernels_alone(&arranged));
                    assert!(expected.is_none_or(|seconds| kernels_alone.unwrap() <= seconds));
                    *(if expected.is_some() { &mut fitted } else { &mut refused }) += 1;
                }
            }
        }
        assert!(fitted >= 10 && refused >= 10, "{fitted} fitted, {refused} did not");
    }
}
