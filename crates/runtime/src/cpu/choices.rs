//! The algorithms the CPU offers for a node, with workspace and estimated time.
//!
//! The estimate is a simple model, good enough to rank and to plan by until something measures: the larger of
//! multiply-adds over an arithmetic rate and bytes over a memory rate, plus a constant. The constants are those of two
//! cores of a current server; a profile replaces them.

use super::by_way_of_f32::Plan;
use super::launch::supported;
use super::{batch_norm_pair_relu, conv2d, conv2d_stats, group, linear, local_response_norm};
use crate::DeviceError;
use vdnn_graph::{Graph, Node, Op};
use vdnn_schedule::{Choice, PIECES, PieceSum, in_pieces, piece_types};
use vdnn_tensor::{Bytes, TensorType};

/// The name of the algorithm of ops that have only one.
pub const LOOP: &str = "loop";

/// FLOP a second of a matrix product, both cores.
const PRODUCT_RATE: f64 = 180e9;
/// Bytes a second of a pass over memory.
const MEMORY_RATE: f64 = 15e9;
/// Seconds to start a kernel.
const START: f64 = 5e-6;

/// One algorithm before its time is estimated.
pub(super) struct Algorithm {
    pub name: &'static str,
    pub workspace: Bytes,
    /// Multiply-adds relative to the direct algorithm's (Winograd's are fewer).
    pub work: f64,
    /// Share of the product rate reached.
    pub efficiency: f64,
    /// Passes over the operands' bytes.
    pub passes: f64,
    /// Bytes moved besides, whatever the batch.
    pub extra_bytes: f64,
}

impl Algorithm {
    /// One pass, at the full rate, without workspace.
    pub fn plain(name: &'static str) -> Self {
        Algorithm { name, workspace: 0, work: 1.0, efficiency: 1.0, passes: 1.0, extra_bytes: 0.0 }
    }
}

/// Every algorithm of a node, fastest first by the estimate; all are deterministic.
///
/// # Errors
/// [`DeviceError::Unsupported`] for dtypes and layouts that no kernel takes.
pub fn choices(graph: &Graph, node: &Node) -> Result<Vec<Choice>, DeviceError> {
    let types = |ids: &[vdnn_graph::ValueId]| ids.iter().map(|&id| graph.value(id).ty.clone()).collect::<Vec<_>>();
    choices_of(&node.op, &types(&node.inputs), &types(&node.outputs))
}

/// [`choices`] from the operand types alone.
///
/// # Errors
/// As [`choices`].
pub fn choices_of(op: &Op, inputs: &[TensorType], outputs: &[TensorType]) -> Result<Vec<Choice>, DeviceError> {
    if let Op::Group(op) = op {
        return group::choices(op, inputs, outputs);
    }
    if let Op::Conv2dStats(op) = op {
        return conv2d_stats::choices(op, inputs, outputs);
    }
    if batch_norm_pair_relu::is_pair(op) {
        return batch_norm_pair_relu::choices(op, inputs, outputs);
    }
    if let Some(plan) = Plan::of(op, inputs, outputs) {
        let choices = choices_of(op, &plan.input_types, &plan.output_types)?;
        return Ok(choices.into_iter().map(|choice| through(&plan, choice)).collect());
    }
    supported(op, inputs, outputs)?;
    let algorithms = match op {
        Op::Conv2d(_) | Op::Conv2dRelu(_) | Op::Conv2dDataGrad(_) | Op::Conv2dWeightGrad(_) => {
            conv2d::algorithms(op, inputs, outputs)
        }
        Op::Linear | Op::LinearDataGrad | Op::LinearWeightGrad => linear::algorithms(),
        Op::LocalResponseNormGrad(_) => local_response_norm::algorithms(outputs),
        _ => vec![Algorithm::plain(LOOP)],
    };
    let (ins, outs): (Vec<&TensorType>, Vec<&TensorType>) = (inputs.iter().collect(), outputs.iter().collect());
    let flop = 2.0 * op.multiply_adds(&ins, &outs);
    let operand_bytes: f64 = inputs.iter().chain(outputs).map(|ty| ty.bytes() as f64).sum();
    let mut choices: Vec<Choice> = algorithms.iter().map(|a| estimate(a, flop, operand_bytes)).collect();
    choices.sort_by(|a, b| a.seconds.total_cmp(&b.seconds).then(a.workspace.cmp(&b.workspace)));
    Ok(choices)
}

/// Every way to run a node in pieces of the batch, of all algorithms with workspace; empty for ops that have none.
///
/// # Errors
/// As [`choices`].
pub fn pieces(graph: &Graph, node: &Node) -> Result<Vec<Choice>, DeviceError> {
    let types = |ids: &[vdnn_graph::ValueId]| ids.iter().map(|&id| graph.value(id).ty.clone()).collect::<Vec<_>>();
    pieces_of(&node.op, &types(&node.inputs), &types(&node.outputs))
}

/// [`pieces`] from the operand types alone.
///
/// # Errors
/// As [`choices`].
pub fn pieces_of(op: &Op, inputs: &[TensorType], outputs: &[TensorType]) -> Result<Vec<Choice>, DeviceError> {
    if let Some(plan) = Plan::of(op, inputs, outputs) {
        // The copies are of the whole batch; only the kernel between them runs in pieces.
        let pieces = pieces_of(op, &plan.input_types, &plan.output_types)?;
        return Ok(pieces.into_iter().map(|choice| through(&plan, choice)).collect());
    }
    let mut found = Vec::new();
    for pieces in PIECES {
        let Some((inputs, outputs)) = piece_types(op, inputs, outputs, pieces) else { continue };
        // The sum of a weight gradient is read again by each later piece; its writes count with the pieces.
        let read_again = if matches!(op, Op::Conv2dWeightGrad(_)) { outputs[0].bytes() } else { 0 };
        let sum = PieceSum { workspace: 0, seconds: read_again as f64 / MEMORY_RATE };
        let of_one = choices_of(op, &inputs, &outputs)?;
        let with_workspace = of_one.iter().filter(|choice| choice.workspace > 0);
        found.extend(with_workspace.map(|choice| in_pieces(choice, pieces, sum)));
    }
    Ok(found)
}

/// A kernel's choice with the copies before and after it.
fn through(plan: &Plan, kernel: Choice) -> Choice {
    Choice {
        workspace: kernel.workspace.saturating_add(plan.scratch),
        seconds: kernel.seconds + plan.converted() / MEMORY_RATE,
        ..kernel
    }
}

fn estimate(algorithm: &Algorithm, flop: f64, operand_bytes: f64) -> Choice {
    let arithmetic = flop * algorithm.work / (PRODUCT_RATE * algorithm.efficiency);
    let seconds =
        START + arithmetic.max(operand_bytes * algorithm.passes / MEMORY_RATE) + algorithm.extra_bytes / MEMORY_RATE;
    Choice { algorithm: algorithm.name.to_string(), workspace: algorithm.workspace, seconds, deterministic: true }
}
