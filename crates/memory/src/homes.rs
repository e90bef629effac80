//! Homes: the bytes that outlive an iteration, at the same addresses in every schedule of a run.
//!
//! Training, the last partial batch and evaluation are different programs with the same weights. Their homes are laid out
//! once, by name, at the bottom of the device arena; everything else lies above. Parameters and states may have their homes
//! at the bottom of the host arena instead: they *stream*, that is, they are fetched before they are used and copied home
//! after they are updated. Above the homes on the device there may be a *staging* region: room for the inputs of the iteration
//! that comes next, which the host fills while one runs. It belongs to no schedule, and no schedule touches it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use vdnn_graph::{Graph, Role, ValueId};
use vdnn_schedule::Space;
use vdnn_tensor::Bytes;

/// Where one home lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeEntry {
    /// In which arena.
    pub space: Space,
    /// Address there.
    pub offset: Bytes,
    /// Size: the largest any program needs.
    pub bytes: Bytes,
    /// Whether it holds a parameter or a state, which may stream.
    pub persistent: bool,
}

/// Addresses of all homes of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HomeLayout {
    /// In order of address.
    order: Vec<String>,
    entries: BTreeMap<String, HomeEntry>,
    /// Inputs that have a second place, and where that is.
    staged: BTreeMap<String, Bytes>,
    alignment: Bytes,
    extent: Bytes,
    host_extent: Bytes,
}

impl HomeLayout {
    /// Lays out the homes of programs that run in turn on the same weights. Parameters and states come first, in the
    /// order of the first program that has them, then inputs and metrics.
    pub fn for_graphs(graphs: &[&Graph], alignment: Bytes) -> Self {
        let mut layout = HomeLayout { alignment, ..HomeLayout::default() };
        for persistent in [true, false] {
            for graph in graphs {
                for id in home_values(graph) {
                    let value = graph.value(id);
                    if matches!(value.role, Role::Parameter | Role::State) != persistent {
                        continue;
                    }
                    let entry = layout.entries.entry(value.name.clone()).or_insert_with(|| {
                        layout.order.push(value.name.clone());
                        HomeEntry { space: Space::Device, offset: 0, bytes: 0, persistent }
                    });
                    entry.bytes = entry.bytes.max(value.ty.bytes());
                }
            }
        }
        layout.place();
        layout
    }

    /// The same homes with a second place for the inputs of these names, above all homes on the device.
    pub fn with_staging(&self, names: &[&str]) -> Self {
        let known = names.iter().filter(|&&name| self.entries.contains_key(name));
        let staged = known.map(|name| (name.to_string(), 0)).collect();
        let mut layout = HomeLayout { staged, ..self.clone() };
        layout.place();
        layout
    }

    /// The same homes with the parameters and states of these names in host memory, besides those that are there already.
    pub fn streaming(&self, names: &BTreeSet<&str>) -> Self {
        let mut layout = self.clone();
        for (_, entry) in layout.entries.iter_mut().filter(|(name, entry)| entry.persistent && names.contains(&***name))
        {
            entry.space = Space::Host;
        }
        layout.place();
        layout
    }

    /// The same homes with the parameters and states of at least so many bytes in host memory.
    pub fn streaming_from(&self, least: Bytes) -> Self {
        let large = self.entries.iter().filter(|(_, entry)| entry.persistent && entry.bytes >= least);
        self.streaming(&large.map(|(name, _)| name.as_str()).collect())
    }

    /// The homes under a plan that has `values` of `graph` stream.
    pub(crate) fn with<'a>(&'a self, graph: &Graph, values: &BTreeSet<ValueId>) -> Cow<'a, Self> {
        match values.is_empty() {
            true => Cow::Borrowed(self),
            false => Cow::Owned(self.streaming(&values.iter().map(|&id| graph.value(id).name.as_str()).collect())),
        }
    }

    fn place(&mut self) {
        (self.extent, self.host_extent) = (0, 0);
        for name in &self.order {
            let Some(entry) = self.entries.get_mut(name) else { continue };
            let extent = if entry.space == Space::Host { &mut self.host_extent } else { &mut self.extent };
            entry.offset = extent.next_multiple_of(self.alignment);
            *extent = entry.offset + entry.bytes;
        }
        for (name, offset) in &mut self.staged {
            *offset = self.extent.next_multiple_of(self.alignment);
            self.extent = *offset + self.entries[name].bytes;
        }
    }

    /// Where the second place of an input begins.
    pub fn staged(&self, name: &str) -> Option<Bytes> {
        self.staged.get(name).copied()
    }

    /// The staging region, (first byte, bytes), if there is one.
    pub fn staging(&self) -> Option<(Bytes, Bytes)> {
        let first = self.staged.values().copied().min()?;
        Some((first, self.extent - first))
    }

    /// True when the home of this name is in host memory.
    pub fn streams(&self, name: &str) -> bool {
        self.host_extent > 0 && self.entries.get(name).is_some_and(|entry| entry.space == Space::Host)
    }

    /// Where a value's home lies.
    pub fn find(&self, name: &str) -> Option<HomeEntry> {
        self.entries.get(name).copied()
    }

    /// One past the last byte of any home on the device, and of the staging region.
    pub fn extent(&self) -> Bytes {
        self.extent
    }

    /// One past the last byte of any home in host memory.
    pub fn host_extent(&self) -> Bytes {
        self.host_extent
    }

    /// Bytes of what can lie on the device only: inputs, a second time where they are staged, and metrics.
    pub(crate) fn fixed_bytes(&self) -> Bytes {
        let homes = self.entries.values().filter(|entry| !entry.persistent).map(|entry| entry.bytes);
        homes.chain(self.staged.keys().map(|name| self.entries[name].bytes)).sum()
    }
}

/// The values that need homes: inputs, parameters and states as they start, and metrics.
pub(crate) fn home_values(graph: &Graph) -> impl Iterator<Item = ValueId> + '_ {
    graph.value_ids().filter(|&id| {
        let value = graph.value(id);
        match value.role {
            Role::Input | Role::Parameter | Role::State => value.producer.is_none(),
            Role::Metric => true,
            _ => false,
        }
    })
}

/// True for roles that live in homes. Those on the device are never planned.
pub(crate) fn is_home(role: Role) -> bool {
    matches!(role, Role::Input | Role::Parameter | Role::State | Role::Metric)
}
