//! Which values share bytes, decided once per program and the same for every policy.
//!
//! ```text
//!   conv1 ──► x ──relu──► y          y over x          (in place: x is not read again)
//!   a, b ──concat──► z               a, b inside z     (written there by their producers)
//!   dz ──split──► da, db             da, db inside dz  (read there)
//!                                    slices of each row, or along the batch runs of whole rows
//!   w, dw ──sgd──► w'                w' over w         (always: the persistent's home)
//! ```
//!
//! Every value gets a [`Location`] inside a *storage*, named by its root value. All values of one storage live and move
//! together; a storage is what policies keep, offload or drop. In place is legal only at the last use of the bytes that
//! are overwritten, views included; otherwise the op gets bytes of its own (never an error, save for persistents).
//! Left to others: addresses, lifetimes, and proving this analysis right (`check` follows values by itself).

use crate::op::{self, Axis};
use crate::{Graph, GraphError, NodeId, Op, Role, ValueId};
use std::collections::BTreeMap;
use std::ops::Range;
use vdnn_tensor::Bytes;

/// Whether ops may overwrite dead inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum InPlace {
    /// Overwrite and share wherever it is legal.
    #[default]
    Allowed,
    /// Only persistents are updated in place; everything else gets bytes of its own (to compare against).
    PersistentsOnly,
}

/// Where a value lies inside its storage: `rows` rows of `row_bytes`, `row_stride` apart, from `offset`.
///
/// A value that fills its storage has one row, and so have whole samples of it. A slice of the channels of a concat
/// `[N, C, H, W]` has N rows, N·H·W where channels are innermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The value that names the storage and fills it.
    pub root: ValueId,
    /// First byte, from the start of the storage.
    pub offset: Bytes,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of one row.
    pub row_bytes: Bytes,
    /// Distance between the starts of rows.
    pub row_stride: Bytes,
}

/// The storages of a program.
#[derive(Clone, Debug)]
pub struct Aliases {
    locations: Vec<Location>,
    storage_bytes: Vec<Bytes>,
}

impl Aliases {
    /// Analyses `graph` under `order`.
    ///
    /// # Errors
    /// [`GraphError::ReadAfterUpdate`] when a persistent is still read after the node that updates it.
    pub fn analyse(graph: &Graph, order: &[NodeId], in_place: InPlace) -> Result<Self, GraphError> {
        let mut forest = Forest::new(graph, order);
        for &node in order {
            forest.persistents(node)?;
            if in_place == InPlace::Allowed {
                match graph.node(node).op {
                    Op::Concat(op::Concat { axis }) => forest.concat(node, axis),
                    Op::Split(op::Split { axis, .. }) => forest.split(node, axis),
                    _ => forest.overwrite(node),
                }
            }
        }
        Ok(forest.resolve())
    }

    /// Where a value lies.
    pub fn location(&self, value: ValueId) -> Location {
        self.locations[value.index()]
    }

    /// The root of the storage a value lies in.
    pub fn root(&self, value: ValueId) -> ValueId {
        self.locations[value.index()].root
    }

    /// Bytes of the storage named by a root.
    pub fn storage_bytes(&self, root: ValueId) -> Bytes {
        self.storage_bytes[root.index()]
    }
}

/// Length and first byte of a child within a row of its parent.
type Span = (Bytes, Bytes);

/// Where a child begins in its parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Start {
    /// The parent's row that is the child's first.
    row: u64,
    /// First byte in each row.
    byte: Bytes,
}

/// What a value covers of another one.
#[derive(Clone, Debug)]
struct Cover {
    rows: Range<u64>,
    /// In each row.
    bytes: Range<Bytes>,
}

impl Start {
    fn plus(self, other: Start) -> Start {
        Start { row: self.row + other.row, byte: self.byte + other.byte }
    }
}

impl Cover {
    fn meets(&self, other: &Cover) -> bool {
        overlap(&self.rows, &other.rows) && overlap(&self.bytes, &other.bytes)
    }

