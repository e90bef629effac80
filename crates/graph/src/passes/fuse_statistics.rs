//! Statistics that a convolution makes while it writes its output, in a differentiated graph.
//!
//! ```text
//!   x, w ─► conv2d ─► y ─► batch_norm_stats ─► mean, variance
//!   x, w ─► conv2d_stats ─► y, mean, variance
//! ```
//!
//! Only where y is f16. There a convolution that also sums its output's channels costs some per cent more than the convolution and
//! saves a pass over y; in bf16 it takes two to four times as long as the two after each other (measured on an H200), and f32 has
//! none. An iteration that could not be quicker keeps its nodes, and with them its recorded profiles. The convolution has no bias
//! of its own, which a batch norm after it would take away again.
//!
//! Comes after differentiation, because the rule of batch norm knows its statistics by the node that makes them.

use super::Rewritten;
use super::rebuild::Rebuild;
use crate::{Graph, GraphError, Node, NodeId, Op};
use std::collections::{BTreeMap, BTreeSet};
use vdnn_tensor::DType;

/// Lets convolutions in f16 make the statistics of their outputs.
///
/// # Errors
/// [`GraphError`] when the graph cannot be pushed again: none for a graph that was pushed.
pub fn fuse_statistics(graph: &Graph) -> Result<Rewritten, GraphError> {
    // By the convolution: the first node that takes its output's statistics.
    let mut statistics: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for id in graph.node_ids() {
        if let Some(convolution) = convolution_before(graph, graph.node(id)) {
            statistics.entry(convolution).or_insert(id);
        }
    }
    let merged: BTreeSet<NodeId> = statistics.values().copied().collect();
    let mut rebuild = Rebuild::whole(graph)?;
    for (id, node) in graph.node_ids().zip(graph.nodes()).filter(|(id, _)| !merged.contains(id)) {
        let inputs = rebuild.inputs(node);
        match (&node.op, statistics.get(&id)) {
            (Op::Conv2d(conv), Some(&by)) => {
                let op = Op::Conv2dStats(*conv);
                let made = rebuild.new.push_at(&node.name, op, &inputs, node.phase, node.layer)?;
                rebuild.stand_for(&node.outputs, &made[..1])?;
                rebuild.stand_for(&graph.node(by).outputs, &made[1..])?;
            }
            _ => rebuild.push(node, node.op.clone(), &inputs)?,
        }
    }
    Ok(rebuild.finish())
}

/// The convolution without bias whose f16 output a node takes the statistics of.
fn convolution_before(graph: &Graph, node: &Node) -> Option<NodeId> {
    let (Op::BatchNormStats, &[y]) = (&node.op, &node.inputs[..]) else { return None };
    let value = graph.value(y);
    let producer = value.producer.filter(|_| value.ty.dtype == DType::F16)?;
    let before = graph.node(producer);
    (matches!(before.op, Op::Conv2d(_)) && before.inputs.len() == 2).then_some(producer)
}
