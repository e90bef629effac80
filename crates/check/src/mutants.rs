//! Every small way to break a schedule, at every place: what the checks are tested with.
//!
//! An operator is one kind of mistake a compiler could make. Some mutants are harmless (a wait that another wait implies,
//! two frees swapped); whether an undetected one is must be shown by running it, which is left to tests.

mod events;
mod lifetimes;
mod shapes;
mod sharing;
mod values;

use crate::Rule;
use vdnn_schedule::{Action, Schedule};

/// A schedule with one mistake.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The rule the mistake is aimed at; another may catch it first.
    pub rule: Rule,
    /// The kind of mistake.
    pub operator: &'static str,
    /// Where it was made: an index of what the operator goes over (commands, buffers, homes or arenas).
    pub position: usize,
    /// The broken schedule.
    pub schedule: Schedule,
}

/// What an operator goes over.
#[derive(Clone, Copy)]
enum Over {
    Commands,
    Buffers,
    Homes,
    Arenas,
}

/// Makes a mistake at a position, or nothing where it does not apply.
type Change = fn(&Schedule, usize) -> Option<Schedule>;

struct Operator {
    rule: Rule,
    name: &'static str,
    over: Over,
    change: Change,
}

const fn operator(rule: Rule, name: &'static str, over: Over, change: Change) -> Operator {
    Operator { rule, name, over, change }
}

/// All mutants of a schedule, made one at a time.
pub fn mutants(schedule: &Schedule) -> impl Iterator<Item = Mutant> + '_ {
    let all = [events::OPERATORS, lifetimes::OPERATORS, shapes::OPERATORS, sharing::OPERATORS, values::OPERATORS];
    all.into_iter().flatten().flat_map(move |operator| {
        let positions = match operator.over {
            Over::Commands => schedule.commands.len(),
            Over::Buffers => schedule.buffers.len(),
            Over::Homes => schedule.homes.len(),
            // Ten degrees of every arena.
            Over::Arenas => 10 * schedule.arenas.len(),
        };
        (0..positions).filter_map(move |position| {
            let schedule = (operator.change)(schedule, position)?;
            Some(Mutant { rule: operator.rule, operator: operator.name, position, schedule })
        })
    })
}

/// A changed copy.
fn edited(schedule: &Schedule, edit: impl FnOnce(&mut Schedule)) -> Option<Schedule> {
    let mut copy = schedule.clone();
    edit(&mut copy);
    Some(copy)
}

/// A copy without a command.
fn without(schedule: &Schedule, at: usize) -> Option<Schedule> {
    edited(schedule, |copy| {
        copy.commands.remove(at);
    })
}

/// A copy with a command twice.
fn twice(schedule: &Schedule, at: usize) -> Option<Schedule> {
    edited(schedule, |copy| copy.commands.insert(at, copy.commands[at].clone()))
}

/// A copy with a command taken from one index and put at another (as counted after it was taken).
fn moved(schedule: &Schedule, from: usize, to: usize) -> Option<Schedule> {
    edited(schedule, |copy| {
        let command = copy.commands.remove(from);
        copy.commands.insert(to, command);
    })
}

/// The next command of the same stream.
fn next_on_stream(schedule: &Schedule, at: usize) -> Option<usize> {
    let stream = schedule.commands[at].stream;
    (at + 1..schedule.commands.len()).find(|&i| schedule.commands[i].stream == stream)
}

/// The command before, of the same stream.
fn previous_on_stream(schedule: &Schedule, at: usize) -> Option<usize> {
    let stream = schedule.commands[at].stream;
    (0..at).rev().find(|&i| schedule.commands[i].stream == stream)
}

/// Makes every arena's extent fit its buffers again.
fn fit_arenas(schedule: &mut Schedule) {
    for arena in &mut schedule.arenas {
        let ends = schedule.buffers.iter().filter(|buffer| buffer.space == arena.space);
        arena.bytes = ends.map(|buffer| buffer.offset + buffer.bytes).max().unwrap_or(0);
    }
}

fn is_launch(action: &Action) -> bool {
    matches!(action, Action::Launch { .. })
}

fn is_transfer(action: &Action) -> bool {
    matches!(action, Action::Transfer { .. })
}
