//! The extent of every arena is within its budget.

use crate::{Rule, Violation};
use vdnn_schedule::Schedule;
use vdnn_tensor::format_bytes;

pub(crate) fn check(schedule: &Schedule) -> Vec<Violation> {
    let over = |arena: &&vdnn_schedule::Arena| arena.budget.is_some_and(|budget| arena.bytes > budget);
    let message = |arena: &vdnn_schedule::Arena| {
        let budget = arena.budget.unwrap_or_default();
        format!(
            "expected the {:?} arena within {budget} bytes ({}), found {} bytes ({})",
            arena.space,
            format_bytes(budget),
            arena.bytes,
            format_bytes(arena.bytes)
        )
    };
    schedule.arenas.iter().filter(over).map(|arena| Violation::whole(Rule::Budget, message(arena))).collect()
}
