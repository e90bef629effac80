//! Buffers whose addresses overlap take turns: the free of one is ordered before the alloc of the next.
//!
//! Followed in issue order, with the last occupant of every address: an alloc that is ordered after the free of each last
//! occupant is ordered after all earlier ones. Homes are never freed, so nothing may overlap them.

use super::lifetime::{Life, lives};
use crate::intervals::{Cut, IntervalMap};
use crate::order::Order;
use crate::{Rule, Violation, describe};
use std::collections::BTreeMap;
use std::ops::Range;
use vdnn_schedule::{Action, BufferId, BufferKind, Schedule, Space};

/// Who had some addresses last, and in which iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Occupant {
    buffer: BufferId,
    iteration: usize,
}

impl Cut for Occupant {
    fn tail(&self, _by: u64) -> Self {
        *self
    }
}

type Arenas = BTreeMap<Space, IntervalMap<Occupant>>;

pub(crate) fn check(schedule: &Schedule, order: &Order) -> Vec<Violation> {
    let lives = lives(schedule);
    let mut found = Vec::new();
    let mut arenas = homes(schedule, &mut found);
    for iteration in 0..2 {
        for (index, command) in schedule.commands.iter().enumerate() {
            let Action::Alloc(id) = command.action else { continue };
            let next = Occupant { buffer: id, iteration };
            let map = arenas.entry(schedule.buffer(id).space).or_default();
            let mut former: Vec<Occupant> = map.pieces(range(schedule, id)).into_iter().filter_map(|p| p.1).collect();
            former.dedup();
            for last in former.into_iter().filter(|last| *last != next) {
                found.extend(violation(schedule, order, &lives, last, next, index));
            }
            map.set(range(schedule, id), next);
        }
    }
    found
}

fn range(schedule: &Schedule, id: BufferId) -> Range<u64> {
    let buffer = schedule.buffer(id);
    buffer.offset..buffer.offset + buffer.bytes
}

/// The arenas before the first command.
fn homes(schedule: &Schedule, found: &mut Vec<Violation>) -> Arenas {
    let mut arenas = Arenas::new();
    let ids = (0..schedule.buffers.len() as u32).map(BufferId);
    for id in ids.filter(|&id| schedule.buffer(id).kind == BufferKind::Home) {
        let map = arenas.entry(schedule.buffer(id).space).or_default();
        for (_, other) in map.pieces(range(schedule, id)) {
            if let Some(other) = other {
                let (name, other) = (describe::buffer(schedule, id), describe::buffer(schedule, other.buffer));
                found.push(Violation::whole(Rule::Sharing, format!("the homes {name} and {other} overlap")));
            }
        }
        map.set(range(schedule, id), Occupant { buffer: id, iteration: 0 });
    }
    arenas
}

fn violation(
    schedule: &Schedule,
    order: &Order,
    lives: &[Life],
    last: Occupant,
    next: Occupant,
    alloc: usize,
) -> Option<Violation> {
    let n = order.n_commands();
    let free = lives[last.buffer.index()].free;
    let ordered = free.is_some_and(|free| order.before(last.iteration * n + free, next.iteration * n + alloc));
    if ordered {
        return None;
    }
    let (name, other) = (describe::buffer(schedule, next.buffer), describe::buffer(schedule, last.buffer));
    let end = match free {
        _ if schedule.buffer(last.buffer).kind == BufferKind::Home => "which is a home and always there".to_string(),
        Some(free) => format!("whose free (command {free}) is not ordered before this alloc"),
        None => "which is never freed".to_string(),
    };
    let message = format!("{name} takes addresses of {other}, {end}");
    match (last.iteration, next.iteration) {
        (0, 0) => Some(Violation::at(Rule::Sharing, alloc, message)),
        (0, _) if schedule.buffer(last.buffer).kind != BufferKind::Home => {
            Some(Violation::at(Rule::Sequence, alloc, format!("in the next iteration, {message}")))
        }
        _ => None,
    }
}