    /// What is left of this inside `part`, as seen from there.
    fn within(&self, part: &Cover) -> Cover {
        let cut = |a: &Range<u64>, b: &Range<u64>| a.start.max(b.start) - b.start..a.end.min(b.end) - b.start;
        Cover { rows: cut(&self.rows, &part.rows), bytes: cut(&self.bytes, &part.bytes) }
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Values as a forest: a child lies inside its parent, in a run of its rows (samples, or pixels where channels are innermost)
/// and in a slice of each of them.
struct Forest<'a> {
    graph: &'a Graph,
    parent: Vec<Option<(ValueId, Start)>>,
    /// Values attached directly to each value, by length and first byte within a row, with their first row.
    children: Vec<BTreeMap<Span, Vec<(ValueId, u64)>>>,
    /// Position of the last node that reads or writes each value.
    last_use: Vec<usize>,
    position: Vec<usize>,
    pinned: Vec<bool>,
}

impl<'a> Forest<'a> {
    fn new(graph: &'a Graph, order: &[NodeId]) -> Self {
        let n = graph.values().len();
        let mut last_use = vec![0; n];
        let mut position = vec![0; graph.nodes().len()];
        for (at, &id) in order.iter().enumerate() {
            position[id.index()] = at;
            let node = graph.node(id);
            for value in node.inputs.iter().chain(&node.outputs) {
                last_use[value.index()] = at;
            }
        }
        // Inputs stay as the host wrote them, metrics are read back, persistents have homes of their own.
        let pinned = graph
            .values()
            .iter()
            .map(|v| matches!(v.role, Role::Input | Role::Parameter | Role::State | Role::Metric))
            .collect();
        Forest { graph, parent: vec![None; n], children: vec![BTreeMap::new(); n], last_use, position, pinned }
    }

    /// Updated persistents lie over their former value.
    fn persistents(&mut self, node: NodeId) -> Result<(), GraphError> {
        let op_node = self.graph.node(node);
        for &(input, output) in op_node.op.updates().iter() {
            let (from, to) = (op_node.inputs[input], op_node.outputs[output]);
            if self.last_use[from.index()] > self.position[node.index()] {
                let late = self.last_use[from.index()];
                let reader = self.graph.node_ids().find(|id| self.position[id.index()] == late);
                return Err(GraphError::ReadAfterUpdate {
                    value: self.graph.value(from).name.clone(),
                    reader: reader.map(|id| self.graph.node(id).name.clone()).unwrap_or_default(),
                    writer: op_node.name.clone(),
                });
            }
            self.attach(to, from, Start::default());
        }
        Ok(())
    }

    /// Writes outputs over inputs where that is legal: each over one input, and over each input one.
    fn overwrite(&mut self, node: NodeId) {
        let op_node = self.graph.node(node);
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for &(input, output) in op_node.op.in_place() {
            // An input that the op may have need not be there.
            let Some(&from) = op_node.inputs.get(input) else { continue };
            let to = op_node.outputs[output];
            let fits = self.graph.value(from).ty.bytes() == self.graph.value(to).ty.bytes();
            let free = taken.iter().all(|&(i, o)| i != input && o != output);
            if !free || !fits || self.pinned[to.index()] || self.rows(from) != self.rows(to) {
                continue;
            }
            let legal = if op_node.op.is_view() {
                !self.pinned[from.index()]
            } else {
                !self.read_twice(&op_node.inputs, input) && self.dies_at(from, node)
            };
            if legal {
                self.attach(to, from, Start::default());
                taken.push((input, output));
            }
        }
    }

    /// True when another operand reads bytes of operand `input`, under the same or another name.
    fn read_twice(&self, inputs: &[ValueId], input: usize) -> bool {
        let (root, own) = self.cover(inputs[input]);
        let others = inputs.iter().enumerate().filter(|&(other, _)| other != input);
        others.map(|(_, &id)| self.cover(id)).any(|(other_root, other)| other_root == root && other.meets(&own))
    }

    /// Places the inputs of a concat inside its output where they are free to move.
    fn concat(&mut self, node: NodeId, axis: Axis) {
        let op_node = self.graph.node(node);
        let output = op_node.outputs[0];
        let mut start = Start::default();
        for &input in &op_node.inputs {
            let (root, fills) = self.root_filled_by(input);
            let movable = !self.pinned[root.index()] && root != output;
            let fits = match axis {
                Axis::Channels => self.rows(root) == self.rows(output),
                Axis::Batch => self.row_bytes(root) == self.row_bytes(output),
            };
            if fills && movable && fits {
                self.attach(root, output, start);
            }
            start = start.plus(self.step(input, axis));
        }
    }

    /// Leaves the parts of a split where they are.
    fn split(&mut self, node: NodeId, axis: Axis) {
        let op_node = self.graph.node(node);
        let mut start = Start::default();
        for &output in &op_node.outputs {
            if !self.pinned[output.index()] {
                self.attach(output, op_node.inputs[0], start);
            }
            start = start.plus(self.step(output, axis));
        }
    }

