//! CUDA kernels for everything that cuDNN and cuBLAS do not do: arithmetic in f32, maps in f32 or half precision.
//!
//! One `.cu` file an op holds the device code, the `.rs` file beside it turns (op, operands) into a [`LaunchPlan`]:
//! functions, grids and arguments, settled once so that an iteration only launches. Nothing here needs a GPU. Compiling,
//! loading and launching is left to [`crate::nvrtc`] and the device.
//!
//! Rules every kernel keeps:
//! - Deterministic: no atomics on numbers; sums run in an order that depends on shapes and alignment, and end in double.
//! - What varies between iterations (learning rate, iteration) is read from its buffer, never an argument.
//! - An operand may be a slice of a concat: rows (samples, or pixels where channels are innermost) at a distance. Packs of
//!   16 bytes are used where every row allows it, single elements elsewhere.
//! - What is done element by element takes f32 and half precision in any order; what knows channels takes f32 in NCHW order,
//!   and f32 and half precision in NHWC order (the files named `*_nhwc`). A source is compiled for each element type by itself.
//! - Outputs may lie over the inputs that `Op::in_place` and `Op::updates` name.
//! - Scratch memory is a [`workspace`] of the schedule.

mod accuracy;
mod adam;
mod adaptive_avg_pool2d;
mod add;
mod avg_pool2d;
mod batch_norm;
mod batch_norm_nhwc;
mod batch_norm_pair_relu;
mod batch_norm_relu;
mod batch_norm_relu_max_pool2d;
mod bias;
mod cast;
mod concat;
mod conv2d_stats;
mod dropout;
mod elementwise;
mod error;
mod group;
mod local_response_norm;
mod loss_scale_update;
mod max_pool2d;
mod nhwc;
mod normalise;
mod plan;
mod relu;
mod sgd;
mod softmax_cross_entropy;
mod table;
mod unfold;
mod unscale;
mod window;

pub use bias::{bias_add, bias_relu};
pub use conv2d_stats::statistics_of_sums;
pub use error::KernelError;
pub use plan::{KernelArg, KernelLaunch, LaunchPlan, Operand};

use vdnn_graph::op::Op;
use vdnn_tensor::{Bytes, DType, Layout, MemoryOrder, TensorType};

/// A source's text for the compiler: what chooses the element type, what all share, what some share, the file.
macro_rules! text {
    ($define:literal, $shared:expr, $file:expr) => {
        concat!(
            $define,
            include_str!("element.cuh"),
            include_str!("common.cuh"),
            $shared,
            "\n#line 1 \"",
            $file,
            "\"\n",
            include_str!($file)
        )
    };
}

/// (file name, text) of each stem: in f32, for every element type, and with channels innermost for every element type or for
/// half precision.
macro_rules! sources {
    (f32: $($plain:literal)*; every type: $($every:literal)*; innermost: $($inner:literal)*; half: $($half:literal)*;) => {
        &[
            $((concat!($plain, ".cu"), text!("", "", concat!($plain, ".cu"))),)*
            $((concat!($every, ".cu"), text!("", "", concat!($every, ".cu"))),)*
            $((concat!($every, ".bf16.cu"), text!("#define ELEMENT_BF16\n", "", concat!($every, ".cu"))),)*
            $((concat!($every, ".f16.cu"), text!("#define ELEMENT_F16\n", "", concat!($every, ".cu"))),)*
            $((concat!($inner, ".cu"), text!("", include_str!("nhwc.cuh"), concat!($inner, ".cu"))),)*
            $((concat!($inner, ".bf16.cu"), text!("#define ELEMENT_BF16\n", include_str!("nhwc.cuh"), concat!($inner, ".cu"))),)*
            $((concat!($inner, ".f16.cu"), text!("#define ELEMENT_F16\n", include_str!("nhwc.cuh"), concat!($inner, ".cu"))),)*
            $((concat!($half, ".bf16.cu"), text!("#define ELEMENT_BF16\n", include_str!("nhwc.cuh"), concat!($half, ".cu"))),)*
            $((concat!($half, ".f16.cu"), text!("#define ELEMENT_F16\n", include_str!("nhwc.cuh"), concat!($half, ".cu"))),)*
        ]
    };
}

/// All sources, (file name, text for the compiler). What is compiled for several element types is there once for each.
pub const ALL: &[(&str, &str)] = sources! {
    f32: "accuracy" "adam" "adaptive_avg_pool2d" "avg_pool2d" "batch_norm" "bias" "conv2d_stats" "local_response_norm"
        "loss_scale_update" "max_pool2d" "softmax_cross_entropy" "unscale";
    every type: "add" "concat" "dropout" "normalise" "relu" "sgd";
    innermost: "adaptive_avg_pool2d_nhwc" "avg_pool2d_nhwc" "batch_norm_nhwc" "batch_norm_pair_relu_nhwc" "bias_nhwc" "cast"
        "max_pool2d_nhwc" "unfold";
    half: "batch_norm_relu_max_pool2d_nhwc";
};

