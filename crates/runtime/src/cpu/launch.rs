//! One kernel launch: which op, on which operands, by which algorithm; and what algorithms there are.
//!
//! A launch takes no decision and allocates nothing of the size of an operand: an algorithm's scratch memory is the
//! workspace it is given. Results never depend on the number of threads: work is cut into fixed pieces and sums run in a
//! fixed order.

use super::operand::{Input, Output, Source};
use super::real::Real;
use super::{
    accuracy, adam, adaptive_avg_pool2d, add, avg_pool2d, batch_norm, batch_norm_add_relu, batch_norm_pair_relu,
    batch_norm_relu, batch_norm_relu_max_pool2d, bias, by_way_of_f32, cast, concat, conv2d, conv2d_relu, conv2d_stats,
    dropout, flatten, group, linear, local_response_norm, loss_scale_update, max_pool2d, normalise, relu, sgd,
    softmax_cross_entropy, unfold, unscale,
};
use crate::{DeviceError, View, ViewMut};
use vdnn_graph::Op;
use vdnn_tensor::{DType, Layout, TensorType};

/// Everything one kernel needs.
pub struct Launch<'a> {
    /// The node's name, for messages.
    pub node: &'a str,
    /// What to compute.
    pub op: &'a Op,
    /// Types of the inputs, in the op's order.
    pub input_types: &'a [TensorType],
    /// Types of the outputs, in the op's order.
    pub output_types: &'a [TensorType],
    /// One of the names [`choices`](super::choices) gave for the node.
    pub algorithm: &'a str,
    /// The inputs, in the op's order.
    pub inputs: Vec<Input<'a>>,
    /// The outputs, in the op's order.
    pub outputs: Vec<Output<'a>>,
    /// At least the bytes the choice asks for, aligned to 8 bytes; `None` when it asks for none.
    pub workspace: Option<&'a mut [u8]>,
}

/// Runs one kernel to its end, on the current rayon pool.
///
/// # Errors
/// [`DeviceError::Unsupported`] for a dtype or layout no kernel takes, [`DeviceError::Kernel`] for operands, workspace,
/// algorithm or values (a label out of range) that the kernel cannot take.
pub fn launch(launch: Launch<'_>) -> Result<(), DeviceError> {
    if let Op::Group(op) = launch.op {
        return group::run(op, launch);
    }
    if let Op::Conv2dStats(op) = launch.op {
        return conv2d_stats::run(op, launch);
    }
    if batch_norm_pair_relu::is_pair(launch.op) {
        return batch_norm_pair_relu::run(launch);
    }
    if let Some(plan) = by_way_of_f32::Plan::of(launch.op, launch.input_types, launch.output_types) {
        return plan.run(launch);
    }
    match supported(launch.op, launch.input_types, launch.output_types)? {
        DType::U8 => bytes(launch),
        DType::F64 => run::<f64>(launch),
        _ => run::<f32>(launch),
    }
}

/// The dtype kernels compute in, when there is a kernel.
pub(super) fn supported(op: &Op, inputs: &[TensorType], outputs: &[TensorType]) -> Result<DType, DeviceError> {
    let mut all = inputs.iter().chain(outputs);
    if matches!(op, Op::Cast(_)) && all.clone().all(cast::takes) {
        return Ok(DType::F32);
    }
    let plain = all.all(|ty| ty.layout == Layout::default() && !ty.dtype.is_half());
    match outputs.first().map(|ty| ty.dtype) {
        Some(dtype @ (DType::F32 | DType::F64)) if plain => Ok(dtype),
        Some(DType::U8) if plain && matches!(op, Op::Split(_)) => Ok(DType::U8),
        _ => Err(DeviceError::Unsupported {
            device: "cpu (f32 and f64 in NCHW order; f32, f16 and bf16 in both orders)".to_string(),
            op: op.kind().to_string(),
            operands: inputs.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", "),
        }),
    }
}

/// What images are put through while they are bytes.
fn bytes(launch: Launch<'_>) -> Result<(), DeviceError> {
    match launch.op {
        Op::Split(op) => concat::split_bytes(launch, op.axis),
        _ => unreachable!("`supported` names bytes for a split alone"),
    }
}

