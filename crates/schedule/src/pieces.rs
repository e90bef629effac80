//! Convolutions in pieces of the batch: inside one launch a kernel runs on one piece of the samples after the other, with the
//! workspace of one piece.
//!
//! ```text
//!   winograd        X [256, C, H, W] ────────────────────────► Y          workspace of 256 samples
//!   winograd/4      X[0..64] ─► Y[0..64], … X[192..256] ─► Y[192..256]    of 64, used four times
//!                   weight gradient:  dW = piece 0;  dW += piece 1, 2, 3  in this order
//! ```
//!
//! The algorithm's name carries the number of pieces; this is the one place that joins and splits it. Batch statistics never
//! run in pieces: they are of the whole batch. Left to others: what a piece costs (cost models, devices), and running it.

use crate::Choice;
use crate::profile::{kernel_key_of, types_of};
use vdnn_graph::{Graph, Node, Op};
use vdnn_tensor::{Bytes, TensorType};

/// The numbers of pieces that are offered, where they divide the batch.
pub const PIECES: [u64; 4] = [2, 4, 8, 16];

/// Places in a workspace start at multiples of this.
const ALIGNMENT: Bytes = 256;

/// The name of an algorithm that runs in so many pieces.
pub fn join_pieces(algorithm: &str, pieces: u64) -> String {
    if pieces > 1 { format!("{algorithm}/{pieces}") } else { algorithm.to_string() }
}

/// The algorithm of one piece and the number of pieces; 1 for a name that says nothing of pieces.
pub fn split_pieces(name: &str) -> (&str, u64) {
    let number = |digits: &str| digits.parse().ok().filter(|pieces| *pieces > 1 && !digits.starts_with(['+', '0']));
    let split = name.rsplit_once('/').and_then(|(algorithm, digits)| Some((algorithm, number(digits)?)));
    split.unwrap_or((name, 1))
}

/// The types of the inputs and outputs of one piece. `None` for other ops than convolutions and their gradients, and where
/// the samples do not divide into so many pieces.
pub fn piece_types(
    op: &Op,
    inputs: &[TensorType],
    outputs: &[TensorType],
    pieces: u64,
) -> Option<(Vec<TensorType>, Vec<TensorType>)> {
    let batched = match op {
        Op::Conv2d(_) | Op::Conv2dRelu(_) | Op::Conv2dDataGrad(_) => [0..1, 0..1],
        Op::Conv2dWeightGrad(_) => [0..2, 0..0],
        _ => return None,
    };
    let of = |types: &[TensorType], batched: &std::ops::Range<usize>| {
        let one = |(index, ty): (usize, &TensorType)| {
            if batched.contains(&index) { piece_type(ty, pieces) } else { Some(ty.clone()) }
        };
        types.iter().enumerate().map(one).collect::<Option<Vec<_>>>()
    };
    Some((of(inputs, &batched[0])?, of(outputs, &batched[1])?))
}

fn piece_type(ty: &TensorType, pieces: u64) -> Option<TensorType> {
    let mut dims = ty.shape.dims().to_vec();
    let samples = dims.first_mut()?;
    if pieces == 0 || *samples == 0 || !samples.is_multiple_of(pieces) {
        return None;
    }
    *samples /= pieces;
    Some(ty.with_shape(dims))
}

/// The key under which one piece of a node's kernel is recorded: that of the same node in a batch of fewer samples. `None` as
/// for [`piece_types`].
pub fn piece_key(graph: &Graph, node: &Node, pieces: u64) -> Option<String> {
    let (inputs, _) = piece_types(&node.op, &types_of(graph, &node.inputs), &types_of(graph, &node.outputs), pieces)?;
    Some(kernel_key_of(&node.op, &inputs, graph.precision))
}

/// What one launch of several pieces costs, from the choice of one piece: its workspace, its time for each piece, and between
/// pieces whatever adding them up takes.
pub fn in_pieces(piece: &Choice, pieces: u64, sum: PieceSum) -> Choice {
    let later = pieces.saturating_sub(1) as f64;
    Choice {
        algorithm: join_pieces(&piece.algorithm, pieces),
        workspace: piece.workspace.saturating_add(sum.workspace),
        seconds: piece.seconds * pieces as f64 + sum.seconds * later,
        deterministic: piece.deterministic,
    }
}

/// What adding a later piece to the sum of those before it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PieceSum {
    /// Bytes for the later piece's result, beside the kernel's own workspace.
    pub workspace: Bytes,
    /// Seconds of each later piece.
    pub seconds: f64,
}

/// Bytes in which a device holds a later piece's dW until it is added to the sum, aligned so that more can follow; 0 for ops
/// whose pieces write different samples.
pub fn piece_sum_bytes(op: &Op, outputs: &[TensorType]) -> Bytes {
    match (op, outputs) {
        (Op::Conv2dWeightGrad(_), [dw]) => dw.bytes().next_multiple_of(ALIGNMENT),
        _ => 0,
    }
}

