//! Mistakes of ids, sizes, spaces and streams.

use super::{Operator, Over, edited, fit_arenas, is_launch, is_transfer, operator};
use crate::Rule;
use vdnn_graph::{NodeId, ValueId};
use vdnn_schedule::{Action, AlgoId, BufferId, BufferKind, EventId, Region, Schedule, Space, StreamId};

pub(super) const OPERATORS: &[Operator] = &[
    operator(Rule::WellFormed, "algorithm out of range", Over::Commands, bad_algorithm),
    operator(Rule::WellFormed, "node out of range", Over::Commands, bad_node),
    operator(Rule::WellFormed, "buffer out of range", Over::Commands, bad_buffer),
    operator(Rule::WellFormed, "event out of range", Over::Commands, bad_event),
    operator(Rule::WellFormed, "region past its buffer", Over::Commands, past_the_end),
    operator(Rule::WellFormed, "launch on a copy stream", Over::Commands, wrong_launch_stream),
    operator(Rule::WellFormed, "transfer on another stream", Over::Commands, wrong_transfer_stream),
    operator(Rule::WellFormed, "swap a transfer's ends", Over::Commands, swapped_ends),
    operator(Rule::WellFormed, "alloc a home", Over::Homes, alloc_home),
    operator(Rule::WellFormed, "home of a value that is not there", Over::Homes, bad_home),
    operator(Rule::WellFormed, "shrink a buffer", Over::Buffers, shrunk),
    operator(Rule::WellFormed, "misalign a buffer", Over::Buffers, misaligned),
    operator(Rule::WellFormed, "buffer in another space", Over::Buffers, wrong_space),
    operator(Rule::WellFormed, "copy in the next tier", Over::Buffers, other_tier),
    operator(Rule::WellFormed, "arena larger than its buffers", Over::Arenas, loose_arena),
    operator(Rule::Budget, "budget below the extent", Over::Arenas, tight_budget),
];

fn regions(action: &mut Action) -> Vec<&mut Region> {
    match action {
        Action::Launch { reads, writes, workspace, .. } => reads.iter_mut().chain(writes).chain(workspace).collect(),
        Action::Transfer { src, dst, .. } => vec![src, dst],
        _ => Vec::new(),
    }
}

fn bad_algorithm(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let beyond = AlgoId(schedule.algorithms.len() as u32);
    is_launch(&schedule.commands[at].action).then(|| {
        edited(schedule, |copy| {
            if let Action::Launch { algo, .. } = &mut copy.commands[at].action {
                *algo = beyond;
            }
        })
    })?
}

fn bad_node(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let beyond = NodeId(schedule.nodes.len() as u32);
    is_launch(&schedule.commands[at].action).then(|| {
        edited(schedule, |copy| {
            if let Action::Launch { node, .. } = &mut copy.commands[at].action {
                *node = beyond;
            }
        })
    })?
}

fn bad_buffer(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let beyond = BufferId(schedule.buffers.len() as u32);
    edited_action(schedule, at, |action| match action {
        Action::Alloc(id) | Action::Free(id) => *id = beyond,
        action => regions(action).into_iter().for_each(|region| region.buffer = beyond),
    })
}

/// A copy with a changed action, when it did change.
fn edited_action(schedule: &Schedule, at: usize, edit: impl FnOnce(&mut Action)) -> Option<Schedule> {
    let mut action = schedule.commands[at].action.clone();
    edit(&mut action);
    (action != schedule.commands[at].action).then(|| edited(schedule, |copy| copy.commands[at].action = action))?
}

fn bad_event(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let beyond = EventId(schedule.events.len() as u32);
    edited_action(schedule, at, |action| {
        if let Action::Record(id) | Action::Wait(id) = action {
            *id = beyond;
        }
    })
}

fn past_the_end(schedule: &Schedule, at: usize) -> Option<Schedule> {
    edited_action(schedule, at, |action| {
        if let Some(region) = regions(action).into_iter().last() {
            region.offset += schedule.buffer(region.buffer).bytes - region.end() + 1;
        }
    })
}

fn wrong_launch_stream(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let movable = is_launch(&schedule.commands[at].action) && schedule.streams.len() > 1;
    movable.then(|| edited(schedule, |copy| copy.commands[at].stream = StreamId(1)))?
}

fn wrong_transfer_stream(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let next = StreamId((schedule.commands[at].stream.0 + 1) % schedule.streams.len() as u32);
    is_transfer(&schedule.commands[at].action).then(|| edited(schedule, |copy| copy.commands[at].stream = next))?
}

fn swapped_ends(schedule: &Schedule, at: usize) -> Option<Schedule> {
    edited_action(schedule, at, |action| {
        if let Action::Transfer { src, dst, .. } = action {
            std::mem::swap(src, dst);
        }
    })
}

fn alloc_home(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let first = schedule.commands.iter().position(|command| matches!(command.action, Action::Alloc(_)))?;
    let mut command = schedule.commands[first].clone();
    command.action = Action::Alloc(schedule.homes[at].buffer);
    edited(schedule, |copy| copy.commands.insert(0, command))
}

fn bad_home(schedule: &Schedule, at: usize) -> Option<Schedule> {
    edited(schedule, |copy| copy.homes[at].last = ValueId(schedule.values.len() as u32))
}

fn shrunk(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let bytes = schedule.buffers[at].bytes.checked_sub(1)?;
    edited(schedule, |copy| {
        copy.buffers[at].bytes = bytes;
        fit_arenas(copy);
    })
}

fn misaligned(schedule: &Schedule, at: usize) -> Option<Schedule> {
    edited(schedule, |copy| {
        copy.buffers[at].offset += 1;
        fit_arenas(copy);
    })
}

fn wrong_space(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let space = if schedule.buffers[at].space == Space::Device { Space::Host } else { Space::Device };
    let free = schedule.buffers[at].kind != BufferKind::Home;
    free.then(|| {
        edited(schedule, |copy| {
            copy.buffers[at].space = space;
            fit_arenas(copy);
        })
    })?
}

/// A copy in the file that is said to be in host memory, or the other way round where there is a file.
fn other_tier(schedule: &Schedule, at: usize) -> Option<Schedule> {
    schedule.arena(Space::Disk)?;
    let space = if schedule.buffers[at].space == Space::Disk { Space::Host } else { Space::Disk };
    let copy = schedule.buffers[at].kind == BufferKind::Copy;
    copy.then(|| {
        edited(schedule, |copy| {
            copy.buffers[at].space = space;
            fit_arenas(copy);
        })
    })?
}

fn loose_arena(schedule: &Schedule, at: usize) -> Option<Schedule> {
    edited(schedule, |copy| copy.arenas[at / 10].bytes += 1 << (at % 10))
}

/// Budgets from one byte less to almost nothing.
fn tight_budget(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let budget = (schedule.arenas[at / 10].bytes.checked_sub(1)?) * (10 - at as u64 % 10) / 10;
    edited(schedule, |copy| copy.arenas[at / 10].budget = Some(budget))
}
