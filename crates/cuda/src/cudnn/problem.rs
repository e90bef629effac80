//! One convolution, in one of its three directions, as numbers.

use std::fmt;

use vdnn_tensor::DType;

use crate::CudaError;

/// Which of the three convolutions of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Y from X and W.
    Forward,
    /// dX from W and dY.
    DataGradient,
    /// dW from X and dY.
    WeightGradient,
}

impl Direction {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Forward, Self::DataGradient, Self::WeightGradient];
}

/// What else a forward convolution does while it writes Y.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Epilogue {
    /// Nothing.
    #[default]
    None,
    /// Adds a bias `[K]` of the operands' type and clips at zero before Y is written.
    BiasRelu,
    /// Sums the numbers of each channel of Y, and their squares: f32 `[K]` each.
    Statistics,
}

/// How f32 operands are multiplied. Other types always use tensor cores where there are any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Precision {
    /// In single precision: no plan that uses tensor cores or rounds its inputs.
    Fp32,
    /// Rounded to TF32's 10 bits where a plan likes to.
    Tf32,
}

/// Order of the elements in memory, the same for X, W (read N as K) and Y.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// `[N, C, H, W]`.
    Nchw,
    /// `[N, H, W, C]`.
    Nhwc,
}

/// A convolution X `[N, C, H, W]`, W `[K, C / groups, KH, KW]`, Y `[N, K, OH, OW]`.
///
/// Samples of X and Y may lie further apart than they are long, because a value can be a slice of a concatenation; in NHWC
/// order pixels do, so a sample's distance is that of its pixels times their number. Padding channels count among `c`.
/// What follows a convolution is a kernel of its own, unless an epilogue takes it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConvolutionProblem {
    /// What is computed.
    pub direction: Direction,
    /// Type of X, W, Y and their gradients; sums are f32.
    pub dtype: DType,
    /// For f32: whether TF32 is allowed.
    pub precision: Precision,
    /// Order of elements.
    pub order: Order,
    /// Samples.
    pub n: u64,
    /// Input channels.
    pub c: u64,
    /// Input rows.
    pub h: u64,
    /// Input columns.
    pub w: u64,
    /// Output channels.
    pub k: u64,
    /// Filter rows.
    pub kh: u64,
    /// Filter columns.
    pub kw: u64,
    /// Steps of the filter, in rows and columns.
    pub stride: [u64; 2],
    /// Zeros on each side.
    pub padding: [u64; 2],
    /// Distance of the filter's taps.
    pub dilation: [u64; 2],
    /// Groups of channels.
    pub groups: u64,
    /// What a forward convolution takes in.
    pub epilogue: Epilogue,
    /// Elements from one sample of X to the next.
    pub x_batch_stride: u64,
    /// Elements from one sample of Y to the next.
    pub y_batch_stride: u64,
    /// Every address is a multiple of so many bytes: 16 unless values lie at odd places of a concatenation.
    pub alignment: u64,
}

impl ConvolutionProblem {
    /// A dense f32 NCHW problem: X `[n, c, h, w]`, a square filter, equal strides and paddings, no dilation, one group.
    pub fn dense(direction: Direction, x: [u64; 4], k: u64, filter: u64, stride: u64, padding: u64) -> Self {
        let [n, c, h, w] = x;
        let mut problem = Self {
            direction,
            dtype: DType::F32,
            precision: Precision::Fp32,
            order: Order::Nchw,
            n,
            c,
            h,
            w,
            k,
            kh: filter,
            kw: filter,
            stride: [stride; 2],
            padding: [padding; 2],
            dilation: [1; 2],
            groups: 1,
            epilogue: Epilogue::None,
            x_batch_stride: 0,
            y_batch_stride: 0,
            alignment: 16,
        };
        problem.pack();
        problem
    }

    /// Sets both batch strides to the length of a sample.
    pub fn pack(&mut self) {
        self.x_batch_stride = self.c * self.h * self.w;
        self.y_batch_stride = self.output().map_or(0, |[oh, ow]| self.k * oh * ow);
    }

