//! Convolution nodes as cuDNN's problems.

use vdnn_graph::Op;
use vdnn_graph::op::Conv2d;
use vdnn_tensor::{DType, Layout, MemoryOrder};

use super::site::Site;
use crate::cudnn::{ConvolutionProblem, Direction, Epilogue, Order, Precision};
use crate::kernels::Operand;

/// Alignment in bytes beyond which cuDNN's kernels get no better.
const BEST_ALIGNMENT: u64 = 16;

/// What stands before the name of a plan with an epilogue.
const EPILOGUES: [(&str, Epilogue); 2] = [("bias_relu_", Epilogue::BiasRelu), ("stats_", Epilogue::Statistics)];

/// The algorithm's name of a plan with an epilogue.
pub(super) fn join_epilogue(epilogue: Epilogue, plan: &str) -> String {
    let prefix = EPILOGUES.iter().find(|(_, found)| *found == epilogue).map_or("", |(prefix, _)| prefix);
    format!("{prefix}{plan}")
}

/// The plan's name and its epilogue.
pub(super) fn split_epilogue(name: &str) -> (&str, Epilogue) {
    let mut split = EPILOGUES.iter().filter_map(|&(prefix, epilogue)| Some((name.strip_prefix(prefix)?, epilogue)));
    split.next().unwrap_or((name, Epilogue::None))
}

/// Places of an epilogue's operands from the beginning of a plan's workspace on, and bytes of all: the bias in half precision, or
/// the two sums. An f32 bias is read where it is.
pub(super) fn epilogue_places(problem: &ConvolutionProblem) -> ([u64; 2], u64) {
    let vector = |size: u64| (problem.k * size).next_multiple_of(256);
    match problem.epilogue {
        Epilogue::None => ([0; 2], 0),
        Epilogue::BiasRelu if problem.dtype == DType::F32 => ([0; 2], 0),
        Epilogue::BiasRelu => ([0; 2], vector(problem.dtype.size())),
        Epilogue::Statistics => ([0, vector(4)], 2 * vector(4)),
    }
}

/// A convolution with its operands X, W, Y (or their gradients).
#[derive(Clone, Debug)]
pub(super) struct Convolution<'a> {
    pub problem: ConvolutionProblem,
    pub operands: [Operand<'a>; 3],
}

/// A convolution in pieces of the batch: one problem, and where the operands of each piece begin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cut {
    pub problem: ConvolutionProblem,
    /// Addresses of X, W and Y, piece by piece.
    pub addresses: Vec<[u64; 3]>,
}

impl Convolution<'_> {
    /// The same in so many pieces; `None` where the samples do not divide.
    pub fn cut(&self, pieces: u64) -> Option<Cut> {
        if pieces == 0 || !self.problem.n.is_multiple_of(pieces) {
            return None;
        }
        let n = self.problem.n / pieces;
        let [x, w, y] = &self.operands;
        let sample = |of: &Operand<'_>| of.rows() / of.samples().max(1) * of.row_stride * of.ty.dtype.size();
        let start = |of: &Operand<'_>, piece: u64| of.address + piece * n * sample(of);
        let addresses: Vec<[u64; 3]> = (0..pieces).map(|piece| [start(x, piece), w.address, start(y, piece)]).collect();
        let mut problem = ConvolutionProblem { n, ..self.problem };
        problem.alignment = addresses.iter().flatten().map(|&address| alignment(address)).min()?;
        if n == 1 && problem.order == Order::Nchw {
            problem.pack();
        }
        Some(Cut { problem, addresses })
    }

    /// The same with what the op does besides taken in; `None` where there is nothing, or no good kernels for it. A bias and ReLU
    /// where channels are innermost, in half precision and tf32; strict f32 has none. Statistics in f16: in bf16 cuDNN compiles
    /// them when a plan is made, and they run for two to four times as long.
    pub fn taking_in(&self, site: &Site<'_>) -> Option<Self> {
        let problem = &self.problem;
        let matrix_units = problem.dtype.is_half() || problem.precision == Precision::Tf32;
        let epilogue = match site.op {
            Op::Conv2dRelu(_) if site.inputs.len() > 2 && matrix_units && problem.order == Order::Nhwc => {
                Epilogue::BiasRelu
            }
            Op::Conv2dStats(_) if self.problem.dtype == DType::F16 => Epilogue::Statistics,
            _ => return None,
        };
        Some(Convolution { problem: ConvolutionProblem { epilogue, ..self.problem }, ..self.clone() })
    }

    /// False for weight gradients in half precision: their pieces' sums would be rounded one after the other.
    pub fn adds_pieces_exactly(&self) -> bool {
        self.problem.direction != Direction::WeightGradient || !self.problem.dtype.is_half()
    }

    /// True when there is nothing to compute. The result is then zero where it has elements.
    pub fn is_empty(&self) -> bool {
        let p = &self.problem;
        [p.n, p.c, p.h, p.w, p.k, p.kh, p.kw].contains(&0)
    }
}

