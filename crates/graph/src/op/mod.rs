//! The ops. One file an op: attributes, shape rule, cost, and the op's gradient ops beside it.
//!
//! Backward ops are ops like any other; `autograd` decides when to push them. An op is pure unless [`Op::updates`]
//! says otherwise.

mod accuracy;
mod adam;
mod adaptive_avg_pool2d;
mod add;
mod avg_pool2d;
mod batch_norm;
mod batch_norm_add_relu;
mod batch_norm_pair_relu;
mod batch_norm_relu;
mod batch_norm_relu_max_pool2d;
mod bias;
mod cast;
mod concat;
mod conv2d;
mod conv2d_relu;
mod conv2d_stats;
mod dropout;
mod flatten;
mod group;
mod linear;
mod local_response_norm;
mod loss_scale_update;
mod max_pool2d;
mod normalise;
mod relu;
mod sgd;
mod softmax_cross_entropy;
mod unfold;
mod unscale;
mod window;

pub use adam::Adam;
pub use adaptive_avg_pool2d::{AdaptiveAvgPool2d, AdaptiveAvgPool2dGrad};
pub use avg_pool2d::{AvgPool2d, AvgPool2dGrad};
pub use batch_norm::{BatchNorm, BatchNormUpdate};
pub use batch_norm_pair_relu::BatchNormPair;
pub use batch_norm_relu_max_pool2d::BatchNormReluMaxPool2d;
pub use cast::Cast;
pub use concat::{Axis, Concat, Split};
pub use conv2d::{Conv2d, Conv2dDataGrad, Conv2dWeightGrad};
pub use dropout::Dropout;
pub use flatten::Unflatten;
pub use group::Group;
pub use local_response_norm::LocalResponseNorm;
pub use loss_scale_update::LossScaleUpdate;
pub use max_pool2d::{MaxPool2d, MaxPool2dIndicesGrad, NO_PLACE};
pub use normalise::Normalise;
pub use relu::mask_type;
pub use sgd::Sgd;
pub use softmax_cross_entropy::SoftmaxCrossEntropy;
pub use unfold::{Unfold, UnfoldGrad};
pub use unscale::{MOST_UNSCALED, Unscale};
pub use window::{Window, output_size};

use crate::{Phase, Role};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use vdnn_tensor::TensorType;

