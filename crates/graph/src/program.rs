//! A graph with one total order. The index in the order is the time axis of everything that follows.

use crate::op::Axis;
use crate::{Aliases, Graph, GraphError, InPlace, Node, NodeId, ValueId};
use serde::{Deserialize, Serialize};
use vdnn_tensor::Bytes;

/// Index of one kernel in program order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Step(pub u32);

impl Step {
    /// The step as a vector index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One execution of a node: run 0 is the original, later runs recompute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Use {
    /// The node.
    pub node: NodeId,
    /// 0 for the original, 1.. for recomputed runs.
    pub run: u16,
}

/// A graph, its linear order and the analysis of which values share bytes.
#[derive(Clone, Debug)]
pub struct Program {
    /// The graph.
    pub graph: Graph,
    /// All nodes, each once, inputs before readers.
    pub order: Vec<NodeId>,
    /// Where values share bytes: in-place results, concat slices, reshapes.
    pub aliases: Aliases,
}

impl Program {
    /// Linearises a graph in push order: forward, then per layer weight gradient, data gradient, update, as
    /// differentiation pushed them.
    ///
    /// # Errors
    /// [`GraphError`] when a persistent is read after its update.
    pub fn linearize(graph: Graph, in_place: InPlace) -> Result<Self, GraphError> {
        let order = graph.node_ids().collect();
        Self::with_order(graph, order, in_place)
    }

    /// A program with an order of one's own.
    ///
    /// # Errors
    /// [`GraphError`] when `order` is not a topological order of all nodes, or reads a persistent after its update.
    pub fn with_order(graph: Graph, order: Vec<NodeId>, in_place: InPlace) -> Result<Self, GraphError> {
        check_order(&graph, &order)?;
        let aliases = Aliases::analyse(&graph, &order, in_place)?;
        Ok(Program { graph, order, aliases })
    }

    /// The node at a step.
    pub fn node_at(&self, step: Step) -> &Node {
        self.graph.node(self.order[step.index()])
    }

    /// The first byte, in the storage of `whole`, of each part of it where parts follow each other along `axis`.
    pub fn part_offsets(&self, whole: ValueId, parts: &[ValueId], axis: Axis) -> Vec<Bytes> {
        let rows = |id: ValueId| self.graph.value(id).ty.rows().max(1);
        let row_bytes = |id: ValueId| self.graph.value(id).ty.bytes() / rows(id);
        let place = self.aliases.location(whole);
        let stride = if place.row_bytes == place.row_stride { row_bytes(whole) } else { place.row_stride };
        let after = |start: Bytes, &part: &ValueId| match axis {
            Axis::Channels => start + row_bytes(part),
            Axis::Batch => start + rows(part) * stride,
        };
        let next = |start: &mut Bytes, part| Some(std::mem::replace(start, after(*start, part)));
        parts.iter().scan(place.offset, next).collect()
    }

    /// Number of steps.
    pub fn n_steps(&self) -> usize {
        self.order.len()
    }
}

fn check_order(graph: &Graph, order: &[NodeId]) -> Result<(), GraphError> {
    let mut ready: Vec<bool> = graph.values().iter().map(|value| value.producer.is_none()).collect();
    let too_early = |node: NodeId, value: ValueId| GraphError::Order {
        node: graph.node(node).name.clone(),
        value: graph.value(value).name.clone(),
    };
    for &id in order {
        for &input in &graph.node(id).inputs {
            if !ready[input.index()] {
                return Err(too_early(id, input));
            }
        }
        for output in &graph.node(id).outputs {
            ready[output.index()] = true;
        }
    }
    match graph.value_ids().find(|id| !ready[id.index()]) {
        Some(missing) => Err(too_early(graph.value(missing).producer.unwrap_or(NodeId(0)), missing)),
        None => Ok(()),
    }
}