fn run<T: Real>(launch: Launch<'_>) -> Result<(), DeviceError> {
    match launch.op {
        Op::Conv2d(op) => conv2d::forward::<T>(op, launch),
        Op::Conv2dRelu(op) => conv2d_relu::forward::<T>(op, launch),
        Op::Conv2dStats(op) => conv2d_stats::run(op, launch),
        Op::ReluBiasGrad => conv2d_relu::bias_grad::<T>(launch),
        Op::Conv2dDataGrad(op) => conv2d::data_grad::<T>(op, launch),
        Op::Conv2dWeightGrad(op) => conv2d::weight_grad::<T>(op, launch),
        Op::BiasGrad => bias::grad::<T>(launch),
        Op::BatchNormStats => batch_norm::stats::<T>(launch),
        Op::BatchNorm(op) => batch_norm::forward::<T>(op, launch),
        Op::BatchNormUpdate(op) => batch_norm::update::<T>(op, launch),
        Op::BatchNormGrad(op) => batch_norm::grad::<T>(op, launch),
        Op::BatchNormRelu(op) => batch_norm_relu::forward::<T>(op, launch),
        Op::BatchNormReluGrad(op) => batch_norm_relu::grad::<T>(op, launch),
        Op::BatchNormAddRelu(op) => batch_norm_add_relu::forward::<T>(op, launch),
        Op::BatchNormAddReluGrad(op) => batch_norm_add_relu::grad::<T>(op, launch),
        Op::BatchNormPairRelu(_) | Op::BatchNormPairReluGrad(_) => batch_norm_pair_relu::run(launch),
        Op::BatchNormReluMaxPool2d(op) => batch_norm_relu_max_pool2d::forward::<T>(op, launch),
        Op::BatchNormReluMaxPool2dGrad(op) => batch_norm_relu_max_pool2d::grad::<T>(op, launch),
        Op::Cast(_) => cast::forward(launch),
        Op::Unfold(op) => unfold::forward::<T>(op, launch),
        Op::UnfoldGrad(op) => unfold::grad::<T>(op, launch),
        Op::Normalise(op) => normalise::forward::<T>(op, launch),
        Op::Relu => relu::forward::<T>(launch),
        Op::ReluGrad => relu::grad::<T>(launch),
        Op::ReluMask => relu::forward_masked::<T>(launch),
        Op::ReluMaskGrad => relu::grad_masked::<T>(launch),
        Op::MaxPool2d(op) => max_pool2d::forward::<T>(op, launch),
        Op::MaxPool2dGrad(op) => max_pool2d::grad::<T>(op, launch),
        Op::MaxPool2dIndices(op) => max_pool2d::forward_indexed::<T>(op, launch),
        Op::MaxPool2dIndicesGrad(op) => max_pool2d::grad_indexed::<T>(&op.pool, launch),
        Op::MaxPool2dReluBiasGrad(op) => max_pool2d::grad_relu_bias::<T>(&op.pool, launch),
        Op::AvgPool2d(op) => avg_pool2d::forward::<T>(op, launch),
        Op::AvgPool2dGrad(op) => avg_pool2d::grad::<T>(op, launch),
        Op::AdaptiveAvgPool2d(_) => adaptive_avg_pool2d::forward::<T>(launch),
        Op::AdaptiveAvgPool2dGrad(_) => adaptive_avg_pool2d::grad::<T>(launch),
        Op::LocalResponseNorm(op) => local_response_norm::forward::<T>(op, launch),
        Op::LocalResponseNormGrad(op) => local_response_norm::grad::<T>(op, launch),
        Op::Linear => linear::forward::<T>(launch),
        Op::LinearDataGrad => linear::data_grad::<T>(launch),
        Op::LinearWeightGrad => linear::weight_grad::<T>(launch),
        Op::Add => add::forward::<T>(launch),
        Op::Concat(op) => concat::forward::<T>(launch, op.axis),
        Op::Split(op) => concat::split::<T>(launch, op.axis),
        Op::Flatten | Op::Unflatten(_) => flatten::copy::<T>(launch),
        Op::Dropout(op) | Op::DropoutGrad(op) => dropout::mask::<T>(op, launch),
        Op::SoftmaxCrossEntropy(op) => softmax_cross_entropy::forward::<T>(op, launch),
        Op::SoftmaxCrossEntropyGrad(op) => softmax_cross_entropy::grad::<T>(op, launch),
        Op::Accuracy => accuracy::forward::<T>(launch),
        Op::Unscale(op) => unscale::forward::<T>(op, launch),
        Op::LossScaleUpdate(op) => loss_scale_update::update::<T>(op, launch),
        Op::Sgd(op) => sgd::update::<T>(op, launch),
        Op::Adam(op) => adam::update::<T>(op, launch),
        Op::Group(op) => group::run(op, launch),
    }
}

impl<'a> Launch<'a> {
    /// A failure of this launch.
    pub(super) fn refuse(&self, reason: impl Into<String>) -> DeviceError {
        DeviceError::Kernel {
            node: self.node.to_string(),
            algorithm: self.algorithm.to_string(),
            reason: reason.into(),
        }
    }

    /// Number of samples of the first input.
    pub(super) fn samples(&self) -> usize {
        self.input_types[0].shape.samples() as usize
    }

    /// `[N, C, H, W]` of an input; missing dimensions count as 1.
    pub(super) fn input_dims(&self, index: usize) -> [usize; 4] {
        std::array::from_fn(|axis| self.input_types[index].shape.dim(axis) as usize)
    }

    /// `[N, C, H, W]` of an output; missing dimensions count as 1.
    pub(super) fn output_dims(&self, index: usize) -> [usize; 4] {
        std::array::from_fn(|axis| self.output_types[index].shape.dim(axis) as usize)
    }

