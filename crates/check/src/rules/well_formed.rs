//! Everything that needs no order: ids in range, regions inside buffers, buffers inside arenas, commands on the streams
//! that may run them. The other rules index without looking, so this one comes first, and what they follow is made of what it finds
//! to be in order.

mod commands;
mod memory;

use crate::flat::Flat;
use crate::order::MAX_STREAMS;
use crate::{Rule, Violation};
use vdnn_schedule::{Command, FORMAT, Schedule, StreamRole};

pub(crate) fn check(schedule: &Schedule) -> Vec<Violation> {
    each(schedule, |_| ())
}

/// What the other rules follow of a schedule; where it is not well formed, in what it is not.
pub(crate) fn flat(schedule: &Schedule) -> Result<Flat<'_>, Vec<Violation>> {
    let mut flat = Flat::empty(schedule);
    let broken = each(schedule, |command| flat.push(schedule, command));
    if broken.is_empty() { Ok(flat) } else { Err(broken) }
}

/// Checks a schedule and shows its commands in order, those that are well formed.
fn each<'s>(schedule: &'s Schedule, show: impl FnMut(&'s Command)) -> Vec<Violation> {
    let mut found = header(schedule);
    found.extend(memory::arenas(schedule));
    found.extend(memory::buffers(schedule));
    found.extend(memory::homes(schedule));
    found.extend(commands::check(schedule, show));
    found
}

fn whole(message: String) -> Violation {
    Violation::whole(Rule::WellFormed, message)
}

fn header(schedule: &Schedule) -> Vec<Violation> {
    let mut found = Vec::new();
    if schedule.format != FORMAT {
        found.push(whole(format!("expected format {FORMAT}, found {}", schedule.format)));
    }
    if schedule.streams.first() != Some(&StreamRole::Compute) {
        found.push(whole(format!("expected the first stream to be Compute, found {:?}", schedule.streams.first())));
    }
    if schedule.streams.iter().skip(1).any(|&role| role == StreamRole::Compute) {
        found.push(whole("expected one compute stream, found several".to_string()));
    }
    if schedule.streams.len() > MAX_STREAMS {
        found.push(whole(format!("expected at most {MAX_STREAMS} streams, found {}", schedule.streams.len())));
    }
    if schedule.commands.len() > u32::MAX as usize / 2 {
        found.push(whole(format!("expected fewer than 2^31 commands, found {}", schedule.commands.len())));
    }
    found
}