/// The files of a source that is compiled for several element types, for [`file_of`].
macro_rules! files {
    ($stem:literal) => {
        [concat!($stem, ".cu"), concat!($stem, ".bf16.cu"), concat!($stem, ".f16.cu")]
    };
}
use files;

/// The file for an element type.
fn file_of(dtype: DType, [f32, bf16, f16]: [&'static str; 3]) -> &'static str {
    match dtype {
        DType::BF16 => bf16,
        DType::F16 => f16,
        // `check_types` lets no other type pass.
        _ => f32,
    }
}

/// The text of one source, by the file name a [`KernelLaunch`] gives.
pub fn source(file: &str) -> Option<&'static str> {
    ALL.iter().find(|(name, _)| *name == file).map(|(_, text)| *text)
}

/// The functions a source defines for launching.
pub fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        // A kernel's line begins with `KERNEL`, or with a longer word of capitals that ends so.
        let (word, rest) = line.split_once(' ')?;
        let capitals = word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        if capitals && word.ends_with("KERNEL") { rest.split('(').next() } else { None }
    })
}

/// Bytes of workspace an op's launches need, from the types of its inputs. The address given to [`prepare`] must be
/// aligned to 16 bytes; without workspace any address will do.
pub fn workspace(op: &Op, inputs: &[&TensorType]) -> Bytes {
    let Some(first) = inputs.first() else { return 0 };
    match op {
        Op::BiasGrad | Op::ReluBiasGrad => bias::workspace(first),
        Op::BatchNormStats | Op::BatchNormGrad(_) => batch_norm::workspace(first),
        Op::BatchNormReluGrad(_) | Op::BatchNormAddReluGrad(_) => batch_norm::workspace(first),
        Op::BatchNormPairReluGrad(_) => batch_norm_pair_relu::workspace(first),
        Op::BatchNormReluMaxPool2dGrad(op) => batch_norm_relu_max_pool2d::workspace(op, first),
        Op::SoftmaxCrossEntropy(_) => softmax_cross_entropy::workspace(first),
        Op::SoftmaxCrossEntropyGrad(_) => softmax_cross_entropy::GRAD_WORKSPACE,
        Op::Accuracy => accuracy::workspace(first),
        Op::MaxPool2dReluBiasGrad(op) => max_pool2d::relu_bias_workspace(op, inputs),
        Op::Group(group) => group.shares(inputs).map(|share| workspace(&group.op, share)).max().unwrap_or(0),
        _ => 0,
    }
}

/// The launches that run `op`, for the whole life of a schedule.
///
/// Operands are in the op's order. Convolutions and linear layers are not here; their bias is [`bias_add`], statistics from
/// sums are [`statistics_of_sums`].
///
/// # Errors
/// [`KernelError`] when an operand has a type, size or place that the kernels do not take.
pub fn prepare(
    op: &Op,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    match op {
        Op::Group(group) => {
            check_types(&group.op, inputs)?;
            check_types(&group.op, outputs)?;
            group::prepare(group, inputs, outputs, workspace)
        }
        _ => prepare_one(op, inputs, outputs, workspace),
    }
}