/// The convolution of a launch; `None` for other ops.
pub(super) fn of<'a>(site: &Site<'a>) -> Option<Result<Convolution<'a>, String>> {
    let (inputs, outputs) = (&site.inputs, &site.outputs);
    let (direction, conv, [x, w, y]) = match site.op {
        Op::Conv2d(op) | Op::Conv2dRelu(op) | Op::Conv2dStats(op) => {
            (Direction::Forward, op, [inputs.first()?, inputs.get(1)?, outputs.first()?])
        }
        Op::Conv2dDataGrad(op) => {
            (Direction::DataGradient, &op.conv, [outputs.first()?, inputs.get(1)?, inputs.first()?])
        }
        Op::Conv2dWeightGrad(op) => {
            (Direction::WeightGradient, &op.conv, [inputs.first()?, outputs.first()?, inputs.get(1)?])
        }
        _ => return None,
    };
    Some(problem(site, direction, conv, [*x, *w, *y]))
}

fn problem<'a>(
    site: &Site<'a>,
    direction: Direction,
    conv: &Conv2d,
    operands: [Operand<'a>; 3],
) -> Result<Convolution<'a>, String> {
    let [x, w, y] = operands;
    let order = order_of(&operands)?;
    if !w.is_contiguous() {
        return Err("expected weights in one piece, found a slice".to_string());
    }
    let extents = |operand: &Operand<'_>| {
        operand.ty.shape.nchw().ok_or_else(|| format!("expected four dimensions, found {}", operand.ty))
    };
    let ([n, c, h, width], [k, _, kh, kw], [_, _, oh, ow]) = (extents(&x)?, extents(&w)?, extents(&y)?);
    // Padding channels are zeros in X and W, so they add nothing.
    let c = c + u64::from(x.ty.layout.channel_padding);
    let dtype = x.ty.dtype;
    let mut problem = ConvolutionProblem {
        direction,
        dtype,
        // What is multiplied in half precision knows no TF32: equal problems stay equal.
        precision: if dtype == DType::F32 { site.precision } else { Precision::Fp32 },
        order,
        n,
        c,
        h,
        w: width,
        k,
        kh,
        kw,
        stride: conv.stride,
        padding: conv.padding,
        dilation: conv.dilation,
        groups: conv.groups,
        epilogue: Epilogue::None,
        x_batch_stride: c * h * width,
        y_batch_stride: k * oh * ow,
        alignment: operands.iter().map(|operand| alignment(operand.address)).min().unwrap_or(BEST_ALIGNMENT),
    };
    // The distance of one sample to the next means nothing when there is one: equal problems stay equal.
    let apart = |operand: &Operand<'_>, pixels: u64| match order {
        Order::Nchw if n > 1 => Some(operand.row_stride),
        Order::Nhwc if n * pixels > 1 => Some(operand.row_stride * pixels),
        _ => None,
    };
    problem.x_batch_stride = apart(&x, h * width).unwrap_or(problem.x_batch_stride);
    problem.y_batch_stride = apart(&y, oh * ow).unwrap_or(problem.y_batch_stride);
    Ok(Convolution { problem, operands })
}

