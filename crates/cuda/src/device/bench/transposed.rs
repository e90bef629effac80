//! Weight gradients by plans for the other order: the plan's time as it is measured for maps that lie so, and that of the casts.

use vdnn_graph::{Node, Precision};
use vdnn_schedule::{Choice, kernel_key_of};

use super::{Bench, Failure, Gpu, Pattern, Site};
use crate::device::convolution::{self, Convolution};
use crate::device::transposed::{Transposed, cast_into, join_transposed};
use crate::kernels::Operand;

impl Bench {
    /// Such choices of a convolution, if there are any.
    pub(super) fn transposed(
        &mut self,
        gpu: &mut Gpu,
        pattern: &Pattern<'_>,
        site: &Site<'_>,
        deterministic: bool,
        share: f64,
    ) -> Result<Vec<Choice>, Failure> {
        let Some(Ok(found)) = convolution::of(site) else { return Ok(Vec::new()) };
        let Some(turned) = Transposed::of(&found).filter(|_| !found.is_empty()) else { return Ok(Vec::new()) };
        match self.turned(gpu, pattern, &found, &turned, deterministic, share) {
            Err(Failure::Refused(_)) => Ok(Vec::new()),
            found => found,
        }
    }

    fn turned(
        &mut self,
        gpu: &mut Gpu,
        pattern: &Pattern<'_>,
        found: &Convolution<'_>,
        turned: &Transposed,
        deterministic: bool,
        share: f64,
    ) -> Result<Vec<Choice>, Failure> {
        let operands = turned.operands(0);
        let choices =
            self.convolution(gpu, &Convolution { problem: turned.problem, operands }, deterministic, share)?;
        let ([x, dw, dy], [from_x, into_dw, from_dy]) = (operands, found.operands);
        let mut casts = 0.0;
        for (from, to) in [(from_x, x), (from_dy, dy), (dw, into_dw)] {
            casts += self.cast(gpu, pattern, from, to)?;
        }
        let with_casts = |choice: Choice| Choice {
            algorithm: join_transposed(&choice.algorithm),
            workspace: choice.workspace + turned.bytes,
            seconds: choice.seconds + casts,
            ..choice
        };
        Ok(choices.into_iter().map(with_casts).collect())
    }

    /// Seconds of a cast between two operands.
    fn cast(
        &mut self,
        gpu: &mut Gpu,
        pattern: &Pattern<'_>,
        from: Operand<'_>,
        to: Operand<'_>,
    ) -> Result<f64, Failure> {
        let node = Node { op: cast_into(to.ty), ..pattern.node.clone() };
        let key = kernel_key_of(&node.op, std::slice::from_ref(from.ty), Precision::F32);
        let cast = Pattern { node: &node, key, inputs: vec![from], outputs: vec![to], precision: pattern.precision };
        Ok(self.own(gpu, &cast)?.first().map_or(0.0, |choice| choice.seconds))
    }
}
