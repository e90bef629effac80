//! Proves a schedule safe and faithful to its program. It shares data types with the compiler and no code.
//!
//! ```text
//!   schedule ──► well formed ──► happens-before (vector clocks) ──► events, lifetimes, races, sharing, fork and join
//!        │                                                          of one iteration, then of two in a row
//!        └─────► with the program: follow every value through launches, copies and recomputation
//! ```
//!
//! [`verify`] needs the schedule alone: whatever order the streams take, no byte is touched before it is there, after it
//! is gone, or by two at once. Issue order is then as good as any other order, so [`refines`] may follow values in it.
//! Every pass is linear in commands, but for interval maps where parts of a buffer are touched; nothing is compared in pairs.
//! [`kernels`], [`staging`] and [`sequence`] answer what needs more than one schedule and its program: whether workspaces suffice for
//! the algorithms, whether the host may fill a region meanwhile, and whether different schedules of a run may follow each other.

mod access;
mod describe;
mod flat;
mod grid;
mod intervals;
mod marks;
pub mod mutants;
mod occupancy;
mod order;
mod rules;
mod violation;

pub use violation::{Rule, Violation};

use flat::Flat;
use order::Order;
use vdnn_graph::Program;
use vdnn_schedule::{KernelTable, Schedule};
use vdnn_tensor::Bytes;

/// Checks everything that can be said of a schedule alone; empty when it is safe.
///
/// A schedule that is not well formed gets no further checks, since its ids cannot be followed.
pub fn verify(schedule: &Schedule) -> Vec<Violation> {
    match rules::well_formed::flat(schedule) {
        Ok(flat) => safe(schedule, &flat),
        Err(broken) => broken,
    }
}

/// The rules on safety, of a schedule that is well formed.
fn safe(schedule: &Schedule, flat: &Flat<'_>) -> Vec<Violation> {
    let order = Order::of(schedule, flat, 2);
    let lives = rules::lifetime::lives(schedule, flat);
    let grids = grid::grids(schedule, flat);
    let mut found = rules::events::check(schedule, flat);
    found.extend(rules::lifetime::check(schedule, flat, &order, &lives));
    found.extend(rules::initialised::check(schedule, flat, &grids));
    found.extend(rules::races::check(schedule, flat, &order, &grids));
    found.extend(rules::sharing::check(schedule, flat, &order, &lives));
    found.extend(rules::fork_join::check(schedule, &order));
    found
}

/// Checks that a schedule computes what its program says, from the values at home at the start of an iteration to those
/// at its end; empty when it does. The answer holds for all interleavings only when [`verify`] finds nothing.
pub fn refines(schedule: &Schedule, program: &Program) -> Vec<Violation> {
    match rules::well_formed::flat(schedule) {
        Ok(flat) => rules::refines::check(schedule, &flat, program),
        Err(broken) => broken,
    }
}

/// Checks that every arena keeps its budget.
pub fn budgets(schedule: &Schedule) -> Vec<Violation> {
    rules::budget::check(schedule)
}

/// Checks that a region of the device arena belongs to no buffer, and that the arena's extent, which keeps the budget, holds it:
/// the host fills it while the schedule runs.
pub fn staging(schedule: &Schedule, offset: Bytes, bytes: Bytes) -> Vec<Violation> {
    rules::staging::check(schedule, offset, bytes)
}

/// Checks that every launch uses an algorithm of its node, with the workspace it asks for.
pub fn kernels(schedule: &Schedule, table: &KernelTable) -> Vec<Violation> {
    let broken = rules::well_formed::check(schedule);
    if broken.is_empty() { rules::kernels::check(schedule, table) } else { broken }
}

/// Checks that schedules of one run may follow each other in any order, given that each passes [`check`].
pub fn sequence(runs: &[(&Schedule, &Program)]) -> Vec<Violation> {
    let broken: Vec<Violation> = runs.iter().flat_map(|(schedule, _)| rules::well_formed::check(schedule)).collect();
    if broken.is_empty() { rules::sequence::check(runs) } else { broken }
}

/// Checks all that one schedule and its program show: [`verify`], [`budgets`] and [`refines`].
pub fn check(schedule: &Schedule, program: &Program) -> Vec<Violation> {
    let mut found = budgets(schedule);
    match rules::well_formed::flat(schedule) {
        Ok(flat) => {
            found.extend(safe(schedule, &flat));
            found.extend(rules::refines::check(schedule, &flat, program));
        }
        Err(broken) => found.extend(broken),
    }
    found
}