/// What a node computes. Operands are listed as (inputs) → outputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// (X, W, bias?) → Y. Cross-correlation.
    Conv2d(Conv2d),
    /// (X, W, bias?) → Y = max(X ∗ W + bias, 0).
    Conv2dRelu(Conv2d),
    /// (X, W) → Y, mean, biased variance: [`Op::Conv2d`] and [`Op::BatchNormStats`] of its Y.
    Conv2dStats(Conv2d),
    /// (Y, dY) → dZ, dbias: dY where Y > 0, and its sum over everything but dimension 1.
    ReluBiasGrad,
    /// (dY, W) → dX.
    Conv2dDataGrad(Conv2dDataGrad),
    /// (X, dY) → dW.
    Conv2dWeightGrad(Conv2dWeightGrad),
    /// (dY) → dbias: the sum over everything but dimension 1.
    BiasGrad,
    /// (X) → mean, biased variance, each `[C]`.
    BatchNormStats,
    /// (X, mean, variance, gamma, beta) → Y.
    BatchNorm(BatchNorm),
    /// (mean, variance, running mean, running variance) → the updated running statistics. An effect.
    BatchNormUpdate(BatchNormUpdate),
    /// (X, dY, mean, variance, gamma) → dX, dgamma, dbeta, where mean and variance are those of X's batch.
    BatchNormGrad(BatchNorm),
    /// (X, mean, variance, gamma, beta) → Y = max(normalised X, 0).
    BatchNormRelu(BatchNorm),
    /// (X, dY, mean, variance, gamma, beta) → dX, dgamma, dbeta of [`Op::BatchNormRelu`], mean and variance those of X's batch.
    BatchNormReluGrad(BatchNorm),
    /// (X, mean, variance, gamma, beta, R) → Y = max(normalised X + R, 0), mask as of [`Op::ReluMask`].
    BatchNormAddRelu(BatchNorm),
    /// (X, dY, mask, mean, variance, gamma, dY'?) → dX, dgamma, dbeta, dR of [`Op::BatchNormAddRelu`], for the gradient dY or
    /// dY + dY'.
    BatchNormAddReluGrad(BatchNorm),
    /// (A, mean, variance, gamma, beta, B, mean, variance, gamma, beta) → Y = max(normalised A + normalised B, 0), mask as of
    /// [`Op::ReluMask`].
    BatchNormPairRelu(BatchNormPair),
    /// (A, dY, mask, mean, variance, gamma, B, mean, variance, gamma, dY'?) → dA, dgamma, dbeta, dB, dgamma, dbeta of
    /// [`Op::BatchNormPairRelu`], for the gradient dY or dY + dY'.
    BatchNormPairReluGrad(BatchNormPair),
    /// (X, mean, variance, gamma, beta) → Y, indices: the pool of [`Op::BatchNormRelu`]'s result, which is not made.
    BatchNormReluMaxPool2d(BatchNormReluMaxPool2d),
    /// (X, indices, dY, mean, variance, gamma, beta) → dX, dgamma, dbeta of [`Op::BatchNormReluMaxPool2d`].
    BatchNormReluMaxPool2dGrad(BatchNormReluMaxPool2d),
    /// (X) → the same in another dtype, order or padding.
    Cast(Cast),
    /// (X) → Y, whose channels are what windows of X see.
    Unfold(Unfold),
    /// (dY) → dX.
    UnfoldGrad(UnfoldGrad),
    /// (image of bytes) → its numbers.
    Normalise(Normalise),
    /// (X) → Y = max(X, 0).
    Relu,
    /// (Y, dY) → dX.
    ReluGrad,
    /// (X) → Y, mask `[N, ⌈elements of a sample / 8⌉]`: one bit an element, set where the gradient goes through.
    ReluMask,
    /// (mask, dY) → dX. The bits of [`Op::ReluGrad`].
    ReluMaskGrad,
    /// (X) → Y.
    MaxPool2d(MaxPool2d),
    /// (X, Y, dY) → dX. The first maximum of a window gets its gradient.
    MaxPool2dGrad(MaxPool2d),
    /// (X) → Y, indices: each window's first maximum, its place in the window in a byte.
    MaxPool2dIndices(MaxPool2d),
    /// (indices, dY) → dX. The bits of [`Op::MaxPool2dGrad`].
    MaxPool2dIndicesGrad(MaxPool2dIndicesGrad),
    /// (indices, Y, dY) → dZ, dbias of a pool over [`Op::Conv2dRelu`]: the gradient of [`Op::MaxPool2dIndicesGrad`] where Y > 0, and
    /// its sum over everything but dimension 1.
    MaxPool2dReluBiasGrad(MaxPool2dIndicesGrad),
    /// (X) → Y.
    AvgPool2d(AvgPool2d),
    /// (dY) → dX.
    AvgPool2dGrad(AvgPool2dGrad),
    /// (X) → Y.
    AdaptiveAvgPool2d(AdaptiveAvgPool2d),
    /// (dY) → dX.
    AdaptiveAvgPool2dGrad(AdaptiveAvgPool2dGrad),
    /// (X) → Y, across channels.
    LocalResponseNorm(LocalResponseNorm),
    /// (X, dY) → dX.
    LocalResponseNormGrad(LocalResponseNorm),
    /// (X `[N, in]`, W `[out, in]`, bias?) → Y `[N, out]`.
    Linear,
    /// (dY, W) → dX.
    LinearDataGrad,
    /// (X, dY) → dW.
    LinearWeightGrad,
    /// (A, B) → A + B.
    Add,
    /// (A, B, …) → their channels or samples one after the other.
    Concat(Concat),
    /// (Y) → its channels or samples cut into parts; the backward of concat.
    Split(Split),
    /// (X `[N, …]`) → `[N, features]`. A view.
    Flatten,
    /// (X `[N, features]`) → `[N, …]`. A view; the backward of flatten.
    Unflatten(Unflatten),
    /// (X, iteration) → Y = X · mask / (1 − p), the mask a function of (seed, stream, iteration).
    Dropout(Dropout),
    /// (dY, iteration) → dX, with the same mask.
    DropoutGrad(Dropout),
    /// (logits `[N, K]`, labels `[N]`) → mean loss `[1]`.
    SoftmaxCrossEntropy(SoftmaxCrossEntropy),
    /// (logits, labels, scale?) → dlogits of the mean loss, times the scale.
    SoftmaxCrossEntropyGrad(SoftmaxCrossEntropy),
    /// (logits `[N, K]`, labels `[N]`) → number of rows whose largest logit is the label's, `[1]`.
    Accuracy,
    /// (scale, guard, dW, dW, …) → guard', each dW / scale; the guard is no number when any dW has what is not finite.
    Unscale(Unscale),
    /// (scale, good steps, skipped steps, guard, iteration) → the first three moved on, steps taken. An effect.
    LossScaleUpdate(LossScaleUpdate),
    /// (W, dW, momentum?, learning rate, iteration, guard?) → W', momentum'. An effect.
    Sgd(Sgd),
    /// (W, dW, M, V, learning rate, iteration, guard?) → W', M', V'. An effect.
    Adam(Adam),
    /// (inputs of each member, one after the other) → outputs of each member, likewise.
    Group(Group),
}

