//! Accesses to the same bytes, one of them a write, are ordered, within an iteration and from one to the next.
//!
//! For every byte it suffices to remember the last write and the last read on each stream since: what came before is
//! ordered before those. Different buffers at one address are the rule on sharing.

use crate::access::Access;
use crate::flat::Flat;
use crate::grid::Grid;
use crate::intervals::{Cut, IntervalMap, one_each};
use crate::order::{MAX_STREAMS, Order};
use crate::{Rule, Violation, describe};
use vdnn_schedule::{Region, Schedule};

/// The accesses to some bytes that a new one may conflict with, as indices over two iterations.
#[derive(Clone, Copy, Debug)]
struct Recent {
    write: u32,
    reads: [u32; MAX_STREAMS],
}

/// No access.
const NONE: u32 = u32::MAX;

impl Default for Recent {
    fn default() -> Self {
        Recent { write: NONE, reads: [NONE; MAX_STREAMS] }
    }
}

impl Cut for Recent {
    fn tail(&self, _by: u64) -> Self {
        *self
    }
}

pub(crate) fn check(schedule: &Schedule, flat: &Flat, order: &Order, grids: &[Grid]) -> Vec<Violation> {
    let mut recent: Vec<IntervalMap<Recent>> = one_each(schedule);
    let mut found = Vec::new();
    for (iteration, touch) in (0..2).flat_map(|iteration| flat.touches.iter().map(move |touch| (iteration, touch))) {
        let now = iteration * order.n_commands() + touch.index();
        let map = &mut recent[touch.buffer()];
        let mut others = Vec::new();
        for interval in grids[touch.buffer()].intervals(&touch.region) {
            if let Some(fact) = map.whole(&interval) {
                others.extend(conflict(order, fact, touch.access, now));
                fact.note(touch.access, order.stream(now), now);
                continue;
            }
            for (piece, fact) in map.pieces(interval).collect::<Vec<_>>() {
                let mut fact = fact.unwrap_or_default();
                others.extend(conflict(order, &fact, touch.access, now));
                fact.note(touch.access, order.stream(now), now);
                map.set(piece, fact);
            }
        }
        others.dedup();
        found.extend(others.into_iter().filter_map(|other| violation(schedule, order, &touch.region, other, now)));
    }
    found
}

impl Recent {
    fn note(&mut self, access: Access, stream: usize, now: usize) {
        match access {
            Access::Read => self.reads[stream] = now as u32,
            Access::Write => *self = Recent { write: now as u32, ..Recent::default() },
        }
    }
}

/// A recent access that is not ordered before `now` and conflicts with it. A kernel may read what it writes.
fn conflict(order: &Order, recent: &Recent, access: Access, now: usize) -> Option<usize> {
    let unordered = |other: &usize| !order.before(*other, now);
    let write = Some(recent.write as usize).filter(|_| recent.write != NONE).filter(unordered);
    if access == Access::Read || write.is_some() {
        return write.filter(|&other| other != now || access == Access::Write);
    }
    recent
        .reads
        .iter()
        .filter(|&&index| index != NONE)
        .map(|&index| index as usize)
        .find(|other| *other != now && unordered(other))
}

fn violation(schedule: &Schedule, order: &Order, region: &Region, other: usize, now: usize) -> Option<Violation> {
    let n = order.n_commands();
    let at = now % n;
    let second = describe::command(schedule, at);
    let bytes = describe::region(schedule, region);
    let message = if other == now {
        format!("{second} writes {bytes} twice")
    } else {
        let (first, index) = (describe::command(schedule, other % n), other % n);
        format!("{second} touches {bytes} and is not ordered after {first} (command {index}), which touches it too")
    };
    match (other < n, now < n) {
        (true, true) => Some(Violation::at(Rule::Races, at, message)),
        (true, false) => Some(Violation::at(Rule::Sequence, at, format!("in the next iteration, {message}"))),
        _ => None,
    }
}
