//! What a kernel costs on a machine.
//!
//! ```text
//!   time = launch + max( FLOP / (efficiency · peak of its type),  bytes / (dram_efficiency · dram) )
//!   bytes = inputs read + outputs written
//! ```
//!
//! FLOP counts two per multiply-add of the direct algorithm. Convolutions and matrix products have FLOP; every other op
//! is bound by memory. Operands that lie inside each other (see [`vdnn_graph::Aliases`]) are not moved: a flatten, or a
//! concat whose inputs were written in place, takes no time at all. Tf32 products need a stated rate and are not priced
//! as f32; f64 runs at half the f32 rate unless the machine says otherwise.
//!
//! Deliberately left out: caches, the slowing of kernels by copies that read memory beside them (5 % of it on the
//! paper's card), and the bytes of workspaces.

use crate::{CostError, Machine, convolution};
use vdnn_graph::op::{Axis, Concat, Split};
use vdnn_graph::{Node, NodeId, Op, Precision, Program, ValueId};
use vdnn_schedule::{Choice, KernelTable};
use vdnn_tensor::{Bytes, DType, TensorType};

/// The algorithm's name where there is nothing to choose.
pub const DEFAULT_ALGORITHM: &str = "default";

impl Machine {
    /// Prices every node of a program: all algorithms that apply, fastest first, equal times by least workspace.
    ///
    /// # Errors
    /// [`CostError::NoPeak`] when a product's type has no rate on this machine.
    pub fn kernel_table(&self, program: &Program) -> Result<KernelTable, CostError> {
        let choices: Vec<_> =
            program.graph.node_ids().map(|node| self.choices(program, node)).collect::<Result<_, _>>()?;
        let pieces = program.graph.node_ids().zip(&choices).map(|(node, whole)| self.pieces(program, node, whole));
        let pieces = pieces.collect::<Result<_, _>>()?;
        Ok(KernelTable { choices, pieces })
    }

    /// Prices one node, fastest first.
    ///
    /// # Errors
    /// [`CostError::NoPeak`] when a product's type has no rate on this machine.
    pub fn choices(&self, program: &Program, id: NodeId) -> Result<Vec<Choice>, CostError> {
        let node = program.graph.node(id);
        let bytes = traffic_bytes(program, id);
        if moves_nothing(program, id) {
            return Ok(vec![default_choice(0.0)]);
        }
        let flops = flops(program, id);
        let (inputs, outputs) = types_of(program, node);
        if let Some(shape) = convolution::Problem::of(&node.op, &inputs, &outputs) {
            let peak = self.peak(program, node)?;
            let price = |efficiency: f64| self.seconds(flops / (efficiency * peak), bytes);
            return Ok(convolution::choices(&self.convolution, &shape, price));
        }
        if matches!(node.op, Op::Linear | Op::LinearDataGrad | Op::LinearWeightGrad) {
            let arithmetic = flops / (self.gemm_efficiency * self.peak(program, node)?);
            return Ok(vec![default_choice(self.seconds(arithmetic, bytes))]);
        }
        Ok(vec![default_choice(self.seconds(0.0, bytes))])
    }

    /// Launch, then arithmetic and memory side by side.
    pub(crate) fn seconds(&self, arithmetic: f64, bytes: Bytes) -> f64 {
        self.launch_us * 1e-6 + arithmetic.max(bytes as f64 / (self.dram_efficiency * self.dram))
    }

    /// Arithmetic rate of a product, by the type of its first operand.
    pub(crate) fn peak(&self, program: &Program, node: &Node) -> Result<f64, CostError> {
        let dtype = program.graph.value(node.inputs[0]).ty.dtype;
        let rates = &self.peak_flops;
        let (arithmetic, rate) = match (dtype, program.graph.precision) {
            (DType::F64, _) => ("f64", rates.f64.or(rates.f32.map(|rate| rate / 2.0))),
            (DType::F32, Precision::F32) => ("f32", rates.f32),
            (DType::F32, Precision::Tf32) => ("tf32", rates.tf32),
            (DType::F16, _) => ("f16", rates.f16),
            (DType::BF16, _) => ("bf16", rates.bf16),
            (DType::I32 | DType::U64 | DType::U8, _) => (dtype.name(), None),
        };
        rate.ok_or_else(|| CostError::NoPeak {
            machine: self.name.clone(),
            arithmetic: arithmetic.to_string(),
            node: node.name.clone(),
        })
    }
}

/// FLOP of the direct algorithm: two per multiply-add; 0 for ops bound by memory.
pub fn flops(program: &Program, id: NodeId) -> f64 {
    let node = program.graph.node(id);
    let (inputs, outputs) = types_of(program, node);
    flops_of(&node.op, &inputs, &outputs)
}

/// [`flops`] from the operand types alone.
pub(crate) fn flops_of(op: &Op, inputs: &[TensorType], outputs: &[TensorType]) -> f64 {
    2.0 * op.multiply_adds(&inputs.iter().collect::<Vec<_>>(), &outputs.iter().collect::<Vec<_>>())
}

/// The types of a node's inputs and outputs.
pub(crate) fn types_of(program: &Program, node: &Node) -> (Vec<TensorType>, Vec<TensorType>) {
    let of = |ids: &[ValueId]| ids.iter().map(|&id| program.graph.value(id).ty.clone()).collect();
    (of(&node.inputs), of(&node.outputs))
}

/// Bytes a node reads and writes in device memory, workspace not counted. Parts that already lie in place count nothing.
pub fn traffic_bytes(program: &Program, id: NodeId) -> Bytes {
    let node = program.graph.node(id);
    match node.op {
        Op::Concat(Concat { axis }) => 2 * displaced(program, node.outputs[0], &node.inputs, axis),
        Op::Split(Split { axis, .. }) => 2 * displaced(program, node.inputs[0], &node.outputs, axis),
        Op::Flatten | Op::Unflatten(_) => 2 * displaced(program, node.inputs[0], &node.outputs, Axis::Channels),
        _ => {
            let operands = node.inputs.iter().chain(&node.outputs);
            operands.map(|&id| program.graph.value(id).ty.bytes()).fold(0, Bytes::saturating_add)
        }
    }
}

/// True for a node whose results lie in place before it runs: it takes no time and needs no launch.
pub fn moves_nothing(program: &Program, id: NodeId) -> bool {
    let op = &program.graph.node(id).op;
    matches!(op, Op::Concat(_) | Op::Split(_) | Op::Flatten | Op::Unflatten(_)) && traffic_bytes(program, id) == 0
}

/// Bytes of the parts that do not lie one after the other in `whole`.
fn displaced(program: &Program, whole: ValueId, parts: &[ValueId], axis: Axis) -> Bytes {
    let root = program.aliases.root(whole);
    let mut bytes: Bytes = 0;
    for (&part, offset) in parts.iter().zip(program.part_offsets(whole, parts, axis)) {
        let found = program.aliases.location(part);
        if (found.root, found.offset) != (root, offset) {
            bytes = bytes.saturating_add(program.graph.value(part).ty.bytes());
        }
    }
    bytes
}

pub(crate) fn default_choice(seconds: f64) -> Choice {
    Choice { algorithm: DEFAULT_ALGORITHM.to_string(), workspace: 0, seconds, deterministic: true }
}
