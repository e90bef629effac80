//! What a convolution costs in pieces of the batch: the same kernel for fewer samples, so many times.
//!
//! ```text
//!   time = pieces · time of one + (pieces − 1) · add        workspace = workspace of one + dW       (weight gradient only:
//!   add  = launch + 3 · dW / memory rate                                                             dW = dW + this piece's)
//! ```
//! Launches and reads of W count for each piece, since each piece's price is that of a whole launch.

use crate::cost::{flops_of, types_of};
use crate::{CostError, Machine, ProfileCost, convolution};
use vdnn_graph::{NodeId, Program};
use vdnn_schedule::{Choice, PIECES, PieceSum, in_pieces, piece_key, piece_sum_bytes, piece_types, worthwhile_pieces};
use vdnn_tensor::{Bytes, TensorType};

/// Bytes a second at which pieces are added up where nothing says the memory's rate: less than current cards reach.
const UNKNOWN_RATE: f64 = 1e12;
/// Seconds to launch a kernel, likewise.
const LAUNCH: f64 = 5e-6;

impl Machine {
    /// A node's choices in pieces that are worth offering beside those of the whole batch.
    ///
    /// # Errors
    /// As [`Machine::choices`].
    pub fn pieces(&self, program: &Program, id: NodeId, whole: &[Choice]) -> Result<Vec<Choice>, CostError> {
        if !gains(whole) {
            return Ok(Vec::new());
        }
        let node = program.graph.node(id);
        let (inputs, outputs) = types_of(program, node);
        let add = |bytes: Bytes| self.seconds(0.0, 3 * bytes);
        let mut found = Vec::new();
        for pieces in PIECES {
            let Some((inputs, outputs)) = piece_types(&node.op, &inputs, &outputs, pieces) else { continue };
            let Some(shape) = convolution::Problem::of(&node.op, &inputs, &outputs) else { continue };
            let bytes = inputs.iter().chain(&outputs).map(TensorType::bytes).fold(0, Bytes::saturating_add);
            let (flops, peak) = (flops_of(&node.op, &inputs, &outputs), self.peak(program, node)?);
            let price = |efficiency: f64| self.seconds(flops / (efficiency * peak), bytes);
            let one = convolution::choices(&self.convolution, &shape, price);
            let sum = sum(piece_sum_bytes(&node.op, &outputs), add);
            found.extend(one.iter().map(|choice| in_pieces(choice, pieces, sum)));
        }
        Ok(worthwhile_pieces(whole, found))
    }
}

impl ProfileCost {
    /// A node's choices in pieces, from the kernels that were recorded for so few samples.
    pub(crate) fn pieces(&self, program: &Program, id: NodeId, whole: &[Choice]) -> Vec<Choice> {
        if !gains(whole) {
            return Vec::new();
        }
        let graph = &program.graph;
        let node = graph.node(id);
        let sum = sum(piece_sum_bytes(&node.op, &types_of(program, node).1), |bytes| self.add_seconds(bytes));
        let mut found = Vec::new();
        for pieces in PIECES {
            let recorded = piece_key(graph, node, pieces).and_then(|key| self.recorded(&key));
            let deterministic = whole.iter().all(|choice| choice.deterministic);
            let like_whole = recorded.into_iter().flatten().filter(|one| one.deterministic || !deterministic);
            found.extend(like_whole.map(|one| in_pieces(one, pieces, sum)));
        }
        worthwhile_pieces(whole, found)
    }

    fn add_seconds(&self, bytes: Bytes) -> f64 {
        match self.fallback() {
            Some(machine) => machine.seconds(0.0, 3 * bytes),
            None => LAUNCH + 3.0 * bytes as f64 / UNKNOWN_RATE,
        }
    }
}

/// Whether less workspace than the fastest takes could be of use.
fn gains(whole: &[Choice]) -> bool {
    whole.first().is_some_and(|fastest| fastest.workspace > 0)
}

fn sum(bytes: Bytes, add: impl Fn(Bytes) -> f64) -> PieceSum {
    if bytes == 0 { PieceSum::default() } else { PieceSum { workspace: bytes, seconds: add(bytes) } }
}
