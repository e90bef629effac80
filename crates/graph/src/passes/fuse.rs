//! Batch norm with the ReLU after it, and with the sum of a residual between the two, in one op; convolution with ReLU too.
//! Max pooling with the places of its maxima.
//!
//! ```text
//!   x ─ batch_norm ─ relu ─► y               x ─ batch_norm_relu ─► y
//!   x ─ batch_norm ─ add ─ relu ─► y         x ─ batch_norm_add_relu ─► y
//!              r ─────┘                      r ───────────┘
//!   a ─ batch_norm ─ add ─ relu ─► y         a ─ batch_norm_pair_relu ─► y
//!   b ─ batch_norm ───┘                      b ───────────┘
//!   x ─ conv2d ─ relu ─► y                   x ─ conv2d_relu ─► y
//!   x ─ max_pool2d ─► y                      x ─ max_pool2d_indices ─► y, a byte a window
//! ```
//!
//! Memory-bound ops are paid by the pass over memory, so three become one: forward writes Y once, backward reads X and dY
//! once for the reduction and once for dX. Only where nobody else reads what disappears. Where both sides of the sum are
//! batch norms (the first block of a ResNet's stage) both are taken, and neither normalised map is made.
//!
//! The fused op has the ReLU's name and layer, as its result always had; the batch norm keeps its layer, with the nodes of its
//! statistics, and all parameters keep their names. Backward then is part of the ReLU's layer. Bits are those of the single ops.

use super::Rewritten;
use super::rebuild::Rebuild;
use crate::op::{BatchNorm, BatchNormPair, Conv2d};
use crate::{Graph, GraphError, Node, NodeId, Op, Role, ValueId};

const PASS: &str = "fuse";
/// Operands of a batch norm: X, mean, variance, gamma, beta.
const STATISTICS: std::ops::Range<usize> = 1..3;

/// Fuses batch norms with the ReLUs and residual sums after them, and convolutions with the ReLUs after them. With `apart` the batch
/// norms of the largest residuals that have one are left as they are: of a ResNet that of its first stage, whose gradient with both
/// norms holds most.
///
/// # Errors
/// [`GraphError::Pass`] for a graph that has been differentiated.
pub fn fuse(graph: &Graph, apart: bool) -> Result<Rewritten, GraphError> {
    let mut rebuild = Rebuild::new(PASS, graph)?;
    let readers = Readers::of(graph);
    let mut fusions: Vec<Option<Fusion>> = graph.nodes().iter().map(|node| readers.fusion(node)).collect();
    if apart {
        part_largest(graph, &mut fusions);
    }
    let mut absorbed = vec![false; graph.nodes().len()];
    for fusion in fusions.iter().flatten() {
        absorbed[fusion.first.index()] = true;
        fusion.sum.iter().for_each(|sum| absorbed[sum.add.index()] = true);
        fusion.second().iter().for_each(|&(norm, _)| absorbed[norm.index()] = true);
    }
    for ((node, fusion), absorbed) in graph.nodes().iter().zip(fusions).zip(absorbed) {
        match fusion {
            _ if absorbed => {}
            Some(fusion) => fusion.push(&mut rebuild, node)?,
            None => rebuild.push(node, alone(&node.op), &rebuild.inputs(node))?,
        }
    }
    Ok(rebuild.finish())
}

/// Leaves the second norms of the largest sums of two to themselves.
fn part_largest(graph: &Graph, fusions: &mut [Option<Fusion>]) {
    let made = |fusion: &Fusion| fusion.second().map(|(norm, _)| graph.node(norm).outputs[0]);
    let bytes = |fusion: &Fusion| made(fusion).map(|map| graph.value(map).ty.bytes());
    let largest = fusions.iter().flatten().filter_map(bytes).max();
    for fusion in fusions.iter_mut().flatten().filter(|fusion| largest.is_some() && bytes(fusion) == largest) {
        if let (Some(map), Some(sum)) = (made(fusion), &mut fusion.sum) {
            sum.residual = Residual::Map(map);
        }
    }
}

/// What an op becomes by itself: backward of max pooling then reads no map, of which it would look at whole windows again.
fn alone(op: &Op) -> Op {
    match op {
        Op::MaxPool2d(pool) if pool.has_indices() => Op::MaxPool2dIndices(*pool),
        other => other.clone(),
    }
}

/// What a ReLU takes in.
struct Fusion {
    /// The node whose operands it reads.
    first: NodeId,
    attributes: First,
    sum: Option<Sum>,
}