type Inferred = Result<Vec<TensorType>, String>;

impl Op {
    /// The op's name, as in the text form and in profiles.
    pub fn kind(&self) -> &'static str {
        match self {
            Op::Conv2d(_) => "conv2d",
            Op::Conv2dRelu(_) => "conv2d_relu",
            Op::Conv2dStats(_) => "conv2d_stats",
            Op::ReluBiasGrad => "relu_bias_grad",
            Op::Conv2dDataGrad(_) => "conv2d_data_grad",
            Op::Conv2dWeightGrad(_) => "conv2d_weight_grad",
            Op::BiasGrad => "bias_grad",
            Op::BatchNormStats => "batch_norm_stats",
            Op::BatchNorm(_) => "batch_norm",
            Op::BatchNormUpdate(_) => "batch_norm_update",
            Op::BatchNormGrad(_) => "batch_norm_grad",
            Op::BatchNormRelu(_) => "batch_norm_relu",
            Op::BatchNormReluGrad(_) => "batch_norm_relu_grad",
            Op::BatchNormAddRelu(_) => "batch_norm_add_relu",
            Op::BatchNormAddReluGrad(_) => "batch_norm_add_relu_grad",
            Op::BatchNormPairRelu(_) => "batch_norm_pair_relu",
            Op::BatchNormPairReluGrad(_) => "batch_norm_pair_relu_grad",
            Op::BatchNormReluMaxPool2d(_) => "batch_norm_relu_max_pool2d",
            Op::BatchNormReluMaxPool2dGrad(_) => "batch_norm_relu_max_pool2d_grad",
            Op::Cast(_) => "cast",
            Op::Unfold(_) => "unfold",
            Op::UnfoldGrad(_) => "unfold_grad",
            Op::Normalise(_) => "normalise",
            Op::Relu => "relu",
            Op::ReluGrad => "relu_grad",
            Op::ReluMask => "relu_mask",
            Op::ReluMaskGrad => "relu_mask_grad",
            Op::MaxPool2d(_) => "max_pool2d",
            Op::MaxPool2dGrad(_) => "max_pool2d_grad",
            Op::MaxPool2dIndices(_) => "max_pool2d_indices",
            Op::MaxPool2dIndicesGrad(_) => "max_pool2d_indices_grad",
            Op::MaxPool2dReluBiasGrad(_) => "max_pool2d_relu_bias_grad",
            Op::AvgPool2d(_) => "avg_pool2d",
            Op::AvgPool2dGrad(_) => "avg_pool2d_grad",
            Op::AdaptiveAvgPool2d(_) => "adaptive_avg_pool2d",
            Op::AdaptiveAvgPool2dGrad(_) => "adaptive_avg_pool2d_grad",
            Op::LocalResponseNorm(_) => "local_response_norm",
            Op::LocalResponseNormGrad(_) => "local_response_norm_grad",
            Op::Linear => "linear",
            Op::LinearDataGrad => "linear_data_grad",
            Op::LinearWeightGrad => "linear_weight_grad",
            Op::Add => "add",
            Op::Concat(_) => "concat",
            Op::Split(_) => "split",
            Op::Flatten => "flatten",
            Op::Unflatten(_) => "unflatten",
            Op::Dropout(_) => "dropout",
            Op::DropoutGrad(_) => "dropout_grad",
            Op::SoftmaxCrossEntropy(_) => "softmax_cross_entropy",
            Op::SoftmaxCrossEntropyGrad(_) => "softmax_cross_entropy_grad",
            Op::Accuracy => "accuracy",
            Op::Unscale(_) => "unscale",
            Op::LossScaleUpdate(_) => "loss_scale_update",
            Op::Sgd(_) => "sgd",
            Op::Adam(_) => "adam",
            Op::Group(group) => group.kind(),
        }
    }

    /// The shape rule: types of the outputs from types of the inputs.
    pub(crate) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        match self {
            Op::Conv2d(op) | Op::Conv2dRelu(op) => op.infer(inputs),
            Op::Conv2dStats(op) => conv2d_stats::infer(op, inputs),
            Op::ReluBiasGrad => conv2d_relu::infer_bias_grad(inputs),
            Op::Conv2dDataGrad(op) => op.infer(inputs),
            Op::Conv2dWeightGrad(op) => op.infer(inputs),
            Op::BiasGrad => bias::infer(inputs),
            Op::BatchNormStats => batch_norm::infer_stats(inputs),
            Op::BatchNorm(op) => op.infer(inputs),
            Op::BatchNormUpdate(op) => op.infer(inputs),
            Op::BatchNormGrad(op) => op.infer_grad(inputs),
            Op::BatchNormRelu(_) => batch_norm_relu::infer(inputs),
            Op::BatchNormReluGrad(_) => batch_norm_relu::infer_grad(inputs),
            Op::BatchNormAddRelu(_) => batch_norm_add_relu::infer(inputs),
            Op::BatchNormAddReluGrad(_) => batch_norm_add_relu::infer_grad(inputs),
            Op::BatchNormPairRelu(_) => batch_norm_pair_relu::infer(inputs),
            Op::BatchNormPairReluGrad(_) => batch_norm_pair_relu::infer_grad(inputs),
            Op::BatchNormReluMaxPool2d(op) => op.infer(inputs),
            Op::BatchNormReluMaxPool2dGrad(op) => op.infer_grad(inputs),
            Op::Cast(op) => op.infer(inputs),
            Op::Unfold(op) => op.infer(inputs),
            Op::UnfoldGrad(op) => op.infer(inputs),
            Op::Normalise(op) => op.infer(inputs),
            Op::Relu => relu::infer(inputs),
            Op::ReluGrad => relu::infer_grad(inputs),
            Op::ReluMask => relu::infer_mask(inputs),
            Op::ReluMaskGrad => relu::infer_mask_grad(inputs),
            Op::MaxPool2d(op) => op.infer(inputs),
            Op::MaxPool2dGrad(op) => op.infer_grad(inputs),
            Op::MaxPool2dIndices(op) => op.infer_indices(inputs),
            Op::MaxPool2dIndicesGrad(op) => op.infer(inputs),
            Op::MaxPool2dReluBiasGrad(op) => op.infer_relu_bias(inputs),
            Op::AvgPool2d(op) => op.infer(inputs),
            Op::AvgPool2dGrad(op) => op.infer(inputs),
            Op::AdaptiveAvgPool2d(op) => op.infer(inputs),
            Op::AdaptiveAvgPool2dGrad(op) => op.infer(inputs),
            Op::LocalResponseNorm(op) => op.infer(inputs),
            Op::LocalResponseNormGrad(op) => op.infer_grad(inputs),
            Op::Linear => linear::infer(inputs),
            Op::LinearDataGrad => linear::infer_data_grad(inputs),
            Op::LinearWeightGrad => linear::infer_weight_grad(inputs),
            Op::Add => add::infer(inputs),
            Op::Concat(op) => op.infer(inputs),
            Op::Split(op) => op.infer(inputs),
            Op::Flatten => flatten::infer(inputs),
            Op::Unflatten(op) => op.infer(inputs),
            Op::Dropout(op) | Op::DropoutGrad(op) => op.infer(inputs),
            Op::SoftmaxCrossEntropy(op) => op.infer(inputs),
            Op::SoftmaxCrossEntropyGrad(op) => op.infer_grad(inputs),
            Op::Accuracy => accuracy::infer(inputs),
            Op::Unscale(op) => op.infer(inputs),
            Op::LossScaleUpdate(op) => op.infer(inputs),
            Op::Sgd(op) => op.infer(inputs),
            Op::Adam(op) => op.infer(inputs),
            Op::Group(op) => op.infer(inputs),
        }
    }

    /// Multiply-adds of the direct algorithm; 0 for ops bound by memory. One multiply-add is two FLOP.
    pub fn multiply_adds(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> f64 {
        match self {
            Op::Conv2d(op) | Op::Conv2dRelu(op) | Op::Conv2dStats(op) => op.multiply_adds(outputs[0], inputs[1]),
            Op::Conv2dDataGrad(op) => op.conv.multiply_adds(inputs[0], inputs[1]),
            Op::Conv2dWeightGrad(op) => op.conv.multiply_adds(inputs[1], outputs[0]),
            Op::Linear => outputs[0].shape.elements() as f64 * inputs[0].shape.dim(1) as f64,
            Op::LinearDataGrad => outputs[0].shape.elements() as f64 * inputs[0].shape.dim(1) as f64,
            Op::LinearWeightGrad => outputs[0].shape.elements() as f64 * inputs[0].shape.samples() as f64,
            _ => 0.0,
        }
    }

    /// Suffixes of the output values' names; an empty suffix names the value after the node.
    pub fn output_names(&self) -> &'static [&'static str] {
        match self {
            Op::BatchNormStats => &["mean", "variance"],
            Op::Conv2dStats(_) => &["", "mean", "variance"],
            Op::BatchNormGrad(_) | Op::BatchNormReluGrad(_) | Op::BatchNormReluMaxPool2dGrad(_) => {
                &["dx", "dgamma", "dbeta"]
            }
            Op::BatchNormAddReluGrad(_) => &["dx", "dgamma", "dbeta", "dresidual"],
            Op::BatchNormPairReluGrad(_) => &["da", "dgamma_a", "dbeta_a", "db", "dgamma_b", "dbeta_b"],
            Op::ReluBiasGrad | Op::MaxPool2dReluBiasGrad(_) => &["dz", "dbias"],
            Op::Split(_) | Op::Group(_) => &[],
            Op::ReluMask | Op::BatchNormAddRelu(_) | Op::BatchNormPairRelu(_) => &["", "mask"],
            Op::MaxPool2dIndices(_) | Op::BatchNormReluMaxPool2d(_) => &["", "indices"],
            Op::LossScaleUpdate(_) => &["", "", "", "step"],
            _ => &[""],
        }
    }

    /// What an output is for.
    pub fn output_role(&self, index: usize, phase: Phase) -> Role {
        match self {
            Op::SoftmaxCrossEntropy(_) | Op::Accuracy => Role::Metric,
            Op::BatchNormStats | Op::LossScaleUpdate(_) => Role::Statistic,
            Op::Conv2dStats(_) if index > 0 => Role::Statistic,
            Op::Unscale(_) if index == 0 => Role::Statistic,
            Op::Unscale(_) => Role::ParameterGradient,
            Op::Conv2dWeightGrad(_) | Op::LinearWeightGrad | Op::BiasGrad => Role::ParameterGradient,
            Op::BatchNormGrad(_) | Op::BatchNormReluGrad(_) if index > 0 => Role::ParameterGradient,
            Op::BatchNormReluMaxPool2dGrad(_) if index > 0 => Role::ParameterGradient,
            Op::ReluBiasGrad | Op::MaxPool2dReluBiasGrad(_) if index > 0 => Role::ParameterGradient,
            Op::BatchNormAddReluGrad(_) if matches!(index, 1 | 2) => Role::ParameterGradient,
            Op::BatchNormPairReluGrad(_) if !matches!(index, 0 | 3) => Role::ParameterGradient,
            _ if phase == Phase::Forward => Role::FeatureMap,
            _ => Role::Gradient,
        }
    }

    /// Persistent inputs this op moves on, as (input, output): the output lies over the input, always.
    pub fn updates(&self) -> Cow<'static, [(usize, usize)]> {
        Cow::Borrowed(match self {
            Op::BatchNormUpdate(_) => &[(2, 0), (3, 1)],
            Op::LossScaleUpdate(_) => &[(0, 0), (1, 1), (2, 2)],
            Op::Sgd(op) if op.has_momentum() => &[(0, 0), (2, 1)],
            Op::Sgd(_) => &[(0, 0)],
            Op::Adam(_) => &[(0, 0), (2, 1), (3, 2)],
            Op::Group(group) => return Cow::Owned(group.updates()),
            _ => &[],
        })
    }

    /// True for ops that change a persistent: they run exactly once an iteration and are never dead.
    pub fn has_effect(&self) -> bool {
        !self.updates().is_empty()
    }

    /// Inputs an output may overwrite, as (input, output), best first. Every kernel of the op must accept it, and all pairs at
    /// once that have neither an input nor an output in common.
    pub fn in_place(&self) -> &'static [(usize, usize)] {
        match self {
            Op::Unscale(op) => op.in_place(),
            Op::Relu | Op::ReluMask | Op::Dropout(_) | Op::DropoutGrad(_) => &[(0, 0)],
            Op::BatchNorm(_) | Op::BatchNormRelu(_) => &[(0, 0)],
            Op::BatchNormAddRelu(_) => &[(0, 0), (5, 0)],
            Op::BatchNormAddReluGrad(_) => &[(1, 3), (1, 0), (6, 0)],
            Op::BatchNormPairRelu(_) => &[(5, 0)],
            Op::BatchNormPairReluGrad(_) => &[(1, 3), (1, 0), (10, 0)],
            Op::Flatten | Op::Unflatten(_) | Op::SoftmaxCrossEntropyGrad(_) => &[(0, 0)],
            Op::ReluBiasGrad => &[(1, 0)],
            Op::ReluGrad | Op::ReluMaskGrad | Op::BatchNormGrad(_) | Op::BatchNormReluGrad(_) => &[(1, 0)],
            Op::Add => &[(0, 0), (1, 0)],
            _ => &[],
        }
    }

    /// True when the output is the input's bytes under another shape.
    pub fn is_view(&self) -> bool {
        matches!(self, Op::Flatten | Op::Unflatten(_))
    }
}

