//! Mistakes of placement: buffers at addresses that are taken.

use super::{Operator, Over, edited, fit_arenas, operator};
use crate::Rule;
use vdnn_schedule::{Action, BufferId, BufferKind, Schedule};

pub(super) const OPERATORS: &[Operator] = &[
    operator(Rule::Sharing, "take the address of a living buffer", Over::Commands, living_address),
    operator(Rule::Sharing, "take the address of a home", Over::Buffers, home_address),
    operator(Rule::Sharing, "workspace over an operand", Over::Commands, workspace_over_operand),
    operator(Rule::Sharing, "shift down by the alignment", Over::Buffers, shifted_down),
    operator(Rule::Sharing, "shift up by the alignment", Over::Buffers, shifted_up),
    operator(Rule::Sharing, "stretch over the next addresses", Over::Buffers, stretched),
];

fn at_address(schedule: &Schedule, buffer: BufferId, offset: u64) -> Option<Schedule> {
    (schedule.buffer(buffer).offset != offset).then(|| {
        edited(schedule, |copy| {
            copy.buffers[buffer.index()].offset = offset;
            fit_arenas(copy);
        })
    })?
}

/// The buffer allocated here moves onto one that is in use, as the commands are issued.
fn living_address(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let Action::Alloc(id) = schedule.commands[at].action else { return None };
    let space = schedule.buffer(id).space;
    let mut living: Vec<BufferId> = Vec::new();
    for command in &schedule.commands[..at] {
        match command.action {
            Action::Alloc(other) if schedule.buffer(other).space == space => living.push(other),
            Action::Free(other) => living.retain(|&buffer| buffer != other),
            _ => {}
        }
    }
    at_address(schedule, id, schedule.buffer(*living.last()?).offset)
}

fn home_address(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let space = schedule.buffers[at].space;
    let home = |index: &usize| {
        let buffer = &schedule.buffers[*index];
        *index != at && buffer.kind == BufferKind::Home && buffer.space == space
    };
    let homes: Vec<usize> = (0..schedule.buffers.len()).filter(home).collect();
    let home = homes.get(at % homes.len().max(1))?;
    at_address(schedule, BufferId(at as u32), schedule.buffers[*home].offset)
}

fn workspace_over_operand(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let Action::Launch { reads, workspace: Some(workspace), .. } = &schedule.commands[at].action else { return None };
    let operand = reads.get(at % reads.len().max(1))?;
    at_address(schedule, workspace.buffer, schedule.buffer(operand.buffer).offset)
}

fn alignment(schedule: &Schedule, at: usize) -> Option<u64> {
    schedule.arena(schedule.buffers[at].space).map(|arena| arena.alignment)
}

fn shifted_down(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let offset = schedule.buffers[at].offset.checked_sub(alignment(schedule, at)?)?;
    at_address(schedule, BufferId(at as u32), offset)
}

fn shifted_up(schedule: &Schedule, at: usize) -> Option<Schedule> {
    at_address(schedule, BufferId(at as u32), schedule.buffers[at].offset + alignment(schedule, at)?)
}

fn stretched(schedule: &Schedule, at: usize) -> Option<Schedule> {
    let more = alignment(schedule, at)?;
    edited(schedule, |copy| {
        copy.buffers[at].bytes += more;
        fit_arenas(copy);
    })
}