/// The launches of an op that is not a group.
fn prepare_one(
    op: &Op,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    check_types(op, inputs)?;
    check_types(op, outputs)?;
    match op {
        Op::BiasGrad => bias::prepare_grad(inputs, outputs, workspace),
        Op::ReluBiasGrad => bias::prepare_relu_grad(inputs, outputs, workspace),
        Op::BatchNormStats => batch_norm::prepare_stats(inputs, outputs, workspace),
        Op::BatchNorm(op) => batch_norm::prepare(op, inputs, outputs),
        Op::BatchNormUpdate(op) => batch_norm::prepare_updates(op, [(inputs, outputs)].into_iter()),
        Op::BatchNormGrad(op) => batch_norm::prepare_grad(op, inputs, outputs, workspace),
        Op::BatchNormRelu(op) => batch_norm_relu::prepare(op, inputs, outputs),
        Op::BatchNormReluGrad(op) => batch_norm_relu::prepare_grad(op, inputs, outputs, workspace),
        Op::BatchNormAddRelu(op) => batch_norm_relu::prepare_add(op, inputs, outputs),
        Op::BatchNormAddReluGrad(op) => batch_norm_relu::prepare_add_grad(op, inputs, outputs, workspace),
        Op::BatchNormPairRelu(op) => batch_norm_pair_relu::prepare(op, inputs, outputs),
        Op::BatchNormPairReluGrad(op) => batch_norm_pair_relu::prepare_grad(op, inputs, outputs, workspace),
        Op::BatchNormReluMaxPool2d(op) => batch_norm_relu_max_pool2d::prepare(op, inputs, outputs),
        Op::BatchNormReluMaxPool2dGrad(op) => batch_norm_relu_max_pool2d::prepare_grad(op, inputs, outputs, workspace),
        Op::Cast(_) => cast::prepare(inputs, outputs),
        Op::Unfold(op) => unfold::prepare(op, inputs, outputs),
        Op::UnfoldGrad(op) => unfold::prepare_grad(op, inputs, outputs),
        Op::Normalise(op) => normalise::prepare(op, inputs, outputs),
        Op::Relu => relu::prepare(inputs, outputs),
        Op::ReluGrad => relu::prepare_grad(inputs, outputs),
        Op::ReluMask => relu::prepare_mask(inputs, outputs),
        Op::ReluMaskGrad => relu::prepare_mask_grad(inputs, outputs),
        Op::MaxPool2d(op) => max_pool2d::prepare(op, inputs, outputs),
        Op::MaxPool2dGrad(op) => max_pool2d::prepare_grad(op, inputs, outputs),
        Op::MaxPool2dIndices(op) => max_pool2d::prepare_indices(op, inputs, outputs),
        Op::MaxPool2dIndicesGrad(op) => max_pool2d::prepare_indices_grad(op, inputs, outputs),
        Op::MaxPool2dReluBiasGrad(op) => max_pool2d::prepare_relu_bias_grad(op, inputs, outputs, workspace),
        Op::AvgPool2d(op) => avg_pool2d::prepare(op, inputs, outputs),
        Op::AvgPool2dGrad(op) => avg_pool2d::prepare_grad(op, inputs, outputs),
        Op::AdaptiveAvgPool2d(_) => adaptive_avg_pool2d::prepare(inputs, outputs),
        Op::AdaptiveAvgPool2dGrad(_) => adaptive_avg_pool2d::prepare_grad(inputs, outputs),
        Op::LocalResponseNorm(op) => local_response_norm::prepare(op, inputs, outputs),
        Op::LocalResponseNormGrad(op) => local_response_norm::prepare_grad(op, inputs, outputs),
        Op::Add => add::prepare(inputs, outputs),
        Op::Concat(op) => concat::prepare(op.axis, inputs, outputs),
        Op::Split(op) => concat::prepare_split(op.axis, inputs, outputs),
        Op::Flatten | Op::Unflatten(_) => concat::prepare_view(op.kind(), inputs, outputs),
        Op::Dropout(op) | Op::DropoutGrad(op) => dropout::prepare(op, inputs, outputs),
        Op::SoftmaxCrossEntropy(op) => softmax_cross_entropy::prepare(op, inputs, outputs, workspace),
        Op::SoftmaxCrossEntropyGrad(op) => softmax_cross_entropy::prepare_grad(op, inputs, outputs, workspace),
        Op::Accuracy => accuracy::prepare(inputs, outputs, workspace),
        Op::Unscale(op) => unscale::prepare(op, inputs, outputs),
        Op::LossScaleUpdate(op) => loss_scale_update::prepare(op, inputs, outputs),
        Op::Sgd(op) => sgd::prepare(op, [(inputs, outputs)].into_iter()),
        Op::Adam(op) => adam::prepare(op, inputs, outputs),
        Op::Conv2d(_) | Op::Conv2dRelu(_) | Op::Conv2dStats(_) => Err(KernelError::NotHere { op: op.kind() }),
        Op::Conv2dDataGrad(_) | Op::Conv2dWeightGrad(_) => Err(KernelError::NotHere { op: op.kind() }),
        Op::Group(_) => Err(KernelError::NotHere { op: op.kind() }),
        Op::Linear | Op::LinearDataGrad | Op::LinearWeightGrad => Err(KernelError::NotHere { op: op.kind() }),
    }
}

/// Exactly N operands.
fn operands<'a, const N: usize>(op: &'static str, given: &[Operand<'a>]) -> Result<[Operand<'a>; N], KernelError> {
    given.try_into().map_err(|_| KernelError::Operands { op, expected: N, found: given.len() })
}

/// Operands without the optional last one (an update's guard, a loss's scale), and that one's address, null when there is none.
fn with_optional<'o, 'a>(given: &'o [Operand<'a>], operands: usize) -> (&'o [Operand<'a>], u64) {
    match given.split_at_checked(operands) {
        Some((before, [last])) => (before, last.address),
        _ => (given, 0),
    }
}