/// Of choices in pieces those that are worth offering beside the whole batch's, fastest first: each with less workspace than
/// everything that is as fast. A choice in pieces is never priced below the fastest of the whole batch, so that this stays
/// what no plan undercuts.
pub fn worthwhile_pieces(whole: &[Choice], mut pieces: Vec<Choice>) -> Vec<Choice> {
    let fastest = whole.iter().map(|choice| choice.seconds).fold(f64::INFINITY, f64::min);
    pieces.iter_mut().for_each(|choice| choice.seconds = choice.seconds.max(fastest));
    pieces.sort_by(|a, b| a.seconds.total_cmp(&b.seconds).then(a.workspace.cmp(&b.workspace)));
    let mut least = Bytes::MAX;
    pieces.retain(|choice| {
        let as_fast = whole.iter().filter(|whole| whole.seconds <= choice.seconds);
        let beside = as_fast.map(|whole| whole.workspace).min().unwrap_or(Bytes::MAX);
        let better = choice.workspace < least.min(beside);
        least = least.min(choice.workspace);
        better
    });
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use vdnn_graph::op::{Conv2d, Conv2dDataGrad, Conv2dWeightGrad};
    use vdnn_tensor::DType;

    fn choice(algorithm: &str, seconds: f64, workspace: Bytes) -> Choice {
        Choice { algorithm: algorithm.to_string(), workspace, seconds, deterministic: true }
    }

    #[test]
    fn names_split_into_what_they_were_joined_from() {
        for (algorithm, pieces) in [("winograd4", 4), ("eng12{k3=1,k7=2}", 16), ("a/b", 2), ("direct", 1)] {
            assert_eq!(split_pieces(&join_pieces(algorithm, pieces)), (algorithm, pieces));
        }
        for whole in ["winograd", "a/b", "a/", "a/1", "a/0", "a/04", "a/+4", "a/-2"] {
            assert_eq!(split_pieces(whole), (whole, 1));
        }
    }

    #[test]
    fn a_piece_has_fewer_samples_and_the_same_weights() {
        let f32s = |dims: [u64; 4]| TensorType::new(dims, DType::F32);
        let (x, w, y) = (f32s([12, 3, 8, 8]), f32s([5, 3, 3, 3]), f32s([12, 5, 6, 6]));
        let (px, py) = (f32s([3, 3, 8, 8]), f32s([3, 5, 6, 6]));
        let conv = Conv2d::default();
        let forward = piece_types(&Op::Conv2d(conv), &[x.clone(), w.clone()], std::slice::from_ref(&y), 4);
        assert_eq!(forward, Some((vec![px.clone(), w.clone()], vec![py.clone()])));
        let data = Op::Conv2dDataGrad(Conv2dDataGrad { conv, input: [8, 8] });
        let found = piece_types(&data, &[y.clone(), w.clone()], std::slice::from_ref(&x), 4);
        assert_eq!(found, Some((vec![py.clone(), w.clone()], vec![px.clone()])));
        let weight = Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [3, 3] });
        let found = piece_types(&weight, &[x.clone(), y.clone()], std::slice::from_ref(&w), 4);
        assert_eq!(found, Some((vec![px, py], vec![w.clone()])));
        assert_eq!(piece_types(&weight, &[x.clone(), y], std::slice::from_ref(&w), 8), None);
        assert_eq!(piece_types(&Op::Relu, std::slice::from_ref(&x), std::slice::from_ref(&x), 4), None);
        // Statistics are of the whole batch.
        let (c, y) = (TensorType::new([5], DType::F32), f32s([12, 5, 6, 6]));
        let (inputs, outputs) = ([x.clone(), w.clone()], [y, c.clone(), c]);
        assert_eq!(piece_types(&Op::Conv2dStats(conv), &inputs, &outputs, 4), None);
        assert_eq!(piece_sum_bytes(&weight, std::slice::from_ref(&w)), 768);
        assert_eq!(piece_sum_bytes(&Op::Conv2d(conv), std::slice::from_ref(&w)), 0);
    }

    #[test]
    fn a_launch_in_pieces_takes_all_its_pieces_and_their_sums() {
        let sum = PieceSum { workspace: 256, seconds: 0.25 };
        assert_eq!(in_pieces(&choice("fast", 1.0, 1000), 4, sum), choice("fast/4", 4.75, 1256));
    }

    #[test]
    fn pieces_are_offered_where_nothing_as_fast_wants_less() {
        let whole = [choice("fast", 2.0, 1000), choice("slow", 9.0, 0)];
        let pieces = vec![
            choice("fast/2", 3.0, 500),
            choice("fast/4", 4.0, 600),
            choice("quick/2", 1.0, 900),
            choice("fast/8", 5.0, 100),
            choice("fast/16", 9.0, 50),
            choice("slow/2", 10.0, 0),
        ];
        let found = worthwhile_pieces(&whole, pieces);
        assert_eq!(found, [choice("quick/2", 2.0, 900), choice("fast/2", 3.0, 500), choice("fast/8", 5.0, 100)]);
        assert_eq!(worthwhile_pieces(&whole, Vec::new()), []);
    }
}
