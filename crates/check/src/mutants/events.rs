//! Mistakes of ordering: waits, records, streams.

use super::{Operator, Over, edited, is_transfer, moved, next_on_stream, operator, previous_on_stream, twice, without};
use crate::Rule;
use vdnn_schedule::{Action, Direction, EventId, Schedule, StreamId};

pub(super) const OPERATORS: &[Operator] = &[
    operator(Rule::Races, "drop a wait", Over::Commands, drop_wait),
    operator(Rule::Events, "drop a record", Over::Commands, drop_record),
    operator(Rule::Races, "move a wait later", Over::Commands, late_wait),
    operator(Rule::Races, "move a record earlier", Over::Commands, early_record),
    operator(Rule::Events, "record twice", Over::Commands, record_twice),
    operator(Rule::Events, "issue a wait before its record", Over::Commands, wait_first),
    operator(Rule::Races, "wait for another event", Over::Commands, other_event),
    operator(Rule::Races, "swap with the next command of the stream", Over::Commands, swap),
    operator(Rule::Races, "swap a prefetch with the offload before it", Over::Commands, prefetch_first),
    operator(Rule::Races, "move a wait or record to another stream", Over::Commands, other_stream),
    operator(Rule::ForkJoin, "drop a stream's first wait", Over::Commands, drop_fork),
    operator(Rule::ForkJoin, "end a stream after the join", Over::Commands, outlive_join),
    operator(Rule::ForkJoin, "drop a join", Over::Commands, drop_join),
    operator(Rule::Sequence, "drop all waits of the compute stream from here on", Over::Commands, drop_waits_from),
];

fn drop_wait(schedule: &Schedule, at: usize) -> Option<Schedule> {
    matches!(schedule.commands[at].action, Action::Wait(_)).then(|| without(schedule, at))?
}

fn drop_record(schedule: &Schedule, at: usize) -> Option<Schedule> {
    matches!(schedule.commands[at].action, Action::Record(_)).then(|| without(schedule, at))?
}

fn late_wait(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let next = next_on_stream(schedule, at)?;
    matches!(schedule.commands[at].action, Action::Wait(_)).then(|| moved(schedule, at, next))?
}

fn early_record(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let previous = previous_on_stream(schedule, at)?;
    matches!(schedule.commands[at].action, Action::Record(_)).then(|| moved(schedule, at, previous))?
}

fn record_twice(schedule: &Schedule, at: usize) -> Option<Schedule> {
    matches!(schedule.commands[at].action, Action::Record(_)).then(|| twice(schedule, at))?
}

fn wait_first(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let Action::Wait(event) = schedule.commands[at].action else { return None };
    let record = schedule.commands.iter().position(|command| command.action == Action::Record(event))?;
    (record < at).then(|| moved(schedule, at, record))?
}

fn other_event(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let Action::Wait(event) = schedule.commands[at].action else { return None };
    let next = EventId((event.0 + 1) % schedule.events.len() as u32);
    (next != event).then(|| edited(schedule, |copy| copy.commands[at].action = Action::Wait(next)))?
}

/// Pairs of one kind commute and are left out, except launches.
fn swap(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let next = next_on_stream(schedule, at)?;
    let actions = [at, next].map(|index| &schedule.commands[index].action);
    let kinds = actions.map(std::mem::discriminant);
    let differ = kinds[0] != kinds[1] || super::is_launch(actions[0]) || is_transfer(actions[0]);
    differ.then(|| edited(schedule, |copy| copy.commands.swap(at, next)))?
}

fn prefetch_first(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let Action::Transfer { direction: Direction::Prefetch, src, .. } = &schedule.commands[at].action else {
        return None;
    };
    let fills = |action: &Action| matches!(action, Action::Transfer { dst, .. } if dst.buffer == src.buffer);
    let offload = schedule.commands[..at].iter().position(|command| fills(&command.action))?;
    edited(schedule, |copy| copy.commands.swap(at, offload))
}

fn other_stream(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let movable = matches!(schedule.commands[at].action, Action::Wait(_) | Action::Record(_));
    let n = schedule.streams.len() as u32;
    let next = StreamId((schedule.commands[at].stream.0 + 1) % n);
    (movable && n > 1).then(|| edited(schedule, |copy| copy.commands[at].stream = next))?
}

fn drop_fork(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let stream = schedule.commands[at].stream.0;
    (stream != 0 && previous_on_stream(schedule, at).is_none()).then(|| without(schedule, at))?
}

/// Moves a record or wait of another stream behind everything.
fn outlive_join(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let command = &schedule.commands[at];
    let movable = matches!(command.action, Action::Wait(_) | Action::Record(_)) && command.stream.0 != 0;
    movable.then(|| moved(schedule, at, schedule.commands.len() - 1))?
}

/// Drops the compute stream's waits for the last event of another stream.
fn drop_join(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let Action::Record(event) = schedule.commands[at].action else { return None };
    let last = schedule.commands[at].stream.0 != 0 && next_on_stream(schedule, at).is_none();
    last.then(|| edited(schedule, |copy| copy.commands.retain(|command| command.action != Action::Wait(event))))?
}

fn drop_waits_from(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let wait = |action: &Action| matches!(action, Action::Wait(_));
    let starts = schedule.commands[at].stream.0 == 0 && wait(&schedule.commands[at].action);
    let stays = |index: usize, schedule: &Schedule| {
        index < at || schedule.commands[index].stream.0 != 0 || !wait(&schedule.commands[index].action)
    };
    starts.then(|| {
        edited(schedule, |copy| {
            let kept = (0..schedule.commands.len()).filter(|&index| stays(index, schedule));
            copy.commands = kept.map(|index| schedule.commands[index].clone()).collect();
        })
    })?
}
