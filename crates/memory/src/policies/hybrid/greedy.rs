//! `hybrid` near the floor, where hardly a seed fits: from the fullest step leaves what costs least, until everything fits.
//!
//! ```text
//!  all kept ─► the fullest step ─► what lies there unused leaves, fewest seconds a byte first ─► the fullest step … ─► fits
//!                   └─ nothing does ─► what is used there is made again ahead, or copied instead
//!  each ─► again with the fates of a few candidates given from the start ("pinned"), while that is faster
//! ```
//! What making a value again costs is the seconds of its kernels and of everything around it that is made again as well (after
//! Kirisame et al., "Dynamic Tensor Rematerialization", 2021): a value whose neighbours are gone is dear, so that checkpoints
//! stay at distances of their own accord, and small ones rather than large ones. Copies cost little as long as links carry them
//! beside the kernels. What fits is a decision like any other, for the search to go on with. All limits are counts.

use super::{is_near, is_short};
use crate::joint::{Crowd, Decision, Fate, Joint};
use crate::recompute::First;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use vdnn_tensor::Bytes;

/// Shares of what the links carry beside the kernels that are copied at a low price.
const CARRIED: [f64; 4] = [1.0, 0.5, 0.0, 1.5];
/// Shares of the room that a wide search of a short program fills: where less is full, there is room for windows and addresses.
const FILLED: [f64; 4] = [1.0, 0.95, 0.97, 0.92];
/// Steps that what is made again waits for its next use.
const PATIENCE: [u32; 3] = [12, 24, 6];
/// That price, as a share of what a copy takes.
const BESIDE: f64 = 0.25;
/// Rounds of one decision, and of a repair.
const ROUNDS: usize = 60;
const REPAIRS: usize = 16;
/// Looks that an estimate takes the time of.
const LOOKS_AN_ESTIMATE: usize = 4;
/// By how much a pin must be faster, as a share.
const FASTER: f64 = 1e-3;

/// A fate that is given from the start.
type Pin = (usize, Fate);

/// What a greedy decision starts from.
#[derive(Clone, Debug, Default)]
struct Start {
    patience: u32,
    carried: f64,
    /// Share of the room that may be full.
    filled: f64,
    pins: Vec<Pin>,
}

/// A decision that fits.
struct Found {
    seconds: f64,
    decision: Decision,
    start: Start,
    /// Candidates that were in the way where nothing unused could leave.
    stuck: BTreeSet<usize>,
}

/// A search, and which candidates are made of which.
pub(super) struct Greedy<'a, 'b> {
    joint: &'b Joint<'a>,
    room: Bytes,
    /// Looks left.
    pub looks: usize,
    first: First,
    filled: &'static [f64],
    sources: Vec<Vec<usize>>,
    sinks: Vec<Vec<usize>>,
}

impl<'a, 'b> Greedy<'a, 'b> {
    /// A search within `room` that may look at the fullest step so many times. That of a short program is wider: it has more
    /// starts, makes large branches again first, and copies values again only where their next use is far away.
    pub fn of(joint: &'b Joint<'a>, room: Bytes, looks: usize) -> Self {
        let sources = joint.sources();
        let mut sinks = vec![Vec::new(); sources.len()];
        for (i, from) in sources.iter().enumerate() {
            from.iter().for_each(|&other| sinks[other].push(i));
        }
        let (first, filled) = if is_short(joint) { (First::Large, &FILLED[..]) } else { (First::Early, &FILLED[..1]) };
        Greedy { joint, room, looks, first, filled, sources, sinks }
    }

    /// The least estimate without pins; infinite where nothing fits. `best` is that of other seeds.
    pub fn least(mut self, best: f64) -> f64 {
        self.unpinned(best).iter().map(|found| found.seconds).fold(f64::INFINITY, f64::min)
    }

    /// Decisions that fit with their estimates. Nothing is pinned where one is about as fast as kernels alone, or no faster than
    /// the `best` of other seeds.
    pub fn decisions(mut self, best: f64) -> Vec<(f64, Decision)> {
        let mut all = self.unpinned(best);
        all.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let promising = all.first().is_some_and(|first| first.seconds < best && is_near(self.joint, first.seconds));
        let count = if promising { all.len() } else { 0 };
        for (index, found) in all.iter_mut().take(count).enumerate() {
            let share = self.looks / (count - index);
            self.pin(found, share);
        }
        all.into_iter().map(|found| (found.seconds, found.decision)).collect()
    }

    /// All starts without pins; the first one only, where that is no faster than other seeds.
    fn unpinned(&mut self, best: f64) -> Vec<Found> {
        let mut all: Vec<Found> = Vec::new();
        let starts = self.starts();
        let count = starts.len();
        for (index, start) in starts.into_iter().enumerate() {
            if index > 0 && best.is_finite() && all.iter().all(|found| found.seconds >= best) {
                break;
            }
            // No start takes the looks of the others.
            let others = self.looks - self.looks / (count - index);
            self.looks -= others;
            all.extend(self.found(start));
            self.looks += others;
        }
        all
    }

