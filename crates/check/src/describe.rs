//! Names for messages.

use vdnn_graph::{NodeId, ValueId};
use vdnn_schedule::{Action, BufferId, Direction, Region, Schedule};

/// `%name`, of a buffer.
pub(crate) fn buffer(schedule: &Schedule, id: BufferId) -> String {
    format!("%{}", schedule.buffer(id).name)
}

/// `%name`, of a value.
pub(crate) fn value(schedule: &Schedule, id: ValueId) -> String {
    format!("%{}", schedule.values[id.index()])
}

/// A node's name.
pub(crate) fn node(schedule: &Schedule, id: NodeId) -> &str {
    &schedule.nodes[id.index()]
}

/// A buffer and the part of it.
pub(crate) fn region(schedule: &Schedule, region: &Region) -> String {
    let Region { offset, rows, row_bytes, row_stride, .. } = *region;
    let name = buffer(schedule, region.buffer);
    match rows {
        1 => format!("{name}[{offset}+{row_bytes}]"),
        _ => format!("{name}[{offset}+{rows}x{row_bytes}/{row_stride}]"),
    }
}

/// A command in a few words: `launch conv1`, `offload %x`.
pub(crate) fn command(schedule: &Schedule, index: usize) -> String {
    match &schedule.commands[index].action {
        Action::Alloc(id) => format!("alloc {}", buffer(schedule, *id)),
        Action::Free(id) => format!("free {}", buffer(schedule, *id)),
        Action::Launch { node: id, run: 0, .. } => format!("launch {}", node(schedule, *id)),
        Action::Launch { node: id, run, .. } => format!("launch {} (run {run})", node(schedule, *id)),
        Action::Transfer { direction: Direction::Offload, src, .. } => {
            format!("offload {}", buffer(schedule, src.buffer))
        }
        Action::Transfer { direction: Direction::Prefetch, dst, .. } => {
            format!("prefetch {}", buffer(schedule, dst.buffer))
        }
        Action::Record(event) => format!("record {:?}", schedule.events[event.index()].name),
        Action::Wait(event) => format!("wait {:?}", schedule.events[event.index()].name),
    }
}