/// What types an op's kernels take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// f32 in NCHW order.
    Plain,
    /// f32 in either order, half precision in NHWC order or without pixels.
    Channels,
    /// f32 and half precision in any order, without padding.
    Elements,
    /// f32 and half precision in any order, with or without padding.
    Anything,
}

impl Takes {
    fn of(op: &Op) -> Self {
        match op {
            Op::BatchNormStats | Op::BatchNorm(_) | Op::BatchNormGrad(_) => Takes::Channels,
            Op::BiasGrad | Op::ReluBiasGrad => Takes::Channels,
            Op::BatchNormRelu(_) | Op::BatchNormReluGrad(_) => Takes::Channels,
            Op::BatchNormAddRelu(_) | Op::BatchNormAddReluGrad(_) => Takes::Channels,
            Op::BatchNormPairRelu(_) | Op::BatchNormPairReluGrad(_) => Takes::Channels,
            Op::BatchNormReluMaxPool2d(_) | Op::BatchNormReluMaxPool2dGrad(_) => Takes::Channels,
            Op::MaxPool2d(_) | Op::MaxPool2dGrad(_) => Takes::Channels,
            Op::MaxPool2dIndices(_) | Op::MaxPool2dIndicesGrad(_) => Takes::Channels,
            Op::MaxPool2dReluBiasGrad(_) => Takes::Channels,
            Op::AvgPool2d(_) | Op::AvgPool2dGrad(_) => Takes::Channels,
            Op::AdaptiveAvgPool2d(_) | Op::AdaptiveAvgPool2dGrad(_) => Takes::Channels,
            Op::Relu | Op::ReluGrad | Op::ReluMask | Op::ReluMaskGrad | Op::Add => Takes::Elements,
            Op::Dropout(_) | Op::DropoutGrad(_) | Op::Normalise(_) => Takes::Elements,
            Op::Concat(_) | Op::Split(_) | Op::Flatten | Op::Unflatten(_) | Op::Unscale(_) => Takes::Elements,
            Op::Cast(_) | Op::Sgd(_) | Op::Unfold(_) | Op::UnfoldGrad(_) => Takes::Anything,
            _ => Takes::Plain,
        }
    }

    fn takes(self, ty: &TensorType) -> bool {
        let plain = ty.layout == Layout::default();
        let unpadded = ty.layout.channel_padding == 0;
        match (ty.dtype, self) {
            // Indices lie as the map they are of.
            (DType::U8, _) => unpadded,
            (DType::I32 | DType::U64, _) => plain,
            (DType::F32 | DType::F16 | DType::BF16, Takes::Anything) => true,
            (DType::F32 | DType::F16 | DType::BF16, Takes::Elements) => unpadded,
            (DType::F32, Takes::Channels) => unpadded,
            (DType::F32, _) => plain,
            (DType::F16 | DType::BF16, Takes::Channels) => {
                unpadded && (ty.layout.order == MemoryOrder::Nhwc || ty.shape.rank() == 2)
            }
            _ => false,
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Takes::Plain => "unpadded f32 in NCHW order",
            Takes::Channels => "unpadded f32, or f16 or bf16 in NHWC order",
            Takes::Elements => "f32, f16 or bf16 without padding",
            Takes::Anything => "f32, f16 or bf16",
        }
    }
}

/// Checks dtype, layout and alignment of every operand. Which operand is an integer is the graph's shape rule.
fn check_types(op: &Op, given: &[Operand<'_>]) -> Result<(), KernelError> {
    check(op.kind(), Takes::of(op), given)
}

fn check(op: &'static str, takes: Takes, given: &[Operand<'_>]) -> Result<(), KernelError> {
    for (index, operand) in given.iter().enumerate() {
        let name = || format!("operand {index}");
        if !takes.takes(operand.ty) {
            let (expected, found) = (takes.in_words(), Box::new(operand.ty.clone()));
            return Err(KernelError::Type { op, operand: name(), expected, found });
        }
        let alignment = operand.ty.dtype.size();
        if !operand.address.is_multiple_of(alignment) {
            return Err(KernelError::Misaligned { op, operand: name(), address: operand.address, alignment });
        }
    }
    Ok(())
}

/// Checks that no operand is a slice.
fn whole(op: &'static str, given: &[Operand<'_>]) -> Result<(), KernelError> {
    match given.iter().find(|operand| !operand.is_contiguous()) {
        Some(slice) => Err(KernelError::Sliced { op, operand: "parameters", stride: slice.row_stride }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
