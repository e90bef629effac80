//! What an op does besides its convolution or product: by a kernel after it, whose time is added to that of each plan, or taken in by
//! plans of their own, which are measured beside those.
//!
//! ```text
//!  conv2d_relu    eng…, bias and ReLU              bias_relu_eng…, before it the bias made narrow, if it must be
//!  conv2d_stats   eng…, statistics of Y            stats_eng…, after it statistics from the sums
//! ```

use vdnn_graph::{Node, Op, Precision};
use vdnn_schedule::{Choice, kernel_key_of};

use super::{Bench, EMPTY, Failure, Gpu, Pattern, Site};
use crate::cudnn::ConvolutionProblem;
use crate::device::convolution::{self, epilogue_places, join_epilogue};

impl Bench {
    /// Seconds of adding the bias, once for the whole batch.
    pub(super) fn bias(&mut self, gpu: &Gpu, pattern: &Pattern<'_>) -> Result<f64, Failure> {
        match (&pattern.node.op, pattern.inputs.get(2)) {
            (Op::Conv2d(_) | Op::Linear, Some(_)) | (Op::Conv2dRelu(_), _) => {
                self.estimate(gpu, 2.0 * pattern.outputs[0].ty.bytes() as f64, 1)
            }
            _ => Ok(0.0),
        }
    }

    /// Lets each plan be followed by the kernel that takes statistics where no convolution does, if the op makes them. Both use
    /// one workspace.
    pub(super) fn add_statistics(
        &mut self,
        gpu: &mut Gpu,
        pattern: &Pattern<'_>,
        choices: &mut [Choice],
    ) -> Result<(), Failure> {
        let Some(node) = statistics_of(pattern) else { return Ok(()) };
        let (y, statistics) = pattern.outputs.split_at(1);
        let key = kernel_key_of(&node.op, &[y[0].ty.clone()], Precision::F32);
        let (inputs, outputs) = (y.to_vec(), statistics.to_vec());
        let own = self.own(gpu, &Pattern { node: &node, key, inputs, outputs, precision: pattern.precision })?;
        let after = choices.iter_mut().filter(|choice| choice.algorithm != EMPTY);
        for (choice, own) in after.flat_map(|choice| Some((choice, own.first()?))) {
            choice.workspace = choice.workspace.max(own.workspace);
            choice.seconds += own.seconds;
        }
        Ok(())
    }

    /// Plans that take in what the op does besides the convolution, if there are any.
    pub(super) fn taking_in(
        &mut self,
        gpu: &mut Gpu,
        site: &Site<'_>,
        deterministic: bool,
        share: f64,
    ) -> Result<Vec<Choice>, Failure> {
        let Some(Ok(found)) = convolution::of(site) else { return Ok(Vec::new()) };
        let Some(found) = found.taking_in(site).filter(|found| !found.is_empty()) else { return Ok(Vec::new()) };
        match self.convolution(gpu, &found, deterministic, share) {
            Ok(choices) => {
                let launch = self.launch_seconds();
                Ok(choices.into_iter().map(|choice| with_epilogue(choice, &found.problem, launch)).collect())
            }
            Err(Failure::Refused(_)) => Ok(Vec::new()),
            Err(broken) => Err(broken),
        }
    }
}

/// The choice of a plan with an epilogue: with the bytes that it reads or writes in its workspace besides, and the small launch
/// before or after it that makes or reads them.
pub(super) fn with_epilogue(choice: Choice, problem: &ConvolutionProblem, launch: f64) -> Choice {
    let algorithm = join_epilogue(problem.epilogue, &choice.algorithm);
    let (_, bytes) = epilogue_places(problem);
    let seconds = choice.seconds + if bytes > 0 { launch } else { 0.0 };
    Choice { algorithm, workspace: choice.workspace + bytes, seconds, ..choice }
}

/// For a convolution that makes statistics, the node that would take them of its output.
pub(super) fn statistics_of(pattern: &Pattern<'_>) -> Option<Node> {
    matches!(pattern.node.op, Op::Conv2dStats(_)).then(|| Node { op: Op::BatchNormStats, ..pattern.node.clone() })
}
