//! Gradients that one pass over memory makes in place of two, in a differentiated graph.
//!
//! ```text
//!   conv2d_relu ─► Y ─► max_pool2d_indices ─► P           dP ─► max_pool2d_indices_grad ─► dY ─► relu_bias_grad ─► dZ, dbias
//!                                                         dP, P ─► max_pool2d_relu_bias_grad ─► dZ, dbias
//! ```
//!
//! A window's gradient goes to its maximum, and through the ReLU if that is above 0, which P knows. So dY is never made, and
//! backward reads Y, four times P's size, no more. The same numbers; sums over them may run in another order.

use super::Rewritten;
use super::rebuild::Rebuild;
use crate::{Graph, GraphError, Node, NodeId, Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Makes the gradients of ReLU and bias from pooled maps where a pool follows.
///
/// # Errors
/// [`GraphError`] when the graph cannot be pushed again: none for a graph that was pushed.
pub fn fuse_gradients(graph: &Graph) -> Result<Rewritten, GraphError> {
    let mut readers = vec![0u32; graph.values().len()];
    graph.nodes().iter().flat_map(|node| &node.inputs).for_each(|input| readers[input.index()] += 1);
    let mut fused: BTreeMap<NodeId, (Op, [ValueId; 3])> = BTreeMap::new();
    let mut spared: BTreeSet<NodeId> = BTreeSet::new();
    for (id, node) in graph.node_ids().zip(graph.nodes()) {
        if let Some((pool, op, inputs)) = through_pool(graph, node)
            && readers[node.inputs[1].index()] == 1
        {
            fused.insert(id, (op, inputs));
            spared.insert(pool);
        }
    }
    let mut rebuild = Rebuild::whole(graph)?;
    for (id, node) in graph.node_ids().zip(graph.nodes()).filter(|(id, _)| !spared.contains(id)) {
        let (op, inputs) = match fused.get(&id) {
            Some((op, inputs)) => (op.clone(), inputs.map(|input| rebuild.value(input)).to_vec()),
            None => (node.op.clone(), rebuild.inputs(node)),
        };
        rebuild.push(node, op, &inputs)?;
    }
    Ok(rebuild.finish())
}

/// For a ReLU's gradient whose dY a pool over the same Y makes: that pool's gradient, and the op and operands in place of both.
fn through_pool(graph: &Graph, node: &Node) -> Option<(NodeId, Op, [ValueId; 3])> {
    let (Op::ReluBiasGrad, &[y, dy]) = (&node.op, &node.inputs[..]) else { return None };
    let gradient = graph.value(dy).producer?;
    let (Op::MaxPool2dIndicesGrad(op), &[indices, dp]) = (&graph.node(gradient).op, &graph.node(gradient).inputs[..])
    else {
        return None;
    };
    let pool = graph.node(graph.value(indices).producer?);
    let is_of_y = pool.op == Op::MaxPool2dIndices(op.pool) && pool.inputs[0] == y;
    is_of_y.then(|| (gradient, Op::MaxPool2dReluBiasGrad(*op), [indices, pool.outputs[0], dp]))
}