    /// (OH, OW), or why there is none.
    pub fn output(&self) -> Result<[u64; 2], CudaError> {
        let one = |axis: usize, input: u64, filter: u64| {
            let reach = self.dilation[axis].saturating_mul(filter.saturating_sub(1)).saturating_add(1);
            let padded = input.saturating_add(self.padding[axis].saturating_mul(2));
            match padded.checked_sub(reach) {
                Some(room) if self.stride[axis] > 0 => Ok(room / self.stride[axis] + 1),
                Some(_) => Err(self.impossible("a stride of 0")),
                None => Err(self.impossible("the filter is larger than the padded input")),
            }
        };
        Ok([one(0, self.h, self.kh)?, one(1, self.w, self.kw)?])
    }

    /// Checks that the numbers describe a convolution that computes something.
    pub fn validate(&self) -> Result<(), CudaError> {
        let extents = [self.n, self.c, self.h, self.w, self.k, self.kh, self.kw];
        if extents.contains(&0) {
            return Err(CudaError::EmptyConvolution { problem: self.to_string() });
        }
        let [oh, ow] = self.output()?;
        if self.order == Order::Nhwc {
            let pixels = [(self.x_batch_stride, self.h * self.w), (self.y_batch_stride, oh * ow)];
            if pixels.iter().any(|(stride, pixels)| !stride.is_multiple_of(*pixels)) {
                return Err(self.impossible("a batch stride that is no whole number of elements a pixel"));
            }
        }
        if self.groups == 0 || !self.c.is_multiple_of(self.groups) || !self.k.is_multiple_of(self.groups) {
            return Err(self.impossible("the groups do not divide the channels"));
        }
        if self.dilation.contains(&0) {
            return Err(self.impossible("a dilation of 0"));
        }
        if !matches!(self.dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(self.impossible("cuDNN convolves f32, f16 and bf16 here"));
        }
        if self.epilogue != Epilogue::None && self.direction != Direction::Forward {
            return Err(self.impossible("bias and ReLU, or statistics, after a gradient"));
        }
        if self.x_batch_stride < self.c * self.h * self.w || self.y_batch_stride < self.k * oh * ow {
            return Err(self.impossible("a batch stride shorter than a sample"));
        }
        if !self.alignment.is_power_of_two() || self.alignment < self.dtype.size() {
            return Err(self.impossible("an alignment that is no power of two, or less than an element"));
        }
        Ok(())
    }

    /// Multiplications and additions: 2 · N · K · OH · OW · C / groups · KH · KW, the same in every direction.
    pub fn operations(&self) -> f64 {
        let [oh, ow] = self.output().unwrap_or([0, 0]);
        let factors = [self.n, self.k, oh, ow, self.c / self.groups.max(1), self.kh, self.kw];
        2.0 * factors.iter().map(|f| *f as f64).product::<f64>()
    }

    /// Extents and strides of X `[N, C, H, W]`, in elements.
    pub(super) fn x(&self) -> ([u64; 4], [u64; 4]) {
        self.tensor([self.n, self.c, self.h, self.w], self.x_batch_stride)
    }

    /// Extents and strides of W `[K, C / groups, KH, KW]`.
    pub(super) fn filter(&self) -> ([u64; 4], [u64; 4]) {
        let c = self.c / self.groups;
        self.tensor([self.k, c, self.kh, self.kw], c * self.kh * self.kw)
    }

    /// Extents and strides of Y `[N, K, OH, OW]`.
    pub(super) fn y(&self) -> Result<([u64; 4], [u64; 4]), CudaError> {
        let [oh, ow] = self.output()?;
        Ok(self.tensor([self.n, self.k, oh, ow], self.y_batch_stride))
    }

    /// Extents and strides of what there is one of a channel of Y: `[1, K, 1, 1]`.
    pub(super) fn per_channel(&self) -> ([u64; 4], [u64; 4]) {
        self.tensor([1, self.k, 1, 1], self.k)
    }