    /// From the beginning of a part to that of the next one.
    fn step(&self, part: ValueId, axis: Axis) -> Start {
        match axis {
            Axis::Channels => Start { row: 0, byte: self.row_bytes(part) },
            Axis::Batch => Start { row: self.rows(part), byte: 0 },
        }
    }

    /// Puts `child` inside `parent`. Links go straight to the root of the day, so that long in-place chains stay flat.
    fn attach(&mut self, child: ValueId, parent: ValueId, at: Start) {
        let (root, start) = self.climb(parent);
        let start = start.plus(at);
        self.parent[child.index()] = Some((root, start));
        let span = (self.row_bytes(child), start.byte);
        self.children[root.index()].entry(span).or_default().push((child, start.row));
    }

    fn rows(&self, value: ValueId) -> u64 {
        self.graph.value(value).ty.rows()
    }

    fn row_bytes(&self, value: ValueId) -> Bytes {
        let ty = &self.graph.value(value).ty;
        ty.bytes() / ty.rows().max(1)
    }

    /// The root above `value`, and where it begins there.
    fn climb(&self, mut value: ValueId) -> (ValueId, Start) {
        let mut start = Start::default();
        while let Some((parent, step)) = self.parent[value.index()] {
            start = start.plus(step);
            value = parent;
        }
        (value, start)
    }

    /// The root above `value`, and what it covers of it.
    fn cover(&self, value: ValueId) -> (ValueId, Cover) {
        let (root, start) = self.climb(value);
        (root, self.cover_at(value, start))
    }

    fn cover_at(&self, value: ValueId, start: Start) -> Cover {
        Cover { rows: start.row..start.row + self.rows(value), bytes: start.byte..start.byte + self.row_bytes(value) }
    }

    fn root_filled_by(&self, value: ValueId) -> (ValueId, bool) {
        let (root, start) = self.climb(value);
        let same = self.rows(root) == self.rows(value) && self.row_bytes(root) == self.row_bytes(value);
        (root, start == Start::default() && same)
    }

    /// True when nothing reads bytes of `value`, under any name, after `node`.
    ///
    /// Only children that overlap are looked at, and since nodes are visited in order, those already dead are dropped
    /// as they are met: neither long in-place chains nor wide forks make the analysis quadratic.
    fn dies_at(&mut self, value: ValueId, node: NodeId) -> bool {
        let at = self.position[node.index()];
        let mut stack = vec![self.cover(value)];
        while let Some((id, covered)) = stack.pop() {
            if self.outlives(id, at) {
                return false;
            }
            for span in self.overlapping(id, &covered.bytes) {
                let mut kept = self.children[id.index()].remove(&span).unwrap_or_default();
                kept.retain(|&(child, _)| self.outlives(child, at) || !self.children[child.index()].is_empty());
                for &(child, row) in &kept {
                    let part = self.cover_at(child, Start { row, byte: span.1 });
                    if part.meets(&covered) {
                        stack.push((child, covered.within(&part)));
                    }
                }
                if !kept.is_empty() {
                    self.children[id.index()].insert(span, kept);
                }
            }
        }
        true
    }

    /// Where children of `id` lie that share bytes with `bytes` of its row. Children have few different lengths.
    fn overlapping(&self, id: ValueId, bytes: &Range<Bytes>) -> Vec<Span> {
        let (from, to) = (bytes.start, bytes.end);
        let children = &self.children[id.index()];
        let mut found = Vec::new();
        let mut longer = children.range((1, 0)..).next();
        while let Some((&(length, _), _)) = longer {
            let first = (from + 1).saturating_sub(length);
            if first < to {
                found.extend(children.range((length, first)..(length, to)).map(|(&span, _)| span));
            }
            longer = children.range((length + 1, 0)..).next();
        }
        found
    }

    fn outlives(&self, value: ValueId, at: usize) -> bool {
        self.pinned[value.index()] || self.last_use[value.index()] > at
    }

    fn resolve(self) -> Aliases {
        let storage_bytes = self.graph.values().iter().map(|value| value.ty.bytes()).collect();
        let locate = |value: ValueId| {
            let (root, start) = self.climb(value);
            let (bytes, row, stride) =
                (self.graph.value(value).ty.bytes(), self.row_bytes(value), self.row_bytes(root));
            let offset = start.row * stride + start.byte;
            if row == stride {
                Location { root, offset, rows: 1, row_bytes: bytes, row_stride: bytes }
            } else {
                Location { root, offset, rows: self.rows(value), row_bytes: row, row_stride: stride }
            }
        };
        let locations = self.graph.value_ids().map(locate).collect();
        Aliases { locations, storage_bytes }
    }
}
