//! A schedule's tables, before its commands: arenas, homes, and a buffer for each interval at its address.

use super::Emitter;
use crate::address::{Addresses, Below};
use crate::homes::home_values;
use crate::stretch::Purpose;
use std::collections::BTreeMap;
use vdnn_graph::ValueId;
use vdnn_schedule::{Arena, Buffer, BufferId, BufferKind, Home, Space, StreamRole};

impl Emitter<'_> {
    pub(super) fn arenas(&mut self, addresses: &Addresses, below: &Below) {
        let alignment = self.problem.options.alignment;
        let budgets = self.problem.budgets;
        let arena = |space, bytes, budget| Arena { space, bytes, budget, alignment };
        self.schedule.arenas = vec![
            arena(Space::Device, addresses.device_extent, budgets.device),
            arena(Space::Host, below.host.extent, budgets.host),
        ];
        if !self.intervals.files.is_empty() {
            self.schedule.arenas.push(arena(Space::Disk, below.disk.extent, budgets.disk));
            self.schedule.streams.push(StreamRole::Disk);
        }
    }

    /// Homes keep the addresses of the run's layout; a persistent's home also holds its updated value. Kernels use those that
    /// are on the device where they lie.
    pub(super) fn homes(&mut self) {
        let graph = &self.problem.program.graph;
        let last: BTreeMap<ValueId, ValueId> = graph.persistents().iter().map(|p| (p.initial, p.last)).collect();
        for id in home_values(graph) {
            let value = graph.value(id);
            let entry = self.problem.homes.find(&value.name);
            let (space, offset) = entry.map_or((Space::Device, 0), |home| (home.space, home.offset));
            let on_device = space == Space::Device;
            let buffer = self.push_buffer(Buffer {
                name: if on_device { value.name.clone() } else { format!("{}.home", value.name) },
                space,
                offset,
                bytes: value.ty.bytes(),
                kind: BufferKind::Home,
                root: Some(id),
            });
            self.current[id.index()] = on_device.then_some(buffer);
            self.homes[id.index()] = Some(buffer);
            self.schedule.homes.push(Home { initial: id, last: last.get(&id).copied().unwrap_or(id), buffer });
        }
    }

    pub(super) fn buffers(&mut self, addresses: &Addresses, below: &Below) {
        let graph = &self.problem.program.graph;
        let (intervals, value_name) = (self.intervals, |id: ValueId| graph.value(id).name.as_str());
        self.stretch_buffers = vec![BufferId(0); intervals.stretches.len()];
        for (first, stretch) in intervals.stretches.iter().enumerate().filter(|(_, stretch)| stretch.over.is_none()) {
            let held = intervals.taken_over(first).map(|i| &intervals.stretches[i]);
            let names: Vec<String> = held.map(|held| stretch_name(value_name(held.root), held.index)).collect();
            let name = names.join("+");
            let (root, kind, offset) = (Some(stretch.root), BufferKind::Storage, addresses.stretches[first]);
            let buffer = Buffer { name, space: Space::Device, offset, bytes: stretch.bytes, kind, root };
            let id = self.push_buffer(buffer);
            intervals.taken_over(first).for_each(|i| self.stretch_buffers[i] = id);
        }
        for (workspace, &offset) in intervals.workspaces.iter().zip(&addresses.workspaces) {
            let run = self.plan.order[workspace.step.index()].run;
            let name = stretch_name(&format!("{}.workspace", graph.node(workspace.node).name), u32::from(run));
            let (root, kind) = (None, BufferKind::Workspace);
            let id =
                self.push_buffer(Buffer { name, space: Space::Device, offset, bytes: workspace.bytes, kind, root });
            self.workspace_buffers.push(id);
        }
        let host = intervals.copies.iter().zip(&below.host.offsets);
        let disk = intervals.files.iter().zip(&below.disk.offsets);
        for (copy, &offset) in host.chain(disk) {
            let (ending, space) = match copy.purpose {
                Purpose::Host => ("host", Space::Host),
                Purpose::ToDisk => ("to_disk", Space::Host),
                Purpose::FromDisk => ("from_disk", Space::Host),
                Purpose::Disk => ("disk", Space::Disk),
            };
            let name = stretch_name(&format!("{}.{ending}", value_name(copy.root)), copy.index);
            let (root, kind) = (Some(copy.root), BufferKind::Copy);
            let id = self.push_buffer(Buffer { name, space, offset, bytes: copy.bytes, kind, root });
            if space == Space::Disk { &mut self.file_buffers } else { &mut self.copy_buffers }.push(id);
        }
    }

    fn push_buffer(&mut self, buffer: Buffer) -> BufferId {
        self.schedule.buffers.push(buffer);
        BufferId(self.schedule.buffers.len() as u32 - 1)
    }
}

/// The name of the n-th stretch of something: `x`, `x'`, `x'2`, `x'3`, …
fn stretch_name(name: &str, index: u32) -> String {
    match index {
        0 => name.to_string(),
        1 => format!("{name}'"),
        _ => format!("{name}'{index}"),
    }
}