/// Checks the number of inputs.
fn arity(inputs: &[&TensorType], expected: std::ops::RangeInclusive<usize>) -> Result<(), String> {
    if expected.contains(&inputs.len()) {
        return Ok(());
    }
    Err(format!("expected {} to {} inputs, found {}", expected.start(), expected.end(), inputs.len()))
}

/// `[N, C, H, W]` of an image input.
fn nchw(ty: &TensorType) -> Result<[u64; 4], String> {
    ty.shape.nchw().ok_or_else(|| format!("expected an image [N, C, H, W], found {}", ty.shape))
}

/// Checks that an operand has exactly the expected type.
fn same_type(what: &str, expected: &TensorType, found: &TensorType) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    Err(format!("expected {what} of type {expected}, found {found}"))
}

/// Checks that two operands have one order and padding.
fn same_layout(what: &str, a: &TensorType, b: &TensorType) -> Result<(), String> {
    if a.layout == b.layout {
        return Ok(());
    }
    Err(format!("expected {what} in one layout, found {a} and {b}"))
}

/// Checks that an operand is a vector of `len` elements beside tensors of the given type: wide beside half precision.
fn vector(what: &str, len: u64, like: &TensorType, found: &TensorType) -> Result<(), String> {
    same_type(what, &TensorType::new([len], like.dtype.wide()), found)
}

/// Checks that an operand is the 64-bit iteration counter.
fn iteration_counter(found: &TensorType) -> Result<(), String> {
    same_type("the iteration counter", &TensorType::new([1], vdnn_tensor::DType::U64), found)
}
