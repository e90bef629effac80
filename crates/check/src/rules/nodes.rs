//! What the walk through a schedule reads of a graph's nodes, in one table.
//!
//! In the graph a node has three cache lines, and its name, inputs and outputs lie elsewhere. A deep network's are larger than
//! the caches, so each is read once, in order, and the walk reads the table:
//!
//! ```text
//!   entries    node 0: 0.. 2 in, 1 out     node 1: 3.. 1 in, 2 out
//!   operands   x  w  y                     y  z  m
//! ```

use std::borrow::Cow;
use vdnn_graph::{Node, NodeId, ValueId};

/// What the values of a node are and which of them may share bytes.
#[derive(Debug)]
pub(crate) struct Entry {
    operands: u32,
    inputs: u32,
    outputs: u32,
    /// As [`vdnn_graph::Op::updates`] has them.
    pub updates: Cow<'static, [(usize, usize)]>,
    /// As [`vdnn_graph::Op::in_place`] has them.
    in_place: &'static [(usize, usize)],
}

impl Entry {
    /// As [`vdnn_graph::Op::has_effect`] has it.
    pub(crate) fn has_effect(&self) -> bool {
        !self.updates.is_empty()
    }

    /// Whether an output may lie over an input: the op's kernels accept it, or it is the input, updated.
    pub(crate) fn may_overwrite(&self, input: usize, output: usize) -> bool {
        let pair = (input, output);
        self.in_place.contains(&pair) || self.updates.contains(&pair)
    }
}

/// The nodes of a graph.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    entries: Vec<Entry>,
    operands: Vec<ValueId>,
}

impl Nodes {
    /// Room for so many nodes.
    pub(crate) fn with_capacity(n_nodes: usize) -> Self {
        // Most have some four operands.
        Nodes { entries: Vec::with_capacity(n_nodes), operands: Vec::with_capacity(4 * n_nodes) }
    }

    /// Adds the graph's next node.
    pub(crate) fn push(&mut self, node: &Node) {
        let (inputs, outputs) = (node.inputs.len() as u32, node.outputs.len() as u32);
        let (updates, in_place) = (node.op.updates(), node.op.in_place());
        self.entries.push(Entry { operands: self.operands.len() as u32, inputs, outputs, updates, in_place });
        self.operands.extend_from_slice(&node.inputs);
        self.operands.extend_from_slice(&node.outputs);
    }

    pub(crate) fn entry(&self, node: NodeId) -> &Entry {
        &self.entries[node.index()]
    }

    /// A node's inputs and outputs.
    pub(crate) fn operands(&self, entry: &Entry) -> [&[ValueId]; 2] {
        let [first, inputs, outputs] = [entry.operands, entry.inputs, entry.outputs].map(|n| n as usize);
        let (inputs, others) = self.operands[first..].split_at(inputs);
        [inputs, &others[..outputs]]
    }
}
