//! Kernels in pieces of the batch: measured as the same convolution with fewer samples, only where that may help.
//!
//! ```text
//!  fastest wants more than `least` ─► 1/2, 1/4, … of the samples, until the fastest of a piece wants no more
//!                                     └─► measured like any convolution, kept under its own key
//! ```

use vdnn_graph::Op;
use vdnn_schedule::{Choice, PIECES, PieceSum, in_pieces, piece_sum_bytes, worthwhile_pieces};
use vdnn_tensor::TensorType;

use super::{Bench, Failure, Gpu, OWN, Pattern, convolution_key};
use crate::device::convolution::{self, Convolution};
use std::time::Instant;

impl Bench {
    /// Choices in pieces beside the `whole` ones of each pattern, for kernels whose fastest wants more than `least` bytes.
    ///
    /// # Errors
    /// What the GPU fails with. Pieces that cannot run are left out.
    pub fn pieces(
        &mut self,
        gpu: &mut Gpu,
        patterns: &[Pattern<'_>],
        whole: &[Vec<Choice>],
        deterministic: bool,
        least: u64,
    ) -> Result<Vec<Vec<Choice>>, Failure> {
        let wanting = |choices: &Vec<Choice>| choices.first().is_some_and(|fastest| fastest.workspace > least);
        let mut left = whole.iter().filter(|choices| wanting(choices)).count();
        let mut all = Vec::with_capacity(whole.len());
        let mut result = Ok(());
        for (pattern, whole) in patterns.iter().zip(whole) {
            if !wanting(whole) || result.is_err() {
                all.push(Vec::new());
                continue;
            }
            let share = 2.0 * (self.options.seconds - self.spent_on_pieces).max(0.0) / left.max(1) as f64;
            left = left.saturating_sub(1);
            let found = self.pieces_of(gpu, pattern, deterministic, least, share);
            all.push(found.map_or_else(
                |failure| {
                    result = Err(failure);
                    Vec::new()
                },
                |pieces| worthwhile_pieces(whole, pieces),
            ));
        }
        self.finish();
        result.map(|()| all)
    }

    fn pieces_of(
        &mut self,
        gpu: &mut Gpu,
        pattern: &Pattern<'_>,
        deterministic: bool,
        least: u64,
        share: f64,
    ) -> Result<Vec<Choice>, Failure> {
        let Some(Ok(found)) = convolution::of(&pattern.site(OWN)) else { return Ok(Vec::new()) };
        // Statistics are of the whole batch.
        if !found.adds_pieces_exactly() || matches!(pattern.node.op, Op::Conv2dStats(_)) {
            return Ok(Vec::new());
        }
        let sum = self.sum(gpu, pattern)?;
        let bias = self.bias(gpu, pattern)?;
        let (started, mut choices) = (Instant::now(), Vec::new());
        for pieces in PIECES {
            let Some(cut) = found.cut(pieces) else { continue };
            // The whole operands' places have room for a piece's.
            let one = Convolution { problem: cut.problem, operands: found.operands };
            let in_time = started.elapsed().as_secs_f64() < share;
            if !in_time && self.measured.find(&convolution_key(&one, deterministic)).is_none() {
                continue;
            }
            let start = Instant::now();
            let of_one = self.convolution(gpu, &one, deterministic, share / PIECES.len() as f64);
            self.spent_on_pieces += start.elapsed().as_secs_f64();
            let of_one = match of_one {
                Ok(of_one) => of_one,
                Err(Failure::Refused(_)) => continue,
                Err(broken) => return Err(broken),
            };
            let enough = of_one.first().is_none_or(|fastest| fastest.workspace <= least);
            choices.extend(of_one.iter().map(|choice| in_pieces(choice, pieces, sum)));
            if enough {
                break;
            }
        }
        choices.iter_mut().for_each(|choice| choice.seconds += bias);
        Ok(choices)
    }

    /// What adding a later piece's dW to the sum takes.
    fn sum(&mut self, gpu: &Gpu, pattern: &Pattern<'_>) -> Result<PieceSum, Failure> {
        let outputs: Vec<TensorType> = pattern.outputs.iter().map(|operand| operand.ty.clone()).collect();
        match piece_sum_bytes(&pattern.node.op, &outputs) {
            0 => Ok(PieceSum::default()),
            workspace => Ok(PieceSum { workspace, seconds: self.estimate(gpu, 3.0 * workspace as f64, 1)? }),
        }
    }
}
