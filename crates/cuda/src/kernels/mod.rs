//! CUDA kernels for everything that cuDNN and cuBLAS do not do, in strict f32.
//!
//! One `.cu` file an op holds the device code, the `.rs` file beside it turns (op, operands) into a [`LaunchPlan`]:
//! functions, grids and arguments, settled once so that an iteration only launches. Nothing here needs a GPU. Compiling,
//! loading and launching is left to [`crate::nvrtc`] and the device.
//!
//! Rules every kernel keeps:
//! - Deterministic: no atomics on numbers; sums run in an order that depends on shapes and alignment, and end in double.
//! - What varies between iterations (learning rate, iteration) is read from its buffer, never an argument.
//! - An operand may be a slice of a concat: rows of samples at a distance. Packs of 16 bytes are used where every row
//!   allows it, single elements elsewhere.
//! - Outputs may lie over the inputs that `Op::in_place` and `Op::updates` name.
//! - Scratch memory is a [`workspace`] of the schedule.

mod accuracy;
mod adam;
mod adaptive_avg_pool2d;
mod add;
mod avg_pool2d;
mod batch_norm;
mod bias;
mod concat;
mod dropout;
mod elementwise;
mod error;
mod local_response_norm;
mod max_pool2d;
mod plan;
mod relu;
mod sgd;
mod softmax_cross_entropy;
mod window;

pub use bias::bias_add;
pub use error::KernelError;
pub use plan::{KernelArg, KernelLaunch, LaunchPlan, Operand};

use vdnn_graph::op::Op;
use vdnn_tensor::{Bytes, DType, Layout, TensorType};

macro_rules! source {
    ($file:literal) => {
        ($file, concat!(include_str!("common.cuh"), "\n#line 1 \"", $file, "\"\n", include_str!($file)))
    };
}

/// All sources, (file name, text for the compiler).
pub const ALL: &[(&str, &str)] = &[
    source!("accuracy.cu"),
    source!("adam.cu"),
    source!("adaptive_avg_pool2d.cu"),
    source!("add.cu"),
    source!("avg_pool2d.cu"),
    source!("batch_norm.cu"),
    source!("bias.cu"),
    source!("concat.cu"),
    source!("dropout.cu"),
    source!("local_response_norm.cu"),
    source!("max_pool2d.cu"),
    source!("relu.cu"),
    source!("sgd.cu"),
    source!("softmax_cross_entropy.cu"),
];

/// The text of one source, by the file name a [`KernelLaunch`] gives.
pub fn source(file: &str) -> Option<&'static str> {
    ALL.iter().find(|(name, _)| *name == file).map(|(_, text)| *text)
}

/// The functions a source defines for launching.
pub fn functions(text: &str) -> impl Iterator<Item = &str> {
    let kernels = text.lines().filter_map(|line| line.strip_prefix("WIDE_").unwrap_or(line).strip_prefix("KERNEL "));
    kernels.filter_map(|rest| rest.split('(').next())
}

/// Bytes of workspace an op's launches need, from the types of its inputs. The address given to [`prepare`] must be
/// aligned to 8 bytes; without workspace any address will do.
pub fn workspace(op: &Op, inputs: &[&TensorType]) -> Bytes {
    let Some(first) = inputs.first() else { return 0 };
    match op {
        Op::BiasGrad => bias::workspace(first),
        Op::BatchNormStats | Op::BatchNormGrad(_) => batch_norm::workspace(first),
        Op::SoftmaxCrossEntropy(_) => softmax_cross_entropy::workspace(first),
        Op::SoftmaxCrossEntropyGrad(_) => softmax_cross_entropy::GRAD_WORKSPACE,
        Op::Accuracy => accuracy::workspace(first),
        _ => 0,
    }
}

