//! A convolution problem as cuDNN's operation graph: one node, three with bias and ReLU, two with statistics.

use vdnn_cudnn_sys::sys::{
    cudnnBackendAttributeName_t as A, cudnnBackendAttributeType_t as T, cudnnBackendDescriptorType_t as D,
    cudnnConvolutionMode_t, cudnnDataType_t, cudnnGenStatsMode_t, cudnnPointwiseMode_t as Mode,
};
use vdnn_tensor::DType;

use super::descriptor::{Descriptor, Target};
use super::problem::{ConvolutionProblem, Direction, Epilogue};
use crate::CudaError;

/// Names of the tensors in a variant pack.
pub(super) const X: i64 = 1;
pub(super) const W: i64 = 2;
pub(super) const Y: i64 = 3;
pub(super) const BIAS: i64 = 4;
pub(super) const SUM: i64 = 5;
pub(super) const SQUARES: i64 = 6;
/// Bytes that addresses of sums are multiples of.
pub(super) const SUMS_ALIGNMENT: u64 = 16;
/// What lies between the nodes and is never written.
const PRODUCT: i64 = 100;
const BIASED: i64 = 101;

/// The graph, with the descriptors that it refers to.
#[derive(Debug)]
pub(super) struct OperationGraph {
    pub(super) graph: Descriptor,
    _parts: Vec<Descriptor>,
}