    fn starts(&self) -> Vec<Start> {
        let ways = || CARRIED.into_iter().flat_map(|carried| PATIENCE.map(|patience| (carried, patience)));
        let start = |filled, (carried, patience)| Start { patience, carried, filled, pins: Vec::new() };
        self.filled.iter().flat_map(|&filled| ways().map(move |way| start(filled, way))).collect()
    }

    /// Pins one candidate after the other, as long as that is faster: those that are copied or were in the way, large ones
    /// first.
    fn pin(&mut self, best: &mut Found, share: usize) {
        let stop = self.looks.saturating_sub(share);
        let mut better = true;
        while better {
            better = false;
            for pin in self.pins(best) {
                if self.looks <= stop {
                    return;
                }
                let mut start = best.start.clone();
                start.pins.retain(|other| other.0 != pin.0);
                start.pins.push(pin);
                let found = self.found(start).filter(|found| found.seconds < best.seconds * (1.0 - FASTER));
                if let Some(found) = found {
                    *best = found;
                    better = true;
                }
            }
        }
    }

    fn pins(&self, found: &Found) -> Vec<Pin> {
        let (joint, fates) = (self.joint, &found.decision.fates);
        let copied = (0..fates.len()).filter(|&i| fates[i].copies() && !joint.candidates[i].light);
        let which: BTreeSet<usize> = copied.chain(found.stuck.iter().copied()).collect();
        let mut which: Vec<usize> = which.into_iter().collect();
        which.sort_by_key(|&i| (Reverse(joint.candidates[i].bytes), i));
        let others = [Fate::Keep, Fate::RecomputeAhead, Fate::Offload, Fate::OffloadApart, Fate::RecomputeApart];
        let others = others.into_iter().filter(|&fate| self.offers(fate));
        let pins = which.into_iter().flat_map(|i| others.clone().map(move |fate| (i, fate)));
        pins.filter(|&(i, fate)| fates[i] != fate && (!fate.repeats() || joint.candidates[i].repeatable)).collect()
    }

    /// What becomes of a start, estimated.
    fn found(&mut self, start: Start) -> Option<Found> {
        let mut stuck = BTreeSet::new();
        let decision = self.fitted(&start, &mut stuck)?;
        self.looks = self.looks.checked_sub(LOOKS_AN_ESTIMATE)?;
        let seconds = self.joint.estimate(&decision, self.room)?;
        Some(Found { seconds, decision, start, stuck })
    }

    /// Everything kept but what is pinned, then ever less until it fits. `None` where that does not come about.
    fn fitted(&mut self, start: &Start, stuck: &mut BTreeSet<usize>) -> Option<Decision> {
        let fates = vec![Fate::Keep; self.joint.candidates.len()];
        let mut decision = Decision { first: self.first, ..Decision::of(fates, start.patience) };
        let room = (self.room as f64 * start.filled) as Bytes;
        let mut pinned = vec![false; decision.fates.len()];
        for &(i, fate) in &start.pins {
            (decision.fates[i], pinned[i]) = (fate, true);
        }
        let mut free = start.carried * self.joint.carries();
        for _ in 0..ROUNDS {
            let crowd = self.look(&decision, room)?;
            if crowd.excess == 0 {
                return Some(decision);
            }
            if !self.thin(&mut decision, &crowd, &pinned, &mut free) {
                stuck.extend(crowd.used.iter().chain(&crowd.wanted));
                decision = self.moved(&decision, (&crowd, room), &pinned)?;
            }
        }
        None
    }

    /// A decision with ever less there until it fits; what is `pinned` stays as it is. So many bytes are copied at a low price.
    pub fn repaired(&mut self, mut decision: Decision, pinned: Option<usize>, mut free: f64) -> Option<Decision> {
        let pinned: Vec<bool> = (0..decision.fates.len()).map(|i| pinned == Some(i)).collect();
        let room = self.room;
        for _ in 0..REPAIRS {
            let crowd = self.look(&decision, room)?;
            if crowd.excess == 0 {
                return Some(decision);
            }
            if !self.thin(&mut decision, &crowd, &pinned, &mut free) {
                decision = self.moved(&decision, (&crowd, room), &pinned)?;
            }
        }
        None
    }

    /// Whether this search gives that fate.
    fn offers(&self, fate: Fate) -> bool {
        fate != Fate::OffloadApart || self.first == First::Large
    }

    fn look(&mut self, decision: &Decision, room: Bytes) -> Option<Crowd> {
        self.looks = self.looks.checked_sub(1)?;
        self.joint.crowd(decision, room)
    }

