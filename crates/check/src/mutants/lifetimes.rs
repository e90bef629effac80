//! Mistakes of allocs and frees.

use super::{Operator, Over, edited, moved, operator, twice, without};
use crate::Rule;
use crate::access::accesses;
use vdnn_schedule::{Action, BufferId, Schedule, StreamId, StreamRole};

pub(super) const OPERATORS: &[Operator] = &[
    operator(Rule::Lifetime, "drop an alloc", Over::Commands, drop_alloc),
    operator(Rule::Sequence, "drop a free", Over::Commands, drop_free),
    operator(Rule::Lifetime, "alloc twice", Over::Commands, alloc_twice),
    operator(Rule::Lifetime, "free twice", Over::Commands, free_twice),
    operator(Rule::Lifetime, "free before the last use", Over::Commands, early_free),
    operator(Rule::Lifetime, "free a slot before it is written to disk", Over::Commands, early_slot),
    operator(Rule::Lifetime, "alloc after the first use", Over::Commands, late_alloc),
    operator(Rule::Lifetime, "alloc on another stream", Over::Commands, alloc_elsewhere),
    operator(Rule::Lifetime, "free on another stream", Over::Commands, free_elsewhere),
    operator(Rule::Lifetime, "free another buffer", Over::Commands, free_other),
];

fn drop_alloc(schedule: &Schedule, at: usize) -> Option<Schedule> {
    matches!(schedule.commands[at].action, Action::Alloc(_)).then(|| without(schedule, at))?
}

fn drop_free(schedule: &Schedule, at: usize) -> Option<Schedule> {
    matches!(schedule.commands[at].action, Action::Free(_)).then(|| without(schedule, at))?
}

fn alloc_twice(schedule: &Schedule, at: usize) -> Option<Schedule> {
    matches!(schedule.commands[at].action, Action::Alloc(_)).then(|| twice(schedule, at))?
}

fn free_twice(schedule: &Schedule, at: usize) -> Option<Schedule> {
    matches!(schedule.commands[at].action, Action::Free(_)).then(|| twice(schedule, at))?
}

fn uses(schedule: &Schedule, index: usize, buffer: BufferId) -> bool {
    accesses(&schedule.commands[index].action).any(|(_, region)| region.buffer == buffer)
}

fn early_free(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let Action::Free(buffer) = schedule.commands[at].action else { return None };
    let last = (0..at).rev().find(|&index| uses(schedule, index, buffer))?;
    moved(schedule, at, last)
}

/// The slot is given back right after the wait for the copy from the device, or where it is taken.
fn early_slot(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let Action::Free(buffer) = schedule.commands[at].action else { return None };
    let on_disk = |index: &usize| {
        let stream = schedule.commands[*index].stream.index();
        schedule.streams[stream] == StreamRole::Disk && uses(schedule, *index, buffer)
    };
    let moved_on = (0..at).find(on_disk)?;
    let waits = |index: &usize| {
        let command = &schedule.commands[*index];
        command.stream.0 == 0 && matches!(command.action, Action::Wait(_) | Action::Alloc(_))
    };
    moved(schedule, at, (0..moved_on).rev().find(waits)? + 1)
}

fn late_alloc(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let Action::Alloc(buffer) = schedule.commands[at].action else { return None };
    let first = (at..schedule.commands.len()).find(|&index| uses(schedule, index, buffer))?;
    moved(schedule, at, first)
}

fn elsewhere(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let n = schedule.streams.len() as u32;
    let next = StreamId((schedule.commands[at].stream.0 + 1) % n);
    (n > 1).then(|| edited(schedule, |copy| copy.commands[at].stream = next))?
}

fn alloc_elsewhere(schedule: &Schedule, at: usize) -> Option<Schedule> {
    matches!(schedule.commands[at].action, Action::Alloc(_)).then(|| elsewhere(schedule, at))?
}

fn free_elsewhere(schedule: &Schedule, at: usize) -> Option<Schedule> {
    matches!(schedule.commands[at].action, Action::Free(_)).then(|| elsewhere(schedule, at))?
}

fn free_other(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let Action::Free(buffer) = schedule.commands[at].action else { return None };
    let other = BufferId((buffer.0 + 1) % schedule.buffers.len() as u32);
    (other != buffer).then(|| edited(schedule, |copy| copy.commands[at].action = Action::Free(other)))?
}
