//! Arenas, buffers and homes.

use super::whole;
use crate::Violation;
use std::collections::{BTreeMap, BTreeSet};
use vdnn_schedule::{Buffer, BufferKind, Schedule, Space};

/// One arena a space, as large as its buffers need and no larger.
pub(super) fn arenas(schedule: &Schedule) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut extents: BTreeMap<Space, u64> = BTreeMap::new();
    for buffer in &schedule.buffers {
        let extent = extents.entry(buffer.space).or_default();
        *extent = (*extent).max(buffer.offset.saturating_add(buffer.bytes));
    }
    let mut seen = BTreeSet::new();
    for arena in &schedule.arenas {
        let extent = extents.get(&arena.space).copied().unwrap_or(0);
        if !seen.insert(arena.space) {
            found.push(whole(format!("expected one {:?} arena, found several", arena.space)));
        }
        if arena.bytes != extent {
            let (space, bytes) = (arena.space, arena.bytes);
            found.push(whole(format!(
                "expected the {space:?} arena's {bytes} bytes to be its highest buffer's end, found {extent}"
            )));
        }
        if arena.alignment == 0 {
            found.push(whole(format!("expected the {:?} arena's alignment above 0", arena.space)));
        }
    }
    found
}

pub(super) fn buffers(schedule: &Schedule) -> Vec<Violation> {
    schedule.buffers.iter().filter_map(|buffer| wrong(schedule, buffer)).map(whole).collect()
}

fn wrong(schedule: &Schedule, buffer: &Buffer) -> Option<String> {
    let Buffer { name, space, offset, bytes, kind, root } = buffer;
    let Some(arena) = schedule.arena(*space) else {
        return Some(format!("%{name} lies in the {space:?} space, which has no arena"));
    };
    if offset.checked_add(*bytes).is_none_or(|end| end > arena.bytes) {
        return Some(format!("expected %{name} to end within {} bytes, found {offset} + {bytes}", arena.bytes));
    }
    if arena.alignment != 0 && !offset.is_multiple_of(arena.alignment) {
        return Some(format!("expected %{name} at a multiple of {}, found {offset}", arena.alignment));
    }
    if root.is_some_and(|root| root.index() >= schedule.values.len()) {
        return Some(format!("%{name} holds value {root:?}, of {} values", schedule.values.len()));
    }
    let expected = match kind {
        BufferKind::Home => root.is_some(),
        BufferKind::Storage => root.is_some() && *space == Space::Device,
        BufferKind::Workspace => root.is_none() && *space == Space::Device,
        BufferKind::Copy => root.is_some() && *space != Space::Device,
    };
    (!expected).then(|| format!("%{name} is {kind:?}, which does not go with space {space:?} and root {root:?}"))
}

/// Every home buffer has one home, every home a buffer of its kind.
pub(super) fn homes(schedule: &Schedule) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut taken = vec![false; schedule.buffers.len()];
    // A value may have a home in several spaces, one in each.
    let mut values = [Space::Device, Space::Host, Space::Disk].map(|_| vec![false; schedule.values.len()]);
    for home in &schedule.homes {
        let n_values = schedule.values.len();
        if home.initial.index() >= n_values || home.last.index() >= n_values {
            found.push(whole(format!("a home holds {:?} to {:?}, of {n_values} values", home.initial, home.last)));
            continue;
        }
        let name = &schedule.values[home.initial.index()];
        let Some(buffer) = schedule.buffers.get(home.buffer.index()) else {
            found.push(whole(format!("the home of %{name} is buffer {}, which is not there", home.buffer.0)));
            continue;
        };
        if buffer.kind != BufferKind::Home || buffer.root != Some(home.initial) {
            let (kind, root) = (buffer.kind, buffer.root);
            found.push(whole(format!(
                "expected the home of %{name} to be a Home buffer rooted at it, found %{}, {kind:?}, root {root:?}",
                buffer.name
            )));
        }
        let value = &mut values[buffer.space as usize][home.initial.index()];
        if std::mem::replace(&mut taken[home.buffer.index()], true) || std::mem::replace(value, true) {
            found.push(whole(format!("the home of %{name}, %{}, is given twice", buffer.name)));
        }
    }
    let homeless =
        schedule.buffers.iter().zip(taken).filter(|(buffer, taken)| buffer.kind == BufferKind::Home && !taken);
    found.extend(homeless.map(|(buffer, _)| whole(format!("%{} is a Home buffer, but of no home", buffer.name))));
    found
}
