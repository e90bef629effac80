//! Figures of a schedule: what large networks are compared by where their full text would be too long.

use crate::{Action, BufferId, BufferKind, Cause, Command, Direction, Schedule, Space, StreamRole};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use vdnn_graph::Step;
use vdnn_tensor::Bytes;

/// Largest buffers named at the peak.
const LARGEST: usize = 8;

/// Figures of one schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Number of commands.
    pub commands: usize,
    /// Commands by stream, in the schedule's order of streams.
    pub streams: Vec<StreamStats>,
    /// Bytes copied from the device in an iteration.
    pub offload_bytes: Bytes,
    /// Bytes copied back.
    pub prefetch_bytes: Bytes,
    /// Launches that recompute.
    pub recomputed: usize,
    /// Extent of each arena.
    pub peak_bytes: BTreeMap<Space, Bytes>,
    /// Largest workspace any kernel borrows.
    pub workspace_peak_bytes: Bytes,
    /// Sizes of all buffers added up, whenever they live.
    pub bytes_by_kind: BTreeMap<BufferKind, Bytes>,
    /// When most bytes live on the device, in issue order. At most the arena's extent; the rest is fragmentation.
    pub live_peak: LivePeak,
}

/// Commands of one stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamStats {
    /// What the stream is for.
    pub role: StreamRole,
    /// Kernels.
    pub launches: usize,
    /// Copies.
    pub transfers: usize,
    /// Events recorded.
    pub records: usize,
    /// Events waited for.
    pub waits: usize,
    /// Buffers allocated.
    pub allocs: usize,
    /// Buffers freed.
    pub frees: usize,
}

/// The moment at which most bytes live on the device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LivePeak {
    /// Bytes living there, homes included.
    pub bytes: Bytes,
    /// The alloc that reaches the peak; `None` when homes are all there is.
    pub command: Option<usize>,
    /// The step that alloc is for.
    pub step: Option<Step>,
    /// The kernel that runs next.
    pub node: Option<String>,
    /// Names and sizes of the largest buffers living there, largest first.
    pub largest: Vec<(String, Bytes)>,
}

/// Counts and sums.
pub fn stats(schedule: &Schedule) -> Stats {
    let workspaces = schedule.buffers.iter().filter(|buffer| buffer.kind == BufferKind::Workspace);
    let workspace_peak_bytes = workspaces.map(|buffer| buffer.bytes).max().unwrap_or(0);
    let mut bytes_by_kind = BTreeMap::new();
    for buffer in &schedule.buffers {
        *bytes_by_kind.entry(buffer.kind).or_default() += buffer.bytes;
    }
    let again = |command: &&Command| matches!(command.action, Action::Launch { run, .. } if run > 0);
    Stats {
        commands: schedule.commands.len(),
        streams: streams(schedule),
        offload_bytes: schedule.transfer_bytes(Direction::Offload),
        prefetch_bytes: schedule.transfer_bytes(Direction::Prefetch),
        recomputed: schedule.commands.iter().filter(again).count(),
        peak_bytes: schedule.arenas.iter().map(|arena| (arena.space, arena.bytes)).collect(),
        workspace_peak_bytes,
        bytes_by_kind,
        live_peak: live_peak(schedule),
    }
}

fn streams(schedule: &Schedule) -> Vec<StreamStats> {
    let none = |&role| StreamStats { role, launches: 0, transfers: 0, records: 0, waits: 0, allocs: 0, frees: 0 };
    let mut streams: Vec<StreamStats> = schedule.streams.iter().map(none).collect();
    for command in &schedule.commands {
        let Some(stream) = streams.get_mut(command.stream.index()) else { continue };
        *match command.action {
            Action::Launch { .. } => &mut stream.launches,
            Action::Transfer { .. } => &mut stream.transfers,
            Action::Record(_) => &mut stream.records,
            Action::Wait(_) => &mut stream.waits,
            Action::Alloc(_) => &mut stream.allocs,
            Action::Free(_) => &mut stream.frees,
        } += 1;
    }
    streams
}

fn live_peak(schedule: &Schedule) -> LivePeak {
    let on_device = |id: BufferId| schedule.buffers.get(id.index()).filter(|buffer| buffer.space == Space::Device);
    let bytes = |id: BufferId| on_device(id).map_or(0, |buffer| buffer.bytes);
    let homes = || schedule.homes.iter().map(|home| home.buffer).filter(|&id| on_device(id).is_some());
    let mut live: Bytes = homes().map(bytes).sum();
    let mut peak = LivePeak { bytes: live, ..LivePeak::default() };
    for (index, command) in schedule.commands.iter().enumerate() {
        match command.action {
            Action::Alloc(id) => live += bytes(id),
            Action::Free(id) => live = live.saturating_sub(bytes(id)),
            _ => continue,
        }
        if live > peak.bytes {
            (peak.bytes, peak.command) = (live, Some(index));
        }
    }
    let mut there: BTreeSet<BufferId> = homes().collect();
    let until = peak.command.map_or(0, |index| index + 1);
    for command in &schedule.commands[..until] {
        match command.action {
            Action::Alloc(id) if on_device(id).is_some() => drop(there.insert(id)),
            Action::Free(id) => drop(there.remove(&id)),
            _ => {}
        }
    }
    peak.step = peak.command.and_then(|index| step_of(schedule.commands[index].because));
    peak.node = schedule.commands[until..].iter().find_map(|command| match command.action {
        Action::Launch { node, .. } => schedule.nodes.get(node.index()).cloned(),
        _ => None,
    });
    let mut largest: Vec<(String, Bytes)> =
        there.iter().map(|&id| (schedule.buffer(id).name.clone(), bytes(id))).collect();
    largest.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    largest.truncate(LARGEST);
    peak.largest = largest;
    peak
}

fn step_of(cause: Cause) -> Option<Step> {
    match cause {
        Cause::Step(step)
        | Cause::IdleUntil(step)
        | Cause::For(step)
        | Cause::After(step)
        | Cause::EndOfLayer(step) => Some(step),
        Cause::EndOfIteration => None,
    }
}
