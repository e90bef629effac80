//! Every buffer but a home is allocated once and freed once, and all its uses lie between, in every legal run.

use crate::flat::{Flat, Kind};
use crate::order::Order;
use crate::{Rule, Violation, describe};
use vdnn_schedule::{BufferId, BufferKind, Schedule};

/// Where a buffer's life begins and ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Life {
    pub alloc: Option<usize>,
    pub free: Option<usize>,
}

/// First alloc and first free of every buffer.
pub(crate) fn lives(schedule: &Schedule, flat: &Flat<'_>) -> Vec<Life> {
    let mut lives = vec![Life::default(); schedule.buffers.len()];
    for (index, line) in flat.lines.iter().enumerate() {
        match line.kind {
            Kind::Alloc(id) => lives[id.index()].alloc.get_or_insert(index),
            Kind::Free(id) => lives[id.index()].free.get_or_insert(index),
            _ => continue,
        };
    }
    lives
}

pub(crate) fn check(schedule: &Schedule, flat: &Flat<'_>, order: &Order, lives: &[Life]) -> Vec<Violation> {
    let mut found = whole_lives(schedule, lives, order);
    let again = flat.lines.iter().enumerate().filter_map(|(index, line)| {
        let (id, what) = match line.kind {
            Kind::Alloc(id) if lives[id.index()].alloc != Some(index) => (id, "allocated"),
            Kind::Free(id) if lives[id.index()].free != Some(index) => (id, "freed"),
            _ => return None,
        };
        Some((index, format!("{} is {what} a second time", describe::buffer(schedule, id))))
    });
    let misused = flat.touches.iter().filter_map(|touch| {
        let message = misuse(schedule, order, lives, touch.buffer, touch.index())?;
        Some((touch.index(), message))
    });
    let mut at: Vec<(usize, String)> = again.chain(misused).collect();
    at.sort_by_key(|&(index, _)| index);
    found.extend(at.into_iter().map(|(index, message)| Violation::at(Rule::Lifetime, index, message)));
    found
}

/// Buffers that are never allocated, never freed, or freed before they are allocated.
fn whole_lives(schedule: &Schedule, lives: &[Life], order: &Order) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, (buffer, life)) in schedule.buffers.iter().zip(lives).enumerate() {
        if buffer.kind == BufferKind::Home {
            continue;
        }
        let name = || describe::buffer(schedule, BufferId(index as u32));
        let message = match (life.alloc, life.free) {
            (None, _) => format!("{} is never allocated", name()),
            (_, None) => format!("{} is never freed", name()),
            (Some(alloc), Some(free)) if !order.before(alloc, free) => {
                format!("the free of {} (command {free}) is not ordered after its alloc (command {alloc})", name())
            }
            _ => continue,
        };
        found.push(Violation { rule: Rule::Lifetime, command: life.alloc.or(life.free), message });
    }
    found
}

fn misuse(schedule: &Schedule, order: &Order, lives: &[Life], buffer: BufferId, index: usize) -> Option<String> {
    // Of a home neither is there.
    let Life { alloc: Some(alloc), free: Some(free) } = lives[buffer.index()] else { return None };
    let (starts, ends) = (order.before(alloc, index), order.before(index, free));
    if starts && ends {
        return None;
    }
    let (name, command) = (describe::buffer(schedule, buffer), describe::command(schedule, index));
    if starts {
        return Some(format!("{command} uses {name}, whose free (command {free}) is not ordered after it"));
    }
    Some(format!("{command} uses {name} and is not ordered after its alloc (command {alloc})"))
}
