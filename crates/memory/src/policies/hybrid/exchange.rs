//! `hybrid` near the floor, where the budget is full: some values stay, and what then no longer fits leaves instead.
//!
//! ```text
//!  a block is kept, or one value gets another fate ─► too much at the fullest step ─► what lies there unused leaves,
//!                                                    the fewest seconds a byte first, until all fits ─► faster? that stays
//! ```
//! A search that changes fates without the second step does not find this: what is kept does not fit, and what leaves is slower.
//! Programs of few steps only, and all limits are counts.

use super::greedy::Greedy;
use super::{Planned, Search, changed};
use crate::joint::{Decision, Fate};
use std::cmp::Reverse;
use vdnn_tensor::Bytes;

/// Estimates and looks, in steps, and simulations.
const EXCHANGED_STEPS: usize = 700_000;
const SIMULATED: usize = 8;
/// Sizes of the blocks that are kept, each begun in every half of one.
const BLOCKS: [usize; 5] = [32, 16, 8, 4, 2];
/// By how much an exchange must be estimated faster, as a share.
const FASTER: f64 = 1e-4;
/// The share of the room within which is looked on where addresses did not fit.
const LESS_ROOM: f64 = 0.98;

impl Search<'_, '_> {
    /// Goes on from the best until no exchange is faster.
    pub(super) fn exchange(&mut self, mut best: Planned) {
        let steps = self.joint.problem.program.n_steps().max(1);
        (self.estimates, self.simulations) = (EXCHANGED_STEPS / steps, SIMULATED);
        let mut room = best.room;
        while self.estimates > 0 && self.simulations > 0 && !self.perfect() {
            let pass = self.exchanged(Planned { room, ..best.clone() });
            if pass.decision == best.decision {
                return;
            }
            match self.planned(pass.decision).filter(|next| next.seconds < best.seconds) {
                Some(next) => (room, best) = (next.room, next),
                None => room = (room as f64 * LESS_ROOM) as Bytes,
            }
        }
    }

    /// One pass over blocks and then over single candidates.
    fn exchanged(&mut self, mut pass: Planned) -> Planned {
        let n = self.joint.candidates.len();
        let greedy = &mut Greedy::of(self.joint, pass.room, 0);
        for size in BLOCKS {
            for first in (0..n).step_by(size / 2) {
                let kept = changed(self.joint, &pass.decision, first..(first + size).min(n), Fate::Keep);
                pass = kept.and_then(|kept| self.repaired(greedy, (kept, None), &pass)).unwrap_or(pass);
            }
        }
        for i in self.dear_first() {
            for &fate in self.fates(&pass.decision) {
                let moved = changed(self.joint, &pass.decision, std::iter::once(i), fate);
                pass = moved.and_then(|moved| self.repaired(greedy, (moved, Some(i)), &pass)).unwrap_or(pass);
            }
        }
        pass
    }

    /// The decision with less there until it fits, if it is then estimated faster; copies are dear, or cheap.
    fn repaired(
        &mut self,
        greedy: &mut Greedy<'_, '_>,
        (moved, pinned): (Decision, Option<usize>),
        best: &Planned,
    ) -> Option<Planned> {
        for free in [0.0, f64::INFINITY] {
            greedy.looks = self.estimates;
            let repaired = greedy.repaired(moved.clone(), pinned, free);
            self.estimates = greedy.looks;
            let Some(decision) = repaired else { continue };
            if let Some(estimate) = self.estimate_below(&decision, best.room, best.estimate * (1.0 - FASTER)) {
                return Some(Planned { decision, estimate, ..*best });
            }
        }
        None
    }

    /// Candidates by the seconds a byte that making them again takes, most first.
    fn dear_first(&self) -> Vec<usize> {
        let candidates = &self.joint.candidates;
        let mut order: Vec<usize> = (0..candidates.len()).filter(|&i| !candidates[i].light).collect();
        // Positive numbers have the order of their bits.
        order.sort_by_key(|&i| Reverse((candidates[i].rerun_seconds / candidates[i].bytes as f64).to_bits()));
        order
    }
}
