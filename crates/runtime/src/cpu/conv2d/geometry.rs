//! The sizes of a convolution, and which output pixels a tap reaches.

use crate::cpu::launch::Launch;
use std::ops::Range;
use vdnn_graph::op::Conv2d;
use vdnn_tensor::TensorType;

/// All sizes; pairs are (height, width).
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// Samples.
    pub n: usize,
    /// Input channels.
    pub c: usize,
    /// Output channels.
    pub k: usize,
    /// Size of X.
    pub input: [usize; 2],
    /// Size of Y.
    pub output: [usize; 2],
    /// Size of the kernel.
    pub kernel: [usize; 2],
    /// Distance between windows.
    pub stride: [usize; 2],
    /// Zeros on each side.
    pub padding: [usize; 2],
    /// Distance between taps.
    pub dilation: [usize; 2],
    /// Groups of channels.
    pub groups: usize,
}

impl Geometry {
    /// From the types of X, W and Y.
    pub fn new(conv: &Conv2d, x: &TensorType, w: &TensorType, y: &TensorType) -> Self {
        let dim = |ty: &TensorType, axis: usize| ty.shape.dim(axis) as usize;
        let pair = |pair: [u64; 2]| pair.map(|size| size as usize);
        Geometry {
            n: dim(x, 0),
            c: dim(x, 1),
            k: dim(y, 1),
            input: [dim(x, 2), dim(x, 3)],
            output: [dim(y, 2), dim(y, 3)],
            kernel: [dim(w, 2), dim(w, 3)],
            stride: pair(conv.stride),
            padding: pair(conv.padding),
            dilation: pair(conv.dilation),
            groups: conv.groups as usize,
        }
    }

    /// Of the forward (X, W) → Y.
    pub fn of_forward(conv: &Conv2d, launch: &Launch<'_>) -> Self {
        Self::new(conv, &launch.input_types[0], &launch.input_types[1], &launch.output_types[0])
    }

    /// Pixels of a plane of X.
    pub fn input_plane(&self) -> usize {
        self.input[0] * self.input[1]
    }

    /// Pixels of a plane of Y.
    pub fn output_plane(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Input channels of a group.
    pub fn c_group(&self) -> usize {
        self.c / self.groups
    }

    /// Output channels of a group.
    pub fn k_group(&self) -> usize {
        self.k / self.groups
    }

    /// Taps of a kernel.
    pub fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Weights of one output channel: C/G · kh · kw, the depth of the matrix product.
    pub fn depth(&self) -> usize {
        self.c_group() * self.taps()
    }

    /// True when the columns of a sample are its pixels: a 1×1 kernel, stride 1, no padding.
    pub fn is_pointwise(&self) -> bool {
        self.taps() == 1 && self.stride == [1; 2] && self.padding == [0; 2]
    }

    /// Row and column of tap `tap` in the kernel.
    pub fn tap(&self, tap: usize) -> [usize; 2] {
        [tap / self.kernel[1], tap % self.kernel[1]]
    }

    /// Output indices along an axis for which tap `tap` lies within the image.
    pub fn reached(&self, axis: usize, tap: usize) -> Range<usize> {
        let (stride, offset) = (self.stride[axis], tap * self.dilation[axis]);
        let start = self.padding[axis].saturating_sub(offset).div_ceil(stride);
        let end = (self.input[axis] + self.padding[axis]).saturating_sub(offset).div_ceil(stride);
        let end = end.min(self.output[axis]);
        start.min(end)..end
    }

    /// The input index output `index` reads with tap `tap`, for an index within [`Geometry::reached`].
    pub fn source(&self, axis: usize, tap: usize, index: usize) -> usize {
        index * self.stride[axis] + tap * self.dilation[axis] - self.padding[axis]
    }
}