/// The order of all operands: NCHW of f32, NHWC of f32 and half precision, X and W with the same padding channels.
fn order_of([x, w, y]: &[Operand<'_>; 3]) -> Result<Order, String> {
    let nhwc = |channel_padding| Layout { order: MemoryOrder::Nhwc, channel_padding };
    let padding = x.ty.layout.channel_padding;
    let layouts = [x, w, y].map(|operand| operand.ty.layout);
    let dtypes = [x, w, y].map(|operand| operand.ty.dtype);
    if dtypes == [DType::F32; 3] && layouts == [Layout::default(); 3] {
        return Ok(Order::Nchw);
    }
    let of_one = (dtypes[0].is_half() || dtypes[0] == DType::F32) && dtypes == [dtypes[0]; 3];
    if of_one && layouts == [nhwc(padding), nhwc(padding), nhwc(0)] {
        return Ok(Order::Nhwc);
    }
    let found = [x, w, y].map(|operand| operand.ty.to_string()).join(", ");
    Err(format!("expected X, W and Y in f32 NCHW or in f32, f16 or bf16 NHWC, found {found}; use --dtype f32"))
}

/// What the first address is a multiple of, as far as it matters. Strides cuDNN knows by themselves.
fn alignment(address: u64) -> u64 {
    1 << (address | BEST_ALIGNMENT).trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::super::gpu::Bytes;
    use super::*;
    use crate::cudnn::Precision;
    use vdnn_graph::op::{Conv2dDataGrad, Conv2dWeightGrad};
    use vdnn_tensor::TensorType;

    fn f32s(dims: [u64; 4]) -> TensorType {
        TensorType::new(dims, DType::F32)
    }

    fn found(op: &Op, inputs: &[Operand<'_>], outputs: &[Operand<'_>]) -> ConvolutionProblem {
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        let site =
            Site { op, precision: Precision::Fp32, inputs, outputs, algorithm: "eng0", workspace: Bytes::default() };
        of(&site).unwrap().unwrap().problem
    }

    #[test]
    fn all_directions_of_a_layer_have_the_same_numbers() {
        let conv = Conv2d { stride: [2, 1], padding: [1, 0], groups: 2, ..Conv2d::default() };
        let (x, w, y) = (f32s([5, 8, 9, 7]), f32s([6, 4, 3, 2]), f32s([5, 6, 5, 6]));
        let at = |ty| Operand::contiguous(ty, 4096);
        let forward = found(&Op::Conv2d(conv), &[at(&x), at(&w)], &[at(&y)]);
        let data = found(&Op::Conv2dDataGrad(Conv2dDataGrad { conv, input: [9, 7] }), &[at(&y), at(&w)], &[at(&x)]);
        let weight =
            found(&Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [3, 2] }), &[at(&x), at(&y)], &[at(&w)]);
        assert_eq!(forward.output().unwrap(), [5, 6]);
        assert_eq!(ConvolutionProblem { direction: Direction::Forward, ..data }, forward);
        assert_eq!(ConvolutionProblem { direction: Direction::Forward, ..weight }, forward);
        assert_eq!((forward.x_batch_stride, forward.y_batch_stride, forward.alignment), (504, 180, 16));
    }

    #[test]
    fn slices_bring_their_stride_and_alignment() {
        let (x, w, y) = (f32s([5, 8, 4, 4]), f32s([6, 8, 1, 1]), f32s([5, 6, 4, 4]));
        let slice = |ty, address, stride| Operand { ty, address, row_stride: stride };
        let op = Op::Conv2d(Conv2d::default());
        let w = Operand::contiguous(&w, 512);
        let even = found(&op, &[slice(&x, 256, 160), w], &[slice(&y, 1024, 96)]);
        assert_eq!((even.x_batch_stride, even.alignment), (160, 16));
        let odd = found(&op, &[slice(&x, 256, 161), w], &[slice(&y, 1024, 96)]);
        assert_eq!((odd.x_batch_stride, odd.alignment), (161, 16));
        assert_eq!(found(&op, &[slice(&x, 260, 160), w], &[slice(&y, 1024, 96)]).alignment, 4);
    }

    #[test]
    fn pieces_are_samples_one_after_the_other() {
        let (x, w, y) = (f32s([6, 1, 3, 3]), f32s([6, 1, 1, 1]), f32s([6, 6, 3, 3]));
        let slice = Operand { ty: &y, address: 1024, row_stride: 60 };
        let operands = [Operand::contiguous(&x, 256), Operand::contiguous(&w, 512), slice];
        let op = Op::Conv2d(Conv2d::default());
        let problem = found(&op, &operands[..2], &operands[2..]);
        let whole = Convolution { problem, operands };
        assert_eq!(whole.cut(1), Some(Cut { problem, addresses: vec![[256, 512, 1024]] }));
        let halves = whole.cut(2).unwrap();
        assert_eq!(halves.addresses, [[256, 512, 1024], [256 + 3 * 36, 512, 1024 + 3 * 240]]);
        // The second half of X lies at a multiple of 4 only.
        assert_eq!(halves.problem, ConvolutionProblem { n: 3, alignment: 4, ..problem });
        let singles = whole.cut(6).unwrap().problem;
        assert_eq!((singles.n, singles.x_batch_stride, singles.y_batch_stride), (1, 9, 54));
        assert!(whole.cut(4).is_none() && whole.cut(0).is_none());
    }

    #[test]
    fn channels_innermost_bring_the_distance_of_pixels_and_count_padding() {
        let half = |dims: [u64; 4], channel_padding| {
            let layout = Layout { order: MemoryOrder::Nhwc, channel_padding };
            TensorType { layout, ..TensorType::new(dims, DType::BF16) }
        };
        let (x, w, y) = (half([4, 3, 8, 6], 5), half([16, 3, 3, 3], 5), half([4, 16, 6, 4], 0));
        let slice = Operand { ty: &y, address: 1024, row_stride: 40 };
        let operands = [Operand::contiguous(&x, 256), Operand::contiguous(&w, 512), slice];
        let op = Op::Conv2d(Conv2d::default());
        let problem = found(&op, &operands[..2], &operands[2..]);
        assert_eq!((problem.c, problem.order, problem.dtype), (8, Order::Nhwc, DType::BF16));
        assert_eq!((problem.x_batch_stride, problem.y_batch_stride), (8 * 48, 40 * 24));
        assert!(problem.validate().is_ok(), "{problem}");
        let halves = Convolution { problem, operands }.cut(2).unwrap();
        assert_eq!(halves.addresses[1], [256 + 2 * 8 * 48 * 2, 512, 1024 + 2 * 40 * 24 * 2]);
        let singles = Convolution { problem, operands }.cut(4).unwrap().problem;
        assert_eq!((singles.n, singles.y_batch_stride), (1, 40 * 24));
        let mixed = [Operand::contiguous(&x, 256), Operand::contiguous(&y, 512), slice];
        assert!(order_of(&mixed).unwrap_err().contains("expected X, W and Y"));
    }

    #[test]
    fn epilogues_are_read_from_names() {
        for (name, epilogue) in [
            ("eng12{k3=1}", Epilogue::None),
            ("bias_relu_eng12{k3=1}", Epilogue::BiasRelu),
            ("stats_eng12{k3=1}", Epilogue::Statistics),
        ] {
            assert_eq!(split_epilogue(name), ("eng12{k3=1}", epilogue));
            assert_eq!(join_epilogue(epilogue, "eng12{k3=1}"), name);
        }
    }

    /// Statistics in f16 alone, in whose plans' workspace the two sums come first.
    #[test]
    fn statistics_are_taken_in_in_f16() {
        let taken = |dtype: DType, op: &Op| {
            let layout = Layout { order: MemoryOrder::Nhwc, channel_padding: 0 };
            let half = |dims: [u64; 4]| TensorType { layout, ..TensorType::new(dims, dtype) };
            let (x, w, y) = (half([4, 8, 6, 6]), half([80, 8, 1, 1]), half([4, 80, 6, 6]));
            let c = TensorType::new([80], DType::F32);
            let at = |ty| Operand::contiguous(ty, 4096);
            let (inputs, outputs) = (vec![at(&x), at(&w)], vec![at(&y), at(&c), at(&c)]);
            let (precision, workspace) = (Precision::Fp32, Bytes::default());
            let site = Site { op, precision, inputs, outputs, algorithm: "eng0", workspace };
            let found = of(&site).unwrap().unwrap();
            assert_eq!(epilogue_places(&found.problem), ([0; 2], 0));
            found.taking_in(&site).map(|found| found.problem)
        };
        let op = Op::Conv2dStats(Conv2d::default());
        let problem = taken(DType::F16, &op).unwrap();
        assert_eq!(problem.epilogue, Epilogue::Statistics);
        assert_eq!(epilogue_places(&problem), ([0, 512], 1024));
        assert_eq!(taken(DType::BF16, &op), None);
        assert_eq!(taken(DType::F16, &Op::Conv2d(Conv2d::default())), None);
    }

    #[test]
    fn one_sample_has_no_stride() {
        let (x, w, y) = (f32s([1, 8, 4, 4]), f32s([6, 8, 1, 1]), f32s([1, 6, 4, 4]));
        let slice = Operand { ty: &x, address: 256, row_stride: 9999 };
        let op = Op::Conv2d(Conv2d::default());
        let problem = found(&op, &[slice, Operand::contiguous(&w, 0)], &[Operand::contiguous(&y, 0)]);
        assert_eq!((problem.x_batch_stride, problem.alignment), (128, 16));
    }
}
