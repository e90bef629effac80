//! What the walk through a schedule reads of a graph, in tables.
//!
//! In the graph a node has three cache lines and a value more than one, and what they are called, read, write and measure lies
//! elsewhere. A deep network's are larger than the caches, so each is read once, in the order in which it was added to the graph:
//! a node and its outputs, which lie near each other. The names of the schedule are compared on the way.
//!
//! ```text
//!   entries    node 0: 2 in, 1 out     node 1: 1 in, 2 out            operands   x w y  y z m
//!   grids      x 8 rows of 64 bytes    w 16 rows of 64 bytes    …
//! ```

use super::atoms::rows_of;
use crate::grid::Grid;
use crate::{Rule, Violation};
use std::borrow::Cow;
use vdnn_graph::{Graph, Node, NodeId, Value, ValueId};
use vdnn_schedule::Schedule;

/// A graph's tables.
pub(crate) struct Tables {
    pub nodes: Nodes,
    /// By value, as [`rows_of`] has it.
    pub grids: Vec<Grid>,
    /// Where the schedule's nodes and values are not called as the graph's: the first of each.
    pub names: Vec<Violation>,
}

impl Tables {
    pub(crate) fn of(schedule: &Schedule, graph: &Graph) -> Self {
        let mut nodes = Nodes::with_capacity(graph.nodes().len());
        let mut names = Names::of(&schedule.nodes);
        let grids = Vec::with_capacity(graph.values().len());
        let mut values = Values { names: Names::of(&schedule.values), grids };
        let mut next = graph.values().iter();
        for node in graph.nodes() {
            names.meet(&node.name);
            nodes.push(node);
            let met = node.outputs.iter().map(|output| output.index() + 1).max().unwrap_or(0);
            let beside = met.saturating_sub(values.grids.len());
            next.by_ref().take(beside).for_each(|value| values.push(value));
        }
        next.for_each(|value| values.push(value));
        let names = names.other("node").into_iter().chain(values.names.other("value")).collect();
        Tables { nodes, grids: values.grids, names }
    }
}

/// What the values of a node are and which of them may share bytes.
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
pub(crate) struct Nodes {
    entries: Vec<Entry>,
    operands: Vec<ValueId>,
}

impl Nodes {
    fn with_capacity(n_nodes: usize) -> Self {
        // Most have some five operands.
        Nodes { entries: Vec::with_capacity(n_nodes), operands: Vec::with_capacity(5 * n_nodes) }
    }

    /// Adds the graph's next node.
    fn push(&mut self, node: &Node) {
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

/// The values of a graph.
struct Values<'a> {
    names: Names<'a>,
    grids: Vec<Grid>,
}

impl<'a> Values<'a> {
    /// Adds the graph's next value.
    fn push(&mut self, value: &'a Value) {
        self.names.meet(&value.name);
        self.grids.push(rows_of(&value.ty));
    }
}

/// Names of the schedule as they are compared with the graph's, in order.
struct Names<'a> {
    ours: &'a [String],
    /// How many of the graph's were met.
    met: usize,
    /// The first of the graph's that is another than ours.
    other: Option<(usize, &'a String)>,
}

impl<'a> Names<'a> {
    fn of(ours: &'a [String]) -> Self {
        Names { ours, met: 0, other: None }
    }

    /// The graph's next name.
    fn meet(&mut self, name: &'a String) {
        if self.other.is_none() && self.ours.get(self.met) != Some(name) {
            self.other = Some((self.met, name));
        }
        self.met += 1;
    }

    /// Says where the names part, once all were met.
    fn other(&self, what: &str) -> Option<Violation> {
        let more = (self.ours.len() > self.met).then_some((self.met, None));
        let (at, expected) = self.other.map(|(at, name)| (at, Some(name))).or(more)?;
        let name = self.ours.get(at);
        let message = format!("expected {what} {at} to be {expected:?} as in the program, found {name:?}");
        Some(Violation::whole(Rule::Refines, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_other_name_is_told() {
        let strings = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<String>>();
        let told = |ours: &[&str], theirs: &[&str]| {
            let (ours, theirs) = (strings(ours), strings(theirs));
            let mut names = Names::of(&ours);
            theirs.iter().for_each(|name| names.meet(name));
            names.other("node").map(|violation| violation.message)
        };
        let message = |at: usize, expected: &str, found: &str| {
            Some(format!("expected node {at} to be {expected} as in the program, found {found}"))
        };
        assert_eq!(told(&["a", "b"], &["a", "b"]), None);
        assert_eq!(told(&["a", "x", "y"], &["a", "b", "c"]), message(1, "Some(\"b\")", "Some(\"x\")"));
        assert_eq!(told(&["a"], &["a", "b", "c"]), message(1, "Some(\"b\")", "None"), "fewer than the program has");
        assert_eq!(told(&["a", "b"], &["a"]), message(1, "None", "Some(\"b\")"), "more");
        assert_eq!(told(&["x", "b"], &["a"]), message(0, "Some(\"a\")", "Some(\"x\")"), "more, and another before");
    }
}