    /// An input that is not in place.
    pub(super) fn input<T: Real>(&self, index: usize) -> Result<View<'a, T>, DeviceError> {
        let operand = self.inputs.get(index).ok_or_else(|| self.refuse(format!("input {index} is missing")))?;
        let view = T::input(operand)
            .ok_or_else(|| self.refuse(format!("expected input {index} as {}, found {}", T::DTYPE, operand.kind())))?;
        self.check_len("input", index, &self.input_types[index], view.len())?;
        Ok(view)
    }

    /// An input that may lie under output `output`; then `None`.
    pub(super) fn source<T: Real>(&self, index: usize, output: usize) -> Result<Source<'a, T>, DeviceError> {
        match self.inputs.get(index) {
            Some(Input::InPlace(over)) if *over == output => Ok(None),
            _ => self.input(index).map(Some),
        }
    }

    /// True when this input shares an output's bytes.
    pub(super) fn is_in_place(&self, index: usize) -> bool {
        matches!(self.inputs.get(index), Some(Input::InPlace(_)))
    }

    /// The labels.
    pub(super) fn labels(&self, index: usize) -> Result<View<'a, i32>, DeviceError> {
        match self.inputs.get(index) {
            Some(Input::I32(view)) => Ok(*view),
            _ => Err(self.refuse(format!("expected input {index} as i32 labels"))),
        }
    }

    /// The iteration counter.
    pub(super) fn iteration(&self, index: usize) -> Result<u64, DeviceError> {
        match self.inputs.get(index) {
            Some(Input::U64(view)) if view.len() == 1 => Ok(view.part(0, 1)[0]),
            _ => Err(self.refuse(format!("expected input {index} as the u64 iteration counter"))),
        }
    }

    /// True when the optional guard at `index` is absent or finite.
    pub(super) fn guard<T: Real>(&self, index: usize) -> Result<bool, DeviceError> {
        if index < self.inputs.len() { Ok(self.scalar::<T>(index)?.wide().is_finite()) } else { Ok(true) }
    }

    /// A scalar input.
    pub(super) fn scalar<T: Real>(&self, index: usize) -> Result<T, DeviceError> {
        Ok(self.input::<T>(index)?.part(0, 1)[0])
    }

    /// A mask or indices.
    pub(super) fn bytes(&self, index: usize) -> Result<View<'a, u8>, DeviceError> {
        let Some(Input::U8(view)) = self.inputs.get(index) else {
            return Err(self.refuse(format!("expected input {index} as bytes")));
        };
        self.check_len("input", index, &self.input_types[index], view.len())?;
        Ok(*view)
    }

    /// Takes an output of bytes.
    pub(super) fn byte_output(&mut self, index: usize) -> Result<ViewMut<'a, u8>, DeviceError> {
        let operand = self.take_output(index)?;
        let kind = operand.kind();
        let Output::U8(view) = operand else {
            return Err(self.refuse(format!("expected output {index} as bytes, found {kind}")));
        };
        self.check_len("output", index, &self.output_types[index], view.len())?;
        Ok(view)
    }

    /// Takes an output of any type.
    pub(super) fn take_output(&mut self, index: usize) -> Result<Output<'a>, DeviceError> {
        let slot = self.outputs.get_mut(index).map(|slot| std::mem::replace(slot, Output::InPlace(0)));
        slot.ok_or_else(|| self.refuse(format!("output {index} is missing")))
    }

    /// Takes an output, which must not be in place.
    pub(super) fn output<T: Real>(&mut self, index: usize) -> Result<ViewMut<'a, T>, DeviceError> {
        let operand = self.take_output(index)?;
        let kind = operand.kind();
        let view = T::output(operand)
            .ok_or_else(|| self.refuse(format!("expected output {index} as {}, found {kind}", T::DTYPE)))?;
        self.check_len("output", index, &self.output_types[index], view.len())?;
        Ok(view)
    }

    /// The first `elements` elements of the workspace.
    pub(super) fn scratch<T: Real>(&mut self, elements: usize) -> Result<&'a mut [T], DeviceError> {
        let bytes: &'a mut [u8] = self.workspace.take().unwrap_or_default();
        let (found, expected) = (bytes.len(), elements * size_of::<T>());
        if found < expected {
            return Err(self.refuse(format!("expected a workspace of {expected} bytes, found {found}")));
        }
        if elements == 0 {
            return Ok(&mut []);
        }
        bytemuck::try_cast_slice_mut(&mut bytes[..expected])
            .map_err(|_| self.refuse(format!("expected a workspace aligned to {} bytes", size_of::<T>())))
    }

    fn check_len(&self, what: &str, index: usize, ty: &TensorType, found: usize) -> Result<(), DeviceError> {
        if ty.shape.elements() == found as u64 {
            return Ok(());
        }
        Err(self.refuse(format!("expected {what} {index} to hold {ty}, found {found} elements")))
    }
}
