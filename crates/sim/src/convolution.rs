//! Convolution algorithms of a machine description: which apply, what they borrow, how long they take.
//!
//! One problem, X `[N, C, H, W]` * W `[K, C/G, kh, kw]` → Y `[N, K, oh, ow]`, describes all three directions: gradients
//! have the sizes of what they are the gradient of.

use crate::{Convolution, When, WorkspaceRule};
use vdnn_graph::Op;
use vdnn_graph::op::{Conv2d, Conv2dDataGrad, Conv2dWeightGrad};
use vdnn_schedule::Choice;
use vdnn_tensor::{Bytes, TensorType};

/// What algorithms are chosen by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Problem {
    kernel: [u64; 2],
    stride: [u64; 2],
    dilation: [u64; 2],
    /// Height and width of Y.
    output: [u64; 2],
    /// Bytes of X and Y together.
    maps: Bytes,
    weight_gradient: bool,
}

impl Problem {
    /// The problem of a convolution in any direction; `None` for other ops.
    pub(crate) fn of(op: &Op, inputs: &[TensorType], outputs: &[TensorType]) -> Option<Self> {
        let (first, second, output) = (inputs.first()?, inputs.get(1)?, outputs.first()?);
        match op {
            Op::Conv2d(conv) | Op::Conv2dRelu(conv) | Op::Conv2dStats(conv) => {
                Some(Self::new(conv, spatial(second), first, output, false))
            }
            Op::Conv2dDataGrad(Conv2dDataGrad { conv, .. }) => {
                Some(Self::new(conv, spatial(second), output, first, false))
            }
            Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel }) => {
                Some(Self::new(conv, *kernel, first, second, true))
            }
            _ => None,
        }
    }

    fn new(conv: &Conv2d, kernel: [u64; 2], x: &TensorType, y: &TensorType, weight_gradient: bool) -> Self {
        let maps = x.bytes().saturating_add(y.bytes());
        Problem { kernel, stride: conv.stride, dilation: conv.dilation, output: spatial(y), maps, weight_gradient }
    }
}

/// The algorithms that apply, fastest first; equal times by least workspace, then in the description's order.
///
/// `price` turns an efficiency into seconds.
pub(crate) fn choices(convolution: &Convolution, problem: &Problem, price: impl Fn(f64) -> f64) -> Vec<Choice> {
    let factor = if problem.weight_gradient { convolution.weight_gradient } else { 1.0 };
    let mut choices: Vec<Choice> = convolution
        .algorithms
        .iter()
        .filter(|algorithm| applies(&algorithm.when, problem))
        .map(|algorithm| Choice {
            algorithm: algorithm.name.clone(),
            workspace: workspace(algorithm.workspace, problem),
            seconds: price(algorithm.efficiency * factor),
            deterministic: true,
        })
        .collect();
    choices.sort_by(|a, b| a.seconds.total_cmp(&b.seconds).then(a.workspace.cmp(&b.workspace)));
    choices
}

fn applies(when: &When, problem: &Problem) -> bool {
    let exactly = |asked: Option<[u64; 2]>, found: [u64; 2]| asked.is_none_or(|asked| asked == found);
    let at_least = when.min_kernel.is_none_or(|min| problem.kernel[0] >= min[0] && problem.kernel[1] >= min[1]);
    exactly(when.kernel, problem.kernel)
        && at_least
        && exactly(when.stride, problem.stride)
        && exactly(when.dilation, problem.dilation)
}

fn workspace(rule: WorkspaceRule, problem: &Problem) -> Bytes {
    let product = |pair: [u64; 2]| pair[0].saturating_mul(pair[1]);
    match rule {
        WorkspaceRule::None => 0,
        WorkspaceRule::Index => product(problem.kernel).saturating_mul(product(problem.output)).saturating_mul(4),
        // The cast saturates, so an absurd size stays absurd instead of wrapping.
        WorkspaceRule::Maps(fraction) => (fraction * problem.maps as f64).ceil() as Bytes,
    }
}

/// Height and width of an image or kernel.
fn spatial(ty: &TensorType) -> [u64; 2] {
    [ty.shape.dim(2), ty.shape.dim(3)]
}
