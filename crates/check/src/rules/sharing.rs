//! Buffers whose addresses overlap take turns: the free of one is ordered before the alloc of the next.
//!
//! Followed in issue order, with the last occupant of every address: an alloc that is ordered after the free of each last
//! occupant is ordered after all earlier ones. Homes are never freed, so nothing may overlap them.

use super::lifetime::Life;
use crate::flat::{Flat, Kind};
use crate::occupancy::Occupancy;
use crate::order::Order;
use crate::{Rule, Violation, describe};
use vdnn_schedule::{BufferId, BufferKind, Schedule};

/// Who had some addresses last, and in which iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Occupant {
    buffer: BufferId,
    iteration: u32,
}

pub(crate) fn check(schedule: &Schedule, flat: &Flat<'_>, order: &Order, lives: &[Life]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut arenas = homes(schedule, &mut found);
    let mut former: Vec<Occupant> = Vec::new();
    for iteration in 0..2 {
        for (index, line) in flat.lines.iter().enumerate() {
            let Kind::Alloc(buffer) = line.kind else { continue };
            let next = Occupant { buffer, iteration };
            former.clear();
            arenas.take(buffer, next, |last| former.push(last));
            former.dedup();
            for &last in former.iter().filter(|last| **last != next) {
                found.extend(violation(schedule, order, lives, last, next, index));
            }
        }
    }
    found
}

/// The arenas before the first command.
fn homes(schedule: &Schedule, found: &mut Vec<Violation>) -> Occupancy<Occupant> {
    let ids = (0..schedule.buffers.len() as u32).map(BufferId);
    let mut arenas = Occupancy::of(schedule, Occupant { buffer: BufferId(u32::MAX), iteration: 0 });
    for id in ids.filter(|&id| schedule.buffer(id).kind == BufferKind::Home) {
        arenas.take(id, Occupant { buffer: id, iteration: 0 }, |other| {
            let (name, other) = (describe::buffer(schedule, id), describe::buffer(schedule, other.buffer));
            found.push(Violation::whole(Rule::Sharing, format!("the homes {name} and {other} overlap")));
        });
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
    let ordered =
        free.is_some_and(|free| order.before(last.iteration as usize * n + free, next.iteration as usize * n + alloc));
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
