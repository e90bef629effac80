//! Max pooling with the batch norm and the ReLU before it, in one op.
//!
//! ```text
//!   x ─ batch_norm_relu ─ max_pool2d_indices ─► y, places         x ─ batch_norm_relu_max_pool2d ─► y, places
//! ```
//!
//! Comes after `fuse`, and only where maps are then stored in half precision, which has kernels for it. Only where nobody else
//! reads the map between, of which neither the values nor the gradient are made any more. The op has the pool's name and layer.

use super::Rewritten;
use super::fuse::Readers;
use super::rebuild::Rebuild;
use crate::op::BatchNormReluMaxPool2d;
use crate::{Graph, GraphError, Node, NodeId, Op};

const PASS: &str = "fuse_pools";

/// Lets pools take in the fused batch norms that they alone read.
///
/// # Errors
/// [`GraphError::Pass`] for a graph that has been differentiated.
pub fn fuse_pools(graph: &Graph) -> Result<Rewritten, GraphError> {
    let mut rebuild = Rebuild::new(PASS, graph)?;
    let readers = Readers::of(graph);
    let norms: Vec<Option<(NodeId, Op)>> = graph.nodes().iter().map(|node| norm_before(&readers, node)).collect();
    let absorbed: Vec<NodeId> = norms.iter().flatten().map(|(norm, _)| *norm).collect();
    for ((id, node), norm) in graph.node_ids().zip(graph.nodes()).zip(&norms) {
        match norm {
            _ if absorbed.contains(&id) => {}
            Some((norm, op)) => {
                let inputs = rebuild.inputs(graph.node(*norm));
                rebuild.push(node, op.clone(), &inputs)?;
            }
            None => rebuild.push(node, node.op.clone(), &rebuild.inputs(node))?,
        }
    }
    Ok(rebuild.finish())
}

/// The norm that a pool takes in, and what the two become.
fn norm_before(readers: &Readers<'_>, node: &Node) -> Option<(NodeId, Op)> {
    let Op::MaxPool2dIndices(pool) = node.op else { return None };
    let (id, before) = readers.only_for_us(node.inputs[0])?;
    let Op::BatchNormRelu(norm) = before.op else { return None };
    let fits = BatchNormReluMaxPool2d::takes(&pool) && readers.statistics_last(before);
    fits.then_some((id, Op::BatchNormReluMaxPool2d(BatchNormReluMaxPool2d { norm, pool })))
}