/// The launches that run `op`, for the whole life of a schedule.
///
/// Operands are in the op's order. Convolutions and linear layers are not here; their bias is [`bias_add`].
///
/// # Errors
/// [`KernelError`] when an operand has a type, size or place that the kernels do not take.
pub fn prepare(
    op: &Op,
    inputs: &[Operand<'_>],
    outputs: &[Operand<'_>],
    workspace: u64,
) -> Result<LaunchPlan, KernelError> {
    check_types(op.kind(), inputs)?;
    check_types(op.kind(), outputs)?;
    match op {
        Op::BiasGrad => bias::prepare_grad(inputs, outputs, workspace),
        Op::BatchNormStats => batch_norm::prepare_stats(inputs, outputs, workspace),
        Op::BatchNorm(op) => batch_norm::prepare(op, inputs, outputs),
        Op::BatchNormUpdate(op) => batch_norm::prepare_update(op, inputs, outputs),
        Op::BatchNormGrad(op) => batch_norm::prepare_grad(op, inputs, outputs, workspace),
        Op::Cast(_)
        | Op::BatchNormRelu(_)
        | Op::BatchNormReluGrad(_)
        | Op::BatchNormAddRelu(_)
        | Op::BatchNormAddReluGrad(_) => Err(KernelError::NotHere { op: op.kind() }),
        Op::Relu => relu::prepare(inputs, outputs),
        Op::ReluGrad => relu::prepare_grad(inputs, outputs),
        Op::ReluMask => relu::prepare_mask(inputs, outputs),
        Op::ReluMaskGrad => relu::prepare_mask_grad(inputs, outputs),
        Op::MaxPool2d(op) => max_pool2d::prepare(op, inputs, outputs),
        Op::MaxPool2dGrad(op) => max_pool2d::prepare_grad(op, inputs, outputs),
        Op::MaxPool2dIndices(op) => max_pool2d::prepare_indices(op, inputs, outputs),
        Op::MaxPool2dIndicesGrad(op) => max_pool2d::prepare_indices_grad(op, inputs, outputs),
        Op::AvgPool2d(op) => avg_pool2d::prepare(op, inputs, outputs),
        Op::AvgPool2dGrad(op) => avg_pool2d::prepare_grad(op, inputs, outputs),
        Op::AdaptiveAvgPool2d(_) => adaptive_avg_pool2d::prepare(inputs, outputs),
        Op::AdaptiveAvgPool2dGrad(_) => adaptive_avg_pool2d::prepare_grad(inputs, outputs),
        Op::LocalResponseNorm(op) => local_response_norm::prepare(op, inputs, outputs),
        Op::LocalResponseNormGrad(op) => local_response_norm::prepare_grad(op, inputs, outputs),
        Op::Add => add::prepare(inputs, outputs),
        Op::Concat(_) => concat::prepare(inputs, outputs),
        Op::Split(_) => concat::prepare_split(inputs, outputs),
        Op::Flatten | Op::Unflatten(_) => concat::prepare_view(op.kind(), inputs, outputs),
        Op::Dropout(op) | Op::DropoutGrad(op) => dropout::prepare(op, inputs, outputs),
        Op::SoftmaxCrossEntropy(op) => softmax_cross_entropy::prepare(op, inputs, outputs, workspace),
        Op::SoftmaxCrossEntropyGrad(op) => softmax_cross_entropy::prepare_grad(op, inputs, outputs, workspace),
        Op::Accuracy => accuracy::prepare(inputs, outputs, workspace),
        Op::Sgd(op) => sgd::prepare(op, inputs, outputs),
        Op::Adam(op) => adam::prepare(op, inputs, outputs),
        Op::Conv2dRelu(_) | Op::ReluBiasGrad => Err(KernelError::NotHere { op: op.kind() }),
        Op::Conv2d(_) | Op::Conv2dDataGrad(_) | Op::Conv2dWeightGrad(_) => Err(KernelError::NotHere { op: op.kind() }),
        Op::Linear | Op::LinearDataGrad | Op::LinearWeightGrad => Err(KernelError::NotHere { op: op.kind() }),
    }
}

/// Exactly N operands.
fn operands<'a, const N: usize>(op: &'static str, given: &[Operand<'a>]) -> Result<[Operand<'a>; N], KernelError> {
    given.try_into().map_err(|_| KernelError::Operands { op, expected: N, found: given.len() })
}

/// An update's operands without its guard, and the guard's address, null when there is none.
fn guarded<'o, 'a>(given: &'o [Operand<'a>], operands: usize) -> (&'o [Operand<'a>], KernelArg) {
    match given.split_at_checked(operands) {
        Some((before, [guard])) => (before, KernelArg::U64(guard.address)),
        _ => (given, KernelArg::U64(0)),
    }
}

/// Checks dtype, layout and alignment of every operand. Which operand is an integer is the graph's shape rule.
fn check_types(op: &'static str, given: &[Operand<'_>]) -> Result<(), KernelError> {
    for (index, operand) in given.iter().enumerate() {
        let name = || format!("operand {index}");
        let known = matches!(operand.ty.dtype, DType::F32 | DType::I32 | DType::U64 | DType::U8);
        if !known || operand.ty.layout != Layout::default() {
            return Err(KernelError::Type { op, operand: name(), found: Box::new(operand.ty.clone()) });
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
        Some(slice) => Err(KernelError::Sliced { op, operand: "parameters", stride: slice.batch_stride }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