impl OperationGraph {
    /// Builds the graph for a device.
    pub(super) fn new(target: Target<'_>, problem: &ConvolutionProblem) -> Result<Self, CudaError> {
        problem.validate()?;
        let x = tensor(target, problem, X, problem.x())?.finalize()?;
        let w = tensor(target, problem, W, problem.filter())?.finalize()?;
        let y = tensor(target, problem, Y, problem.y()?)?.finalize()?;
        let convolution = convolution(target, problem)?;
        let (mut parts, operations) = match problem.epilogue {
            Epilogue::None => (Vec::new(), vec![operation(target, problem.direction, &convolution, [&x, &w, &y])?]),
            Epilogue::BiasRelu => bias_relu(target, problem, &convolution, [&x, &w, &y])?,
            Epilogue::Statistics => statistics(target, problem, &convolution, [&x, &w, &y])?,
        };
        let graph = Descriptor::new(target.cudnn(), D::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
            .descriptors(A::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations.iter().collect::<Vec<_>>())?;
        let graph = target.name_to(graph, Some(A::CUDNN_ATTR_OPERATIONGRAPH_HANDLE), None)?.finalize()?;
        parts.extend([x, w, y, convolution]);
        parts.extend(operations);
        Ok(Self { graph, _parts: parts })
    }

    /// How many engines cuDNN has for such a graph, usable or not.
    pub(super) fn engine_count(&self) -> i64 {
        self.graph.get_int64(A::CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT).unwrap_or(0)
    }
}

fn data_type(dtype: DType) -> cudnnDataType_t {
    match dtype {
        DType::F16 => cudnnDataType_t::CUDNN_DATA_HALF,
        DType::BF16 => cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        // `validate` lets no other type pass.
        _ => cudnnDataType_t::CUDNN_DATA_FLOAT,
    }
}

fn tensor(
    target: Target<'_>,
    problem: &ConvolutionProblem,
    id: i64,
    (extents, strides): ([u64; 4], [u64; 4]),
) -> Result<Descriptor, CudaError> {
    Descriptor::new(target.cudnn(), D::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
        .int64(A::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id])?
        .set(A::CUDNN_ATTR_TENSOR_DATA_TYPE, T::CUDNN_TYPE_DATA_TYPE, &[data_type(problem.dtype)])?
        .int64(A::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[problem.alignment as i64])?
        .int64(A::CUDNN_ATTR_TENSOR_DIMENSIONS, &extents.map(|e| e as i64))?
        .int64(A::CUDNN_ATTR_TENSOR_STRIDES, &strides.map(|s| s as i64))
}

/// Convolution, bias, ReLU: the tensors between and the operations.
fn bias_relu(
    target: Target<'_>,
    problem: &ConvolutionProblem,
    conv: &Descriptor,
    [x, w, y]: [&Descriptor; 3],
) -> Result<(Vec<Descriptor>, Vec<Descriptor>), CudaError> {
    let between = |id| -> Result<Descriptor, CudaError> {
        let f32 = ConvolutionProblem { dtype: DType::F32, ..*problem };
        let virtual_at = A::CUDNN_ATTR_TENSOR_IS_VIRTUAL;
        tensor(target, &f32, id, problem.y()?)?.set(virtual_at, T::CUDNN_TYPE_BOOLEAN, &[true])?.finalize()
    };
    let (product, biased) = (between(PRODUCT)?, between(BIASED)?);
    let bias = tensor(target, problem, BIAS, problem.per_channel())?.finalize()?;
    let mode = |mode: Mode| {
        Descriptor::new(target.cudnn(), D::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
            .set(A::CUDNN_ATTR_POINTWISE_MODE, T::CUDNN_TYPE_POINTWISE_MODE, &[mode])?
            .set(A::CUDNN_ATTR_POINTWISE_MATH_PREC, T::CUDNN_TYPE_DATA_TYPE, &[cudnnDataType_t::CUDNN_DATA_FLOAT])?
            .finalize()
    };
    let (add, relu) = (mode(Mode::CUDNN_POINTWISE_ADD)?, mode(Mode::CUDNN_POINTWISE_RELU_FWD)?);
    let pointwise = |mode: &Descriptor, x: &Descriptor, y: &Descriptor| {
        Descriptor::new(target.cudnn(), D::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?
            .descriptors(A::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[mode])?
            .descriptors(A::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[x])?
            .descriptors(A::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[y])
    };
    let operations = vec![
        operation(target, problem.direction, conv, [x, w, &product])?,
        pointwise(&add, &product, &biased)?
            .descriptors(A::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &[&bias])?
            .finalize()?,
        pointwise(&relu, &biased, y)?.finalize()?,
    ];
    Ok((vec![product, biased, bias, add, relu], operations))
}

/// Convolution, and the sums of Y's channels and of their squares in f32: the sums' tensors and the operations.
fn statistics(
    target: Target<'_>,
    problem: &ConvolutionProblem,
    conv: &Descriptor,
    [x, w, y]: [&Descriptor; 3],
) -> Result<(Vec<Descriptor>, Vec<Descriptor>), CudaError> {
    let f32s = ConvolutionProblem { dtype: DType::F32, alignment: SUMS_ALIGNMENT, ..*problem };
    let sums = |id| tensor(target, &f32s, id, problem.per_channel())?.finalize();
    let (sum, squares) = (sums(SUM)?, sums(SQUARES)?);
    let mode = cudnnGenStatsMode_t::CUDNN_GENSTATS_SUM_SQSUM;
    let f32 = cudnnDataType_t::CUDNN_DATA_FLOAT;
    let operations = vec![
        operation(target, problem.direction, conv, [x, w, y])?,
        Descriptor::new(target.cudnn(), D::CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR)?
            .set(A::CUDNN_ATTR_OPERATION_GENSTATS_MODE, T::CUDNN_TYPE_GENSTATS_MODE, &[mode])?
            .set(A::CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, T::CUDNN_TYPE_DATA_TYPE, &[f32])?
            .descriptors(A::CUDNN_ATTR_OPERATION_GENSTATS_XDESC, &[y])?
            .descriptors(A::CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, &[&sum])?
            .descriptors(A::CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, &[&squares])?
            .finalize()?,
    ];
    Ok((vec![sum, squares], operations))
}

fn convolution(target: Target<'_>, problem: &ConvolutionProblem) -> Result<Descriptor, CudaError> {
    let mode = cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
    let padding = problem.padding.map(|p| p as i64);
    Descriptor::new(target.cudnn(), D::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
        .set(A::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, T::CUDNN_TYPE_DATA_TYPE, &[cudnnDataType_t::CUDNN_DATA_FLOAT])?
        .set(A::CUDNN_ATTR_CONVOLUTION_CONV_MODE, T::CUDNN_TYPE_CONVOLUTION_MODE, &[mode])?
        .int64(A::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2])?
        .int64(A::CUDNN_ATTR_CONVOLUTION_DILATIONS, &problem.dilation.map(|d| d as i64))?
        .int64(A::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &problem.stride.map(|s| s as i64))?
        .int64(A::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &padding)?
        .int64(A::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &padding)?
        .finalize()
}

/// The kind of a direction's node and its attributes for convolution, X, W, Y, alpha and beta.
fn attributes(direction: Direction) -> (D, [A; 6]) {
    match direction {
        Direction::Forward => (
            D::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            [
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
            ],
        ),
        Direction::DataGradient => (
            D::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            [
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
            ],
        ),
        Direction::WeightGradient => (
            D::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            [
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                A::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
            ],
        ),
    }
}

fn operation(
    target: Target<'_>,
    direction: Direction,
    convolution: &Descriptor,
    [x, w, y]: [&Descriptor; 3],
) -> Result<Descriptor, CudaError> {
    let (kind, [conv_at, x_at, w_at, y_at, alpha_at, beta_at]) = attributes(direction);
    Descriptor::new(target.cudnn(), kind)?
        .descriptors(conv_at, &[convolution])?
        .descriptors(x_at, &[x])?
        .descriptors(w_at, &[w])?
        .descriptors(y_at, &[y])?
        .float(alpha_at, 1.0)?
        .float(beta_at, 0.0)?
        .finalize()
}