    fn tensor(&self, extents: [u64; 4], batch: u64) -> ([u64; 4], [u64; 4]) {
        let [_, c, h, w] = extents;
        let strides = match self.order {
            Order::Nchw => [batch, h * w, w, 1],
            // A slice of channels has its pixels further apart than they are long, all the same way.
            Order::Nhwc => {
                let pixel = batch.checked_div(h * w).unwrap_or(c);
                [batch, 1, w * pixel, pixel]
            }
        };
        (extents, strides)
    }

    fn impossible(&self, reason: &str) -> CudaError {
        CudaError::ConvolutionShape { problem: self.to_string(), reason: reason.into() }
    }
}

impl fmt::Display for ConvolutionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Forward => "forward",
            Direction::DataGradient => "data gradient",
            Direction::WeightGradient => "weight gradient",
        };
        let dtype = match (self.dtype, self.precision) {
            (DType::F32, Precision::Tf32) => "tf32",
            (dtype, _) => dtype.name(),
        };
        let order = if self.order == Order::Nchw { "nchw" } else { "nhwc" };
        let ([s0, s1], [p0, p1], [d0, d1]) = (self.stride, self.padding, self.dilation);
        write!(f, "{direction} {dtype} {order} {}x{}x{}x{}", self.n, self.c, self.h, self.w)?;
        write!(f, " to {} by {}x{} s{s0}x{s1} p{p0}x{p1} d{d0}x{d1} g{}", self.k, self.kh, self.kw, self.groups)?;
        write!(f, " x+{} y+{} a{}", self.x_batch_stride, self.y_batch_stride, self.alignment)?;
        f.write_str(match self.epilogue {
            Epilogue::None => "",
            Epilogue::BiasRelu => " bias relu",
            Epilogue::Statistics => " statistics",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem() -> ConvolutionProblem {
        ConvolutionProblem::dense(Direction::Forward, [2, 8, 9, 7], 16, 3, 2, 1)
    }

    #[test]
    fn output_extents_follow_stride_padding_and_dilation() {
        assert_eq!(problem().output().unwrap(), [5, 4]);
        let dilated = ConvolutionProblem { dilation: [2, 3], stride: [1, 1], ..problem() };
        assert_eq!(dilated.output().unwrap(), [7, 3]);
    }

    #[test]
    fn nothing_to_do_is_an_error_of_its_own() {
        for empty in [ConvolutionProblem { n: 0, ..problem() }, ConvolutionProblem { k: 0, ..problem() }] {
            assert!(matches!(empty.validate(), Err(CudaError::EmptyConvolution { .. })));
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        let wrong = [
            ConvolutionProblem { groups: 3, ..problem() },
            ConvolutionProblem { stride: [0, 1], ..problem() },
            ConvolutionProblem { kh: 12, ..problem() },
            ConvolutionProblem { x_batch_stride: 8 * 9 * 7 - 1, ..problem() },
            ConvolutionProblem { alignment: 2, ..problem() },
            ConvolutionProblem { epilogue: Epilogue::BiasRelu, direction: Direction::DataGradient, ..problem() },
            ConvolutionProblem { epilogue: Epilogue::Statistics, direction: Direction::WeightGradient, ..problem() },
            ConvolutionProblem { dtype: DType::I32, ..problem() },
        ];
        for problem in wrong {
            assert!(matches!(problem.validate(), Err(CudaError::ConvolutionShape { .. })), "{problem}");
        }
        assert!(problem().validate().is_ok());
    }

    #[test]
    fn strides_follow_the_order() {
        assert_eq!(problem().x().1, [504, 63, 7, 1]);
        assert_eq!(ConvolutionProblem { order: Order::Nhwc, ..problem() }.x().1, [504, 1, 56, 8]);
        let apart = ConvolutionProblem { order: Order::Nhwc, x_batch_stride: 63 * 24, ..problem() };
        assert_eq!(apart.x().1, [63 * 24, 1, 7 * 24, 24]);
        let torn = ConvolutionProblem { x_batch_stride: 63 * 24 + 1, ..apart };
        assert!(apart.validate().is_ok() && torn.validate().is_err());
        let slice = ConvolutionProblem { y_batch_stride: 1000, ..problem() };
        assert_eq!(slice.y().unwrap(), ([2, 16, 5, 4], [1000, 20, 4, 1]));
    }
}
