//! Commands one by one.

use crate::access::accesses;
use crate::{Rule, Violation};
use vdnn_schedule::{Action, BufferKind, Command, Direction, Region, Schedule, Space, StreamRole};

/// Shows in order those in which nothing is wrong.
pub(super) fn check<'s>(schedule: &'s Schedule, mut show: impl FnMut(&'s Command)) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, command) in schedule.commands.iter().enumerate() {
        match wrong(schedule, command) {
            Some(message) => found.push(Violation::at(Rule::WellFormed, index, message)),
            None => show(command),
        }
    }
    found
}

fn wrong(schedule: &Schedule, command: &Command) -> Option<String> {
    let Some(&role) = schedule.streams.get(command.stream.index()) else {
        return Some(format!("stream {} of {} streams", command.stream.0, schedule.streams.len()));
    };
    let ids = id_out_of_range(schedule, &command.action);
    ids.or_else(|| accesses(&command.action).find_map(|(_, region)| outside(schedule, region))).or_else(|| {
        match &command.action {
            Action::Launch { reads, writes, workspace, .. } => {
                launch(schedule, role, reads.iter().chain(writes), workspace.as_ref())
            }
            Action::Transfer { direction, src, dst } => transfer(schedule, role, *direction, src, dst),
            Action::Alloc(id) | Action::Free(id) if schedule.buffer(*id).kind == BufferKind::Home => {
                Some(format!("%{} is a home, which is never allocated or freed", schedule.buffer(*id).name))
            }
            _ => None,
        }
    })
}

fn id_out_of_range(schedule: &Schedule, action: &Action) -> Option<String> {
    let limit = |what: &str, id: u32, n: usize| (id as usize >= n).then(|| format!("{what} {id} of {n} {what}s"));
    match action {
        Action::Alloc(id) | Action::Free(id) => limit("buffer", id.0, schedule.buffers.len()),
        Action::Record(id) | Action::Wait(id) => limit("event", id.0, schedule.events.len()),
        Action::Launch { node, algo, .. } => limit("node", node.0, schedule.nodes.len())
            .or_else(|| limit("algorithm", algo.0, schedule.algorithms.len())),
        Action::Transfer { .. } => None,
    }
}

/// Rows do not overlap and end inside the buffer; in 128 bits, so that nothing wraps.
fn outside(schedule: &Schedule, region: &Region) -> Option<String> {
    let Some(buffer) = schedule.buffers.get(region.buffer.index()) else {
        return Some(format!("buffer {} of {} buffers", region.buffer.0, schedule.buffers.len()));
    };
    let [offset, rows, row, stride] = [region.offset, region.rows, region.row_bytes, region.row_stride].map(u128::from);
    if rows == 0 || (rows > 1 && stride < row) {
        return Some(format!(
            "expected rows that do not overlap in %{}, found {rows} of {row} bytes {stride} apart",
            buffer.name
        ));
    }
    let end = offset + (rows - 1) * stride + row;
    let inside = end <= u128::from(buffer.bytes);
    (!inside)
        .then(|| format!("expected a region of %{} to end within {} bytes, found {end}", buffer.name, buffer.bytes))
}

fn launch<'a>(
    schedule: &Schedule,
    role: StreamRole,
    mut operands: impl Iterator<Item = &'a Region>,
    workspace: Option<&Region>,
) -> Option<String> {
    if role != StreamRole::Compute {
        return Some(format!("expected launches on the compute stream, found one on a {role:?} stream"));
    }
    let usable = |region: &&Region| {
        let buffer = schedule.buffer(region.buffer);
        buffer.space == Space::Device && buffer.kind != BufferKind::Workspace
    };
    if let Some(bad) = operands.find(|region| !usable(region)) {
        let buffer = schedule.buffer(bad.buffer);
        let (kind, space) = (buffer.kind, buffer.space);
        return Some(format!("expected operands in the device arena, found %{}, {kind:?} in {space:?}", buffer.name));
    }
    let scratch = schedule.buffer(workspace?.buffer);
    let kind = scratch.kind;
    (kind != BufferKind::Workspace).then(|| format!("expected a workspace, found %{}, {kind:?}", scratch.name))
}

fn transfer(schedule: &Schedule, role: StreamRole, way: Direction, src: &Region, dst: &Region) -> Option<String> {
    let (from, to) = (schedule.buffer(src.buffer), schedule.buffer(dst.buffer));
    let expected = match (role, way) {
        (StreamRole::Offload, Direction::Offload) => (Space::Device, Space::Host),
        (StreamRole::Prefetch, Direction::Prefetch) => (Space::Host, Space::Device),
        (StreamRole::Disk, Direction::Offload) => (Space::Host, Space::Disk),
        (StreamRole::Disk, Direction::Prefetch) => (Space::Disk, Space::Host),
        _ => return Some(format!("a {role:?} stream cannot carry a transfer of direction {way:?}")),
    };
    if (from.space, to.space) != expected {
        let (a, b) = expected;
        return Some(format!(
            "expected a transfer from {a:?} to {b:?}, found %{} in {:?} to %{} in {:?}",
            from.name, from.space, to.name, to.space
        ));
    }
    if [from, to].iter().any(|buffer| buffer.kind == BufferKind::Workspace) {
        return Some(format!("expected no workspace in a transfer, found %{} to %{}", from.name, to.name));
    }
    let (given, taken) = (src.bytes(), dst.bytes());
    (given != taken).then(|| format!("expected %{} to take {given} bytes, found room for {taken}", to.name))
}
