//! What a policy decides.

use std::collections::{BTreeMap, BTreeSet};
use vdnn_graph::{NodeId, Program, Step, Use, ValueId};

/// Where bytes go when they leave the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Pinned host memory.
    Host,
    /// A file, through a slot of pinned host memory each way. A copy written in an earlier gap is read again as long as it is
    /// valid: `written` then says nothing.
    Disk {
        /// First step that may use the bytes of the slot down for something else: the write is done.
        written: Step,
        /// Step at whose beginning the slot up is taken, which starts the read. At most `fetch`, which copies on from there.
        read: Step,
    },
}

impl Tier {
    /// Whether bytes leave the host's memory as well.
    pub fn is_disk(self) -> bool {
        matches!(self, Tier::Disk { .. })
    }
}

/// What happens to a storage's bytes in a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Residency {
    /// They stay.
    Keep,
    /// A copy below holds them. The device bytes are held until step `release` begins and taken again when step `fetch`
    /// begins, which starts the copy up. The copy down is made when the gap begins, unless one made in an earlier gap is
    /// still valid because nothing wrote the storage since: then nothing moves down and `release` has nothing to wait for.
    /// Only bytes that are there can be copied: a storage that branches fill one after the other may not leave before it
    /// is full.
    Offload {
        /// Where to.
        tier: Tier,
        /// First step that may use the bytes for something else.
        release: Step,
        /// Step at whose beginning the bytes are taken again.
        fetch: Step,
    },
    /// They are forgotten, no copy is looked for: the use that ends the gap writes them anew (a later run of their producer)
    /// and reads nothing of them.
    Drop,
}

/// Which read set a gradient rule uses. Variant 0 is the rule as `autograd` pushed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariantId(pub u16);

impl VariantId {
    /// A mask in place of ReLU's Y, indices in place of a max pool's X and Y.
    pub const ENCODED: VariantId = VariantId(1);
}

/// How long storages hold device bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Allocation {
    /// From first to last use, less the offloaded stretches.
    #[default]
    Liveness,
    /// The paper's baseline: feature maps for the whole iteration, as many gradient buffers of the largest size as
    /// gradients live at once, one workspace of the largest size.
    NetworkWide,
}

/// A policy's decisions. Steps index `order`, so recomputation is part of the plan and not an afterthought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Every run of every node, in execution order.
    pub order: Vec<Use>,
    /// The read set of each gradient rule; absent means variant 0. Those of [`crate::Problem::variants`], all or none.
    pub variants: BTreeMap<NodeId, VariantId>,
    /// Index into the kernel table's choices of each node, the same for all its runs; absent means the fastest.
    pub algos: BTreeMap<NodeId, usize>,
    /// Gaps that are not kept, keyed by the storage's root and the use that ends the gap: the first use for the gap that
    /// wraps around the iteration.
    pub gaps: BTreeMap<(ValueId, Use), Residency>,
    /// Parameters and states whose homes are in host memory, besides those that the problem has there.
    pub streamed: BTreeSet<ValueId>,
    /// How long storages hold bytes.
    pub allocation: Allocation,
}

impl MemoryPlan {
    /// Keep everything, run everything once with its fastest algorithm.
    pub fn keep_all(program: &Program) -> Self {
        MemoryPlan {
            order: program.order.iter().map(|&node| Use { node, run: 0 }).collect(),
            variants: BTreeMap::new(),
            algos: BTreeMap::new(),
            gaps: BTreeMap::new(),
            streamed: BTreeSet::new(),
            allocation: Allocation::Liveness,
        }
    }

    /// True when the plan is for the problem's encoded program.
    pub fn is_encoded(&self) -> bool {
        self.variants.values().any(|&variant| variant != VariantId(0))
    }

    /// Index of a node's choice in the kernel table.
    pub fn choice(&self, node: NodeId) -> usize {
        self.algos.get(&node).copied().unwrap_or(0)
    }
}