    /// Has what is unused at the fullest step leave, the cheapest first, until the rest fits there. False where nothing can.
    fn thin(&self, decision: &mut Decision, crowd: &Crowd, pinned: &[bool], free: &mut f64) -> bool {
        let (mut excess, mut thinner) = (crowd.excess, false);
        // Prices only rise while others leave, so the least of them is looked at again before it counts. Positive numbers
        // have the order of their bits.
        let price = |decision: &Decision, i: usize, free: f64| {
            self.leaner(decision, i, free).map(|(price, fate)| (price.to_bits(), fate))
        };
        let idle = crowd.idle.iter().copied().filter(|&i| !pinned[i]);
        let mut queue: BTreeSet<(u64, usize)> =
            idle.filter_map(|i| price(decision, i, *free).map(|(price, _)| (price, i))).collect();
        while excess > 0
            && let Some((before, i)) = queue.pop_first()
        {
            let Some((now, fate)) = price(decision, i, *free) else { continue };
            if now > before && queue.first().is_some_and(|&next| next < (now, i)) {
                queue.insert((now, i));
                continue;
            }
            let bytes = self.joint.candidates[i].bytes;
            if fate.copies() && !decision.fates[i].copies() {
                *free -= bytes as f64;
            }
            decision.fates[i] = fate;
            excess = excess.saturating_sub(bytes);
            thinner = true;
        }
        thinner
    }

    /// The next fate under which a candidate is there for less long, and its seconds a byte.
    fn leaner(&self, decision: &Decision, i: usize, free: f64) -> Option<(f64, Fate)> {
        let candidate = &self.joint.candidates[i];
        let bytes = candidate.bytes as f64;
        let copied = self.joint.seconds_a_byte();
        let again = || self.around(decision, i) / bytes;
        match decision.fates[i] {
            Fate::Keep => {
                let offload = (if free >= bytes { copied * BESIDE } else { copied }, Fate::Offload);
                let remake = (candidate.repeatable && !candidate.light).then(|| (again(), Fate::RecomputeApart));
                Some(remake.filter(|remake| remake.0 < offload.0).unwrap_or(offload))
            }
            Fate::Recompute => Some((again(), Fate::RecomputeApart)),
            Fate::RecomputeApart => Some((2.0 * again(), Fate::RecomputeEach)),
            Fate::RecomputeAhead => Some((copied, Fate::OffloadEach)),
            Fate::Offload if self.offers(Fate::OffloadApart) => Some((copied / 2.0, Fate::OffloadApart)),
            Fate::Offload | Fate::OffloadApart => Some((copied / 2.0, Fate::OffloadEach)),
            Fate::RecomputeEach | Fate::OffloadEach => None,
        }
    }

    /// Seconds of making a candidate again, with what is made again before and after it.
    fn around(&self, decision: &Decision, i: usize) -> f64 {
        let mut seconds = self.joint.candidates[i].rerun_seconds;
        for edges in [&self.sources, &self.sinks] {
            let (mut seen, mut stack) = (vec![false; edges.len()], vec![i]);
            seen[i] = true;
            while let Some(at) = stack.pop() {
                for &other in edges[at].iter().filter(|&&other| decision.fates[other].repeats()) {
                    if !std::mem::replace(&mut seen[other], true) {
                        seconds += self.joint.candidates[other].rerun_seconds;
                        stack.push(other);
                    }
                }
            }
        }
        seconds
    }

    /// Of the ways to have something else at the fullest step, the one that takes fewest seconds for each byte that is then no
    /// longer too much anywhere.
    fn moved(&mut self, decision: &Decision, (crowd, room): (&Crowd, Bytes), pinned: &[bool]) -> Option<Decision> {
        let there: BTreeSet<usize> = crowd.used.iter().chain(&crowd.wanted).chain(&crowd.idle).copied().collect();
        let mut best: Option<(f64, Decision)> = None;
        for i in there.into_iter().filter(|&i| !pinned[i]) {
            let fates =
                [Fate::RecomputeAhead, Fate::RecomputeEach, Fate::Offload, Fate::OffloadApart, Fate::OffloadEach];
            for fate in fates.into_iter().filter(|&fate| self.offers(fate)).collect::<Vec<_>>() {
                let from = decision.fates[i];
                if from == fate || from == Fate::OffloadEach || (fate.repeats() && !from.repeats()) {
                    continue;
                }
                let mut next = decision.clone();
                next.fates[i] = fate;
                let Some(then) = self.look(&next, room) else { continue };
                let gain = crowd.overflow - then.overflow;
                let price = (then.seconds - crowd.seconds).max(1e-6) / gain;
                if gain > 0.0 && best.as_ref().is_none_or(|(least, _)| price < *least) {
                    best = Some((price, next));
                }
            }
        }
        best.map(|(_, next)| next)
    }
}
