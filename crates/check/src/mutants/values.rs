//! Mistakes of what is computed from what.

use super::{Operator, Over, edited, is_launch, is_transfer, moved, operator, twice, without};
use crate::Rule;
use vdnn_schedule::{Action, BufferId, Region, Schedule};

pub(super) const OPERATORS: &[Operator] = &[
    operator(Rule::Initialised, "drop a launch", Over::Commands, drop_launch),
    operator(Rule::Initialised, "drop a transfer", Over::Commands, drop_transfer),
    operator(Rule::Initialised, "copy half", Over::Commands, half_copy),
    operator(Rule::Initialised, "launch after the next launch", Over::Commands, late_launch),
    operator(Rule::Refines, "launch twice", Over::Commands, launch_twice),
    operator(Rule::Refines, "launch as the next run", Over::Commands, next_run),
    operator(Rule::Refines, "another node with as many operands", Over::Commands, other_node),
    operator(Rule::Refines, "read another buffer", Over::Commands, other_read),
    operator(Rule::Refines, "write another buffer", Over::Commands, other_write),
    operator(Rule::Refines, "swap the first two reads", Over::Commands, swapped_reads),
    operator(Rule::Refines, "swap the first two writes", Over::Commands, swapped_writes),
    operator(Rule::Refines, "write half", Over::Commands, half_write),
    operator(Rule::Refines, "leave out an operand", Over::Commands, missing_read),
    operator(Rule::Refines, "fetch another copy", Over::Commands, other_copy),
    operator(Rule::Refines, "slice at another place", Over::Commands, shifted_slice),
    operator(Rule::Refines, "samples at another place", Over::Commands, shifted_samples),
    operator(Rule::Sequence, "home ends with another value", Over::Homes, other_last),
    operator(Rule::Sequence, "home in another home's place", Over::Homes, other_place),
    operator(Rule::Refines, "forget a home", Over::Homes, forgotten_home),
];

fn drop_launch(schedule: &Schedule, at: usize) -> Option<Schedule> {
    is_launch(&schedule.commands[at].action).then(|| without(schedule, at))?
}

fn drop_transfer(schedule: &Schedule, at: usize) -> Option<Schedule> {
    is_transfer(&schedule.commands[at].action).then(|| without(schedule, at))?
}

fn launch_twice(schedule: &Schedule, at: usize) -> Option<Schedule> {
    is_launch(&schedule.commands[at].action).then(|| twice(schedule, at))?
}

fn late_launch(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let after = (at + 1..schedule.commands.len()).find(|&index| is_launch(&schedule.commands[index].action))?;
    is_launch(&schedule.commands[at].action).then(|| moved(schedule, at, after))?
}

/// A copy with a changed action, when the edit changed it.
fn action(schedule: &Schedule, at: usize, edit: impl FnOnce(&mut Action)) -> Option<Schedule> {
    let mut action = schedule.commands[at].action.clone();
    edit(&mut action);
    (action != schedule.commands[at].action).then(|| edited(schedule, |copy| copy.commands[at].action = action))?
}

fn half(region: &mut Region) {
    region.row_bytes /= 2;
    if region.rows == 1 {
        region.row_stride = region.row_bytes;
    }
}

fn half_copy(schedule: &Schedule, at: usize) -> Option<Schedule> {
    action(schedule, at, |action| {
        if let Action::Transfer { src, dst, .. } = action {
            half(src);
            half(dst);
        }
    })
}

fn half_write(schedule: &Schedule, at: usize) -> Option<Schedule> {
    action(schedule, at, |action| {
        if let Action::Launch { writes, .. } = action {
            writes.first_mut().into_iter().for_each(half);
        }
    })
}

fn next_run(schedule: &Schedule, at: usize) -> Option<Schedule> {
    action(schedule, at, |action| {
        if let Action::Launch { run, .. } = action {
            *run += 1;
        }
    })
}

/// The operand counts of a launch.
fn operands(action: &Action) -> Option<(usize, usize)> {
    match action {
        Action::Launch { reads, writes, .. } => Some((reads.len(), writes.len())),
        _ => None,
    }
}

fn other_node(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let counts = operands(&schedule.commands[at].action)?;
    let like = |index: &usize| operands(&schedule.commands[*index].action) == Some(counts);
    let n = schedule.commands.len();
    let other = (at + 1..n).chain(0..at).find(like)?;
    let Action::Launch { node: other, .. } = schedule.commands[other].action else { return None };
    action(schedule, at, |action| {
        if let Action::Launch { node, .. } = action {
            *node = other;
        }
    })
}

