//! Layers in half precision, channels innermost: what cuDNN is asked for with NVIDIA's wheels alone (`tests/wheels.rs`) is what
//! is run on a GPU (`examples/cuda_smoke`).

use vdnn_cuda::cudnn::{ConvolutionProblem, Direction, Epilogue, Order};
use vdnn_tensor::DType;

/// A convolution of X `[N, C, H, W]` to so many channels by a square filter of a size, with a stride and padding.
pub type Layer = ([u64; 4], u64, u64, u64, u64);

/// ResNet-50's layers, its unfolded stem, and a few odd ones, for which there are plans that sum their output in f16.
pub const SUMMED: [Layer; 10] = [
    ([32, 64, 56, 56], 64, 3, 1, 1),
    ([32, 64, 56, 56], 256, 1, 1, 0),
    ([32, 256, 56, 56], 64, 1, 1, 0),
    ([32, 256, 56, 56], 512, 1, 2, 0),
    ([32, 128, 56, 56], 128, 3, 2, 1),
    ([256, 512, 7, 7], 2048, 1, 1, 0),
    ([32, 16, 112, 112], 64, 4, 1, 0),
    ([2, 24, 9, 9], 40, 1, 1, 0),
    ([3, 32, 9, 9], 16, 1, 2, 0),
    ([4, 16, 14, 14], 24, 3, 1, 1),
];

/// A layer as cuDNN sees it.
pub fn problem((x, k, filter, stride, padding): Layer, dtype: DType, epilogue: Epilogue) -> ConvolutionProblem {
    let dense = ConvolutionProblem::dense(Direction::Forward, x, k, filter, stride, padding);
    ConvolutionProblem { dtype, order: Order::Nhwc, epilogue, ..dense }
}
