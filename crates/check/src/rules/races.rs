//! Accesses to the same bytes, one of them a write, are ordered, within an iteration and from one to the next.
//!
//! For every byte it suffices to remember the last write and the last read on each stream since: what came before is
//! ordered before those. Different buffers at one address are the rule on sharing.

use crate::access::Access;
use crate::flat::{Flat, Touch};
use crate::grid::Grid;
use crate::intervals::{Cut, IntervalMap};
use crate::order::{MAX_STREAMS, Order};
use crate::{Rule, Violation, describe};
use vdnn_schedule::{Region, Schedule};

/// The accesses to some bytes that a new one may conflict with, as indices over two iterations: the last write, and the last read
/// since on each stream.
#[derive(Clone, Copy, Debug)]
struct Recent([u32; 1 + MAX_STREAMS]);

/// No access.
const NONE: u32 = u32::MAX;

impl Cut for Recent {
    fn tail(&self, _by: u64) -> Self {
        *self
    }
}

/// What is remembered of all buffers.
struct Memory {
    /// Numbers of a [`Recent`], as far as there are streams.
    width: usize,
    /// So many for each buffer that is only touched as a whole.
    whole: Vec<u32>,
    /// Of those touched in parts.
    parts: Vec<IntervalMap<Recent>>,
}

pub(crate) fn check(schedule: &Schedule, flat: &Flat<'_>, order: &Order, grids: &[Grid]) -> Vec<Violation> {
    let width = 1 + schedule.streams.len();
    let whole = vec![NONE; width * schedule.buffers.len()];
    let mut memory = Memory { width, whole, parts: vec![IntervalMap::default(); flat.in_parts.len()] };
    let mut found = Vec::new();
    for (iteration, (touch, region)) in (0..2).flat_map(|iteration| flat.places().map(move |place| (iteration, place)))
    {
        let now = iteration * order.n_commands() + touch.index();
        let report = |other| found.extend(violation(schedule, order, region, other, now));
        match flat.part(touch.buffer()) {
            None => memory.whole(touch, order, now).into_iter().for_each(report),
            Some(part) => {
                let mut others = memory.part((part, &grids[part]), (touch, region), order, now);
                others.dedup();
                others.into_iter().for_each(report);
            }
        }
    }
    found
}

impl Memory {
    /// Notes an access to a buffer that is only touched as a whole; says with which it conflicts.
    fn whole(&mut self, touch: &Touch, order: &Order, now: usize) -> Option<usize> {
        let at = touch.buffer() * self.width;
        let recent = &mut self.whole[at..at + self.width];
        let other = conflict(order, recent, touch.access, now);
        note(recent, touch.access, order.stream(now), now);
        other
    }

    /// The same for one that is touched in parts.
    fn part(
        &mut self,
        (part, grid): (usize, &Grid),
        (touch, region): (&Touch, &Region),
        order: &Order,
        now: usize,
    ) -> Vec<usize> {
        let map = &mut self.parts[part];
        let mut others = Vec::new();
        let mut meet = |recent: &mut [u32]| {
            others.extend(conflict(order, recent, touch.access, now));
            note(recent, touch.access, order.stream(now), now);
        };
        for interval in grid.intervals(region) {
            if let Some(Recent(recent)) = map.whole(&interval) {
                meet(recent);
                continue;
            }
            for (piece, fact) in map.pieces(interval).collect::<Vec<_>>() {
                let Recent(mut recent) = fact.unwrap_or(Recent([NONE; 1 + MAX_STREAMS]));
                meet(&mut recent);
                map.set(piece, Recent(recent));
            }
        }
        others
    }
}

/// Remembers an access. A write makes all that came before old.
fn note(recent: &mut [u32], access: Access, stream: usize, now: usize) {
    match access {
        Access::Read => recent[1 + stream] = now as u32,
        Access::Write => {
            recent.fill(NONE);
            recent[0] = now as u32;
        }
    }
}

/// A recent access that is not ordered before `now` and conflicts with it. A kernel may read what it writes.
fn conflict(order: &Order, recent: &[u32], access: Access, now: usize) -> Option<usize> {
    let unordered = |other: &usize| !order.before(*other, now);
    let write = Some(recent[0] as usize).filter(|_| recent[0] != NONE).filter(unordered);
    if access == Access::Read || write.is_some() {
        return write.filter(|&other| other != now || access == Access::Write);
    }
    let reads = recent[1..].iter().filter(|&&index| index != NONE).map(|&index| index as usize);
    reads.into_iter().find(|other| *other != now && unordered(other))
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