/// The next buffer that could be taken for this one.
fn lookalike(schedule: &Schedule, buffer: BufferId) -> Option<BufferId> {
    let mine = schedule.buffer(buffer);
    let n = schedule.buffers.len();
    let like = |index: &usize| {
        let other = &schedule.buffers[*index];
        (other.space, other.bytes, other.kind) == (mine.space, mine.bytes, mine.kind)
    };
    (buffer.index() + 1..n).chain(0..buffer.index()).find(like).map(|index| BufferId(index as u32))
}

fn retarget(schedule: &Schedule, region: Option<&mut Region>) {
    let Some(region) = region else { return };
    region.buffer = lookalike(schedule, region.buffer).unwrap_or(region.buffer);
}

fn other_read(schedule: &Schedule, at: usize) -> Option<Schedule> {
    action(schedule, at, |action| {
        if let Action::Launch { reads, .. } = action {
            let n = reads.len().max(1);
            retarget(schedule, reads.get_mut(at % n));
        }
    })
}

fn other_write(schedule: &Schedule, at: usize) -> Option<Schedule> {
    action(schedule, at, |action| {
        if let Action::Launch { writes, .. } = action {
            let n = writes.len().max(1);
            retarget(schedule, writes.get_mut(at % n));
        }
    })
}

fn other_copy(schedule: &Schedule, at: usize) -> Option<Schedule> {
    action(schedule, at, |action| {
        if let Action::Transfer { src, .. } = action {
            retarget(schedule, Some(src));
        }
    })
}

fn swapped_reads(schedule: &Schedule, at: usize) -> Option<Schedule> {
    action(schedule, at, |action| {
        if let Action::Launch { reads, .. } = action
            && reads.len() > 1
        {
            reads.swap(0, 1);
        }
    })
}

fn swapped_writes(schedule: &Schedule, at: usize) -> Option<Schedule> {
    action(schedule, at, |action| {
        if let Action::Launch { writes, .. } = action
            && writes.len() > 1
        {
            writes.swap(0, 1);
        }
    })
}

fn missing_read(schedule: &Schedule, at: usize) -> Option<Schedule> {
    action(schedule, at, |action| {
        if let Action::Launch { reads, .. } = action {
            reads.pop();
        }
    })
}

/// Moves a slice of a concat to the other end of its rows.
fn shifted_slice(schedule: &Schedule, at: usize) -> Option<Schedule> {
    action(schedule, at, |action| {
        let Action::Launch { reads, writes, .. } = action else { return };
        let slice = |region: &&mut Region| region.rows > 1 && region.row_bytes < region.row_stride;
        if let Some(region) = reads.iter_mut().chain(writes).find(slice) {
            let room = region.row_stride - region.row_bytes;
            region.offset = room - region.offset.min(room);
        }
    })
}

/// Moves samples of a larger batch to the other end of their buffer.
fn shifted_samples(schedule: &Schedule, at: usize) -> Option<Schedule> {
    action(schedule, at, |action| {
        let Action::Launch { reads, writes, .. } = action else { return };
        let bytes = |region: &Region| schedule.buffer(region.buffer).bytes;
        let part = |region: &&mut Region| region.rows == 1 && region.bytes() < bytes(region);
        if let Some(region) = reads.iter_mut().chain(writes).find(part) {
            region.offset = bytes(region) - region.bytes() - region.offset;
        }
    })
}

fn other_last(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let home = &schedule.homes[at];
    let next = &schedule.homes[(at + 1) % schedule.homes.len()];
    let other = if home.last == home.initial { next.last } else { home.initial };
    (other != home.last).then(|| edited(schedule, |copy| copy.homes[at].last = other))?
}

fn other_place(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let other = (at + 1) % schedule.homes.len();
    (other != at).then(|| {
        edited(schedule, |copy| {
            copy.homes[at].buffer = schedule.homes[other].buffer;
            copy.homes[other].buffer = schedule.homes[at].buffer;
        })
    })?
}

fn forgotten_home(schedule: &Schedule, at: usize) -> Option<Schedule> {
    edited(schedule, |copy| {
        copy.homes.remove(at);
    })
}
