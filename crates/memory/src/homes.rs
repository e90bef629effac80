//! Homes: the bytes that outlive an iteration, at the same addresses in every schedule of a run.
//!
//! Training, the last partial batch and evaluation are different programs with the same weights. Their homes are laid out
//! once, by name, at the bottom of the device arena; everything else lies above.

use std::collections::BTreeMap;
use vdnn_graph::{Graph, Role, ValueId};
use vdnn_tensor::Bytes;

/// Where one home lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeEntry {
    /// Address in the device arena.
    pub offset: Bytes,
    /// Size: the largest any program needs.
    pub bytes: Bytes,
}

/// Addresses of all homes of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HomeLayout {
    entries: BTreeMap<String, HomeEntry>,
    extent: Bytes,
}

impl HomeLayout {
    /// Lays out the homes of programs that run in turn on the same weights. Parameters and states come first, in the
    /// order of the first program that has them, then inputs and metrics.
    pub fn for_graphs(graphs: &[&Graph], alignment: Bytes) -> Self {
        let mut sizes: Vec<(String, Bytes)> = Vec::new();
        let mut index: BTreeMap<String, usize> = BTreeMap::new();
        for persistent in [true, false] {
            for graph in graphs {
                for id in home_values(graph) {
                    let value = graph.value(id);
                    if matches!(value.role, Role::Parameter | Role::State) != persistent {
                        continue;
                    }
                    let at = *index.entry(value.name.clone()).or_insert_with(|| {
                        sizes.push((value.name.clone(), 0));
                        sizes.len() - 1
                    });
                    sizes[at].1 = sizes[at].1.max(value.ty.bytes());
                }
            }
        }
        let mut layout = HomeLayout::default();
        for (name, bytes) in sizes {
            let offset = layout.extent.next_multiple_of(alignment);
            layout.entries.insert(name, HomeEntry { offset, bytes });
            layout.extent = offset + bytes;
        }
        layout
    }

    /// Where a value's home lies.
    pub fn find(&self, name: &str) -> Option<HomeEntry> {
        self.entries.get(name).copied()
    }

    /// One past the last byte of any home.
    pub fn extent(&self) -> Bytes {
        self.extent
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

/// True for roles that live in homes and are never planned.
pub(crate) fn is_home(role: Role) -> bool {
    matches!(role, Role::Input | Role::Parameter | Role::State | Role::Metric)
}