/// The addition before a ReLU, as the norm on its other side sees it.
struct Sum {
    add: NodeId,
    residual: Residual,
}

/// What a norm is added to.
#[derive(Clone, Copy)]
enum Residual {
    Map(ValueId),
    Norm(NodeId, BatchNorm),
}

/// What a ReLU is fused with.
#[derive(Clone, Copy)]
enum First {
    Norm(BatchNorm),
    Convolution(Conv2d),
}

impl Fusion {
    fn push(&self, rebuild: &mut Rebuild<'_>, relu: &Node) -> Result<(), GraphError> {
        let mut inputs = rebuild.inputs(rebuild.old.node(self.first));
        let op = match (self.attributes, self.sum.as_ref().map(|sum| sum.residual)) {
            (First::Norm(a), Some(Residual::Norm(second, b))) => {
                inputs.extend(rebuild.inputs(rebuild.old.node(second)));
                Op::BatchNormPairRelu(BatchNormPair { eps: [a.eps, b.eps] })
            }
            (First::Norm(norm), Some(Residual::Map(residual))) => {
                inputs.push(rebuild.value(residual));
                Op::BatchNormAddRelu(norm)
            }
            (First::Norm(norm), None) => Op::BatchNormRelu(norm),
            (First::Convolution(conv), _) => Op::Conv2dRelu(conv),
        };
        rebuild.push(relu, op, &inputs)
    }

    /// The second norm under a sum.
    fn second(&self) -> Option<(NodeId, BatchNorm)> {
        match self.sum.as_ref()?.residual {
            Residual::Norm(id, norm) => Some((id, norm)),
            Residual::Map(_) => None,
        }
    }
}

/// How often each value is read.
pub(super) struct Readers<'a> {
    graph: &'a Graph,
    count: Vec<u32>,
}

impl<'a> Readers<'a> {
    pub(super) fn of(graph: &'a Graph) -> Self {
        let mut count = vec![0; graph.values().len()];
        for input in graph.nodes().iter().flat_map(|node| &node.inputs) {
            count[input.index()] += 1;
        }
        Readers { graph, count }
    }

    fn fusion(&self, relu: &Node) -> Option<Fusion> {
        if relu.op != Op::Relu {
            return None;
        }
        let x = relu.inputs[0];
        if let Some((first, norm)) = self.norm(x) {
            return Some(Fusion { first, attributes: First::Norm(norm), sum: None });
        }
        let (add, node) = self.only_for_us(x)?;
        if let Op::Conv2d(conv) = node.op {
            return Some(Fusion { first: add, attributes: First::Convolution(conv), sum: None });
        }
        let sides = [(0, 1), (1, 0)].into_iter().filter(|_| node.op == Op::Add);
        let mut fusions = sides.filter_map(|(own, other)| {
            let (first, norm) = self.norm(node.inputs[own])?;
            let other = node.inputs[other];
            let residual = self.norm(other).map_or(Residual::Map(other), |(id, norm)| Residual::Norm(id, norm));
            Some(Fusion { first, attributes: First::Norm(norm), sum: Some(Sum { add, residual }) })
        });
        fusions.next()
    }

    /// The batch norm that makes a value for one reader only, when it may run as late as that.
    fn norm(&self, value: ValueId) -> Option<(NodeId, BatchNorm)> {
        let (id, node) = self.only_for_us(value)?;
        match node.op {
            Op::BatchNorm(attributes) if self.statistics_last(node) => Some((id, attributes)),
            _ => None,
        }
    }

    pub(super) fn only_for_us(&self, value: ValueId) -> Option<(NodeId, &'a Node)> {
        let alone = self.count[value.index()] == 1 && self.graph.value(value).role != Role::Metric;
        let producer = self.graph.value(value).producer.filter(|_| alone)?;
        Some((producer, self.graph.node(producer)))
    }

    /// True when a norm's statistics are what they are until the graph ends.
    pub(super) fn statistics_last(&self, norm: &Node) -> bool {
        norm.inputs[STATISTICS].iter().all(|&id| self.lasts(id))
    }

    /// True unless a running statistic is moved on in this graph: then its reader has to stay before that.
    fn lasts(&self, value: ValueId) -> bool {
        let found = self.graph.value(value);
        found.role != Role::State || (found.producer.is_none() && self.graph.latest(value) == value)
    }
}
