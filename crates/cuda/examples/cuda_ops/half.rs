//! Channels innermost: the cases of `ops` in bf16, f16 and tf32, and ops that are fused there, against f32 in NCHW order on the
//! CPU from the same rounded numbers.

use crate::build::{Build, Maps};
use crate::ops::{Case, case, of_maps};
use crate::single::Gpu;
use crate::{Outcome, Report, statistics};
use vdnn_graph::op::{
    BatchNorm, BatchNormPair, BatchNormReluMaxPool2d, Cast, Concat, Conv2d, Conv2dWeightGrad, MOST_UNSCALED, MaxPool2d,
    MaxPool2dIndicesGrad, Split, Unfold, UnfoldGrad, Unscale, Window,
};
use vdnn_graph::{Op, Precision, ValueId};
use vdnn_tensor::{DType, Layout, MemoryOrder};

/// Cases of `ops` without a kernel for channels innermost.
const NOT_IN_HALF: [&str; 2] = ["local_response_norm", "views"];

/// A part of `half`: its name, its type, and limits of the root mean square and of the worst element.
type Arithmetic = (&'static str, DType, [f64; 2]);

/// All of them, or the one of that name.
pub fn run(report: &mut Report, only: Option<&str>) -> Outcome {
    let mut gpu = Gpu::open()?;
    // Root mean squares of two (bf16) and four (f16) units of the last place, since cases round several times one after the
    // other; the worst element may be ten units off.
    // What is multiplied in tf32 is rounded to ten bits before; all else is f32.
    let all: [Arithmetic; 3] =
        [("bf16", DType::BF16, [8e-3, 4e-2]), ("f16", DType::F16, [2e-3, 5e-3]), ("tf32", DType::F32, [2e-3, 1e-2])];
    for (number, (arithmetic, dtype, limits)) in all.into_iter().enumerate() {
        if only.is_some_and(|only| only != arithmetic) {
            continue;
        }
        let mut cases = of_maps();
        cases.retain(|(name, _)| !NOT_IN_HALF.iter().any(|prefix| name.starts_with(prefix)));
        fused(&mut cases);
        fused_further(&mut cases);
        more_convolutions(&mut cases);
        unfolding(&mut cases);
        if dtype.is_half() {
            unscaling(&mut cases);
            statistics::cases(&mut cases);
        }
        for (index, (name, build)) in cases.into_iter().enumerate() {
            // Persistents live on one device, so no two cases of two types have the same names.
            let case = index + number * 100_000;
            let graph = |maps| -> Outcome<Build> {
                let mut graph = Build::new(&name, case);
                graph.maps = maps;
                if maps == Maps::Inner(DType::F32) {
                    graph.graph.precision = Precision::Tf32;
                }
                build(&mut graph)?;
                Ok(graph)
            };
            let both = graph(Maps::Inner(dtype)).and_then(|half| Ok((half, graph(Maps::Rounded(dtype))?)));
            let outcome = both.and_then(|(inner, rounded)| {
                let limits = if dtype == DType::F32 && !multiplies(&inner) { [3e-5, 3e-4] } else { limits };
                gpu.compare_inner(inner, rounded, limits)
            });
            report.outcome(&format!("{arithmetic} {name}"), outcome);
        }
    }
    Ok(())
}

/// Whether a case has products, which tf32 rounds.
fn multiplies(build: &Build) -> bool {
    let kinds = ["conv2d", "linear"];
    build.graph.nodes().iter().any(|node| kinds.iter().any(|kind| node.op.kind().starts_with(kind)))
}

/// Batch norm with ReLU and with a residual. In f32 the single ops say what is expected.
fn fused(cases: &mut Vec<Case>) {
    for dims in
        [[4, 8, 9, 7], [6, 3, 1, 1], [3, 13, 5, 5], [32, 64, 28, 28], [32, 40, 14, 14], [16, 512, 7, 7], [1, 5, 16, 16]]
    {
        case(cases, format!("batch_norm_relu {dims:?}"), move |b| {
            let (x, dy) = (b.x(&dims), b.x(&dims));
            let with = Norm::new(b, &dims, x)?;
            let y = with.relu(b, x)?;
            b.back(y);
            let grads = with.relu_grad(b, x, y, dy)?;
            grads.into_iter().for_each(|id| b.back(id));
            Ok(())
        });
        case(cases, format!("batch_norm_add_relu {dims:?}"), move |b| {
            let (x, r, dy) = (b.x(&dims), b.x(&dims), b.x(&dims));
            let with = Norm::new(b, &dims, x)?;
            let (y, mask) = with.add_relu(b, x, r)?;
            b.back(y);
            let grads = with.add_relu_grad(b, x, mask, dy, None)?;
            grads.into_iter().for_each(|id| b.back(id));
            Ok(())
        });
        case(cases, format!("batch_norm in place and on slices {dims:?}"), move |b| {
            let (x, r) = (b.x(&dims), b.x(&dims));
            let with = Norm::new(b, &dims, x)?;
            let (sum, other) = (b.push(Op::Add, &[x, r])?[0], b.push(Op::Add, &[r, r])?[0]);
            let y = with.relu(b, sum)?;
            let z = with.add_relu(b, other, x)?.0;
            let whole = b.push(Op::Concat(Concat::default()), &[y, z])?[0];
            let parts = b.push(Op::Split(Split::channels(vec![dims[1], dims[1]])), &[whole])?;
            let last = with.relu(b, parts[1])?;
            b.back(last);
            let statistics = b.push(Op::BatchNormStats, &[parts[0]])?;
            statistics.into_iter().for_each(|id| b.back(id));
            Ok(())
        });
    }
}

/// Norms that take in more. Small maps: a number that the GPU rounds to the neighbour of the CPU's may change a sign or a maximum.
fn fused_further(cases: &mut Vec<Case>) {
    for dims in [[4, 8, 9, 7], [6, 3, 1, 1], [3, 13, 5, 5], [2, 64, 28, 28], [2, 512, 7, 7], [1, 5, 16, 16]] {
        for twice in [false, true] {
            let gradients = if twice { "two gradients" } else { "one gradient" };
            case(cases, format!("batch_norm_pair_relu of {gradients} {dims:?}"), move |b| {
                let (maps, dy) = ([b.x(&dims), b.x(&dims)], b.x(&dims));
                let second = twice.then(|| b.x(&dims));
                pair(b, &dims, maps, dy, second)
            });
        }
        for kernel in [2, 3] {
            case(cases, format!("batch_norm_relu_max_pool2d of {kernel}x{kernel} {dims:?}"), move |b| {
                let window = Window { stride: [2; 2], padding: [kernel / 2; 2], ..Window::square(kernel) };
                pooled(b, dims, MaxPool2d { window })
            });
        }
    }
}

/// Two norms under a ReLU by one op each way, and by two, whose bits those are.
fn pair(b: &mut Build, dims: &[u64], maps: [ValueId; 2], dy: ValueId, second: Option<ValueId>) -> Outcome {
    let [x, other] = maps;
    let (of_x, of_other) = (Norm::new(b, dims, x)?, Norm::new(b, dims, other)?);
    let mut r = b.push(Op::BatchNorm(NORM), &of_other.inputs(&[other], 4, &[]))?[0];
    if let Maps::Rounded(to) = b.maps {
        for dtype in [to, DType::F32] {
            r = b.push(Op::Cast(Cast { dtype, layout: Layout::default() }), &[r])?[0];
        }
    }
    let (y, mask) = of_x.add_relu(b, x, r)?;
    let mut apart = of_x.add_relu_grad(b, x, mask, dy, second)?;
    let dr = apart.pop().ok_or("no gradient of the residual")?;
    apart.extend(b.push(Op::BatchNormGrad(NORM), &of_other.inputs(&[other, dr], 3, &[]))?);
    let (mut ys, mut fused) = ([y, y], apart.clone());
    if let Maps::Inner(_) = b.maps {
        let op = BatchNormPair { eps: [NORM.eps; 2] };
        let both = of_x.inputs(&[x], 4, &of_other.inputs(&[other], 4, &[]));
        let made = b.push(Op::BatchNormPairRelu(op), &both)?;
        let reads = of_x.inputs(&[x, dy, made[1]], 3, &of_other.inputs(&[other], 3, second.as_slice()));
        (ys[0], fused) = (made[0], b.push(Op::BatchNormPairReluGrad(op), &reads)?);
    }
    b.same(ys[0], ys[1]);
    fused.into_iter().zip(apart).for_each(|(fused, apart)| b.same(fused, apart));
    Ok(())
}

/// A norm, its ReLU and a pool by one op each way, and by two. Forward has the bits of the two; sums run in another order.
fn pooled(b: &mut Build, dims: [u64; 4], pool: MaxPool2d) -> Outcome {
    let [n, c, h, w] = dims;
    let [oh, ow] = pool.window.output([h, w])?;
    let (x, dy) = (b.x(&dims), b.x(&[n, c, oh, ow]));
    let with = Norm::new(b, &dims, x)?;
    let mut between = with.relu(b, x)?;
    if let Maps::Rounded(to) = b.maps {
        // Ties are of rounded numbers.
        for dtype in [to, DType::F32] {
            between = b.push(Op::Cast(Cast { dtype, layout: Layout::default() }), &[between])?[0];
        }
    }
    let made = b.push(Op::MaxPool2dIndices(pool), &[between])?;
    let spread = Op::MaxPool2dIndicesGrad(MaxPool2dIndicesGrad { pool, input: [h, w] });
    let spread = b.push(spread, &[made[1], dy])?[0];
    let apart = with.relu_grad(b, x, between, spread)?;
    let (mut y, mut fused) = (made[0], apart.clone());
    if let Maps::Inner(dtype) = b.maps
        && dtype.is_half()
    {
        let op = BatchNormReluMaxPool2d { norm: NORM, pool };
        let made = b.push(Op::BatchNormReluMaxPool2d(op), &with.inputs(&[x], 4, &[]))?;
        let reads = with.inputs(&[x, made[1], dy], 4, &[]);
        (y, fused) = (made[0], b.push(Op::BatchNormReluMaxPool2dGrad(op), &reads)?);
    }
    b.same(y, made[0]);
    fused.into_iter().chain(apart).for_each(|id| b.back(id));
    Ok(())
}

/// Mean, variance, gamma, beta.
struct Norm([ValueId; 4]);

const NORM: BatchNorm = BatchNorm { eps: 1e-5 };

impl Norm {
    fn new(b: &mut Build, dims: &[u64], x: ValueId) -> Outcome<Self> {
        let statistics = b.push(Op::BatchNormStats, &[x])?;
        Ok(Norm([statistics[0], statistics[1], b.parameter(&dims[1..2]), b.parameter(&dims[1..2])]))
    }

    fn inputs(&self, first: &[ValueId], coefficients: usize, last: &[ValueId]) -> Vec<ValueId> {
        [first, &self.0[..coefficients], last].concat()
    }

    fn relu(&self, b: &mut Build, x: ValueId) -> Outcome<ValueId> {
        let inputs = self.inputs(&[x], 4, &[]);
        if let Maps::Inner(_) = b.maps {
            return Ok(b.push(Op::BatchNormRelu(NORM), &inputs)?[0]);
        }
        let normal = b.push(Op::BatchNorm(NORM), &inputs)?[0];
        Ok(b.push(Op::Relu, &[normal])?[0])
    }

    fn relu_grad(&self, b: &mut Build, x: ValueId, y: ValueId, dy: ValueId) -> Outcome<Vec<ValueId>> {
        if let Maps::Inner(_) = b.maps {
            return b.push(Op::BatchNormReluGrad(NORM), &self.inputs(&[x, dy], 4, &[]));
        }
        let through = b.push(Op::ReluGrad, &[y, dy])?[0];
        b.push(Op::BatchNormGrad(NORM), &self.inputs(&[x, through], 3, &[]))
    }

    /// Y and the mask; in f32 Y itself says what goes through.
    fn add_relu(&self, b: &mut Build, x: ValueId, r: ValueId) -> Outcome<(ValueId, ValueId)> {
        if let Maps::Inner(_) = b.maps {
            let made = b.push(Op::BatchNormAddRelu(NORM), &self.inputs(&[x], 4, &[r]))?;
            return Ok((made[0], made[1]));
        }
        let normal = b.push(Op::BatchNorm(NORM), &self.inputs(&[x], 4, &[]))?[0];
        let sum = b.push(Op::Add, &[normal, r])?[0];
        let y = b.push(Op::Relu, &[sum])?[0];
        Ok((y, y))
    }

    fn add_relu_grad(
        &self,
        b: &mut Build,
        x: ValueId,
        mask: ValueId,
        dy: ValueId,
        second: Option<ValueId>,
    ) -> Outcome<Vec<ValueId>> {
        if let Maps::Inner(_) = b.maps {
            return b.push(Op::BatchNormAddReluGrad(NORM), &self.inputs(&[x, dy, mask], 3, second.as_slice()));
        }
        let dy = second.map_or(Ok(dy), |second| b.push(Op::Add, &[dy, second]).map(|sum| sum[0]))?;
        let through = b.push(Op::ReluGrad, &[mask, dy])?[0];
        let mut grads = b.push(Op::BatchNormGrad(NORM), &self.inputs(&[x, through], 3, &[]))?;
        grads.push(through);
        Ok(grads)
    }
}

/// Gradients as layers made them, divided by the loss's scale, more than one launch takes.
fn unscaling(cases: &mut Vec<Case>) {
    for count in [3, MOST_UNSCALED] {
        case(cases, format!("unscale {count} gradients"), move |b| {
            let dims: [&[u64]; 4] = [&[64, 16, 3, 3], &[40, 24, 1, 1], &[9, 5, 7, 7], &[10, 30]];
            let mut inputs = vec![b.state(&[1]), b.rate()];
            (0..count).for_each(|index| inputs.push(b.x(dims[index % 4])));
            b.read(Op::Unscale(Unscale { gradients: count as u32 }), &inputs)
        });
    }
}

/// Stems: an f32 image and its gradient, weights likewise, windows with gaps.
fn unfolding(cases: &mut Vec<Case>) {
    for (dims, window, stride, padding, output) in [
        ([4, 3, 32, 40], [7, 2], [2, 2], [3, 3], [16, 23]),
        ([64, 3, 7, 7], [7, 2], [7, 2], [0, 0], [1, 4]),
        ([2, 3, 9, 700], [3, 1], [1, 1], [1, 1], [9, 702]),
        ([3, 1, 7, 9], [1, 2], [3, 4], [0, 1], [3, 3]),
    ] {
        case(cases, format!("unfold {dims:?} by {window:?}"), move |b| {
            let channels: u64 = dims[1] * window[0] * window[1];
            let missing = (channels.next_multiple_of(8) - channels) as u32;
            let unfold = |dtype, layout| Unfold { window, stride, padding, output, dtype, layout };
            let unfold = match b.maps {
                Maps::Inner(dtype) => unfold(dtype, Layout { order: MemoryOrder::Nhwc, channel_padding: missing }),
                Maps::Plain | Maps::Rounded(_) => unfold(DType::F32, Layout::default()),
            };
            let x = b.plain(&dims);
            b.read(Op::Unfold(unfold), &[x])?;
            let dy = b.padded(&[dims[0], channels, output[0], output[1]], missing);
            let (input, dtype, layout) = ([dims[2], dims[3]], DType::F32, Layout::default());
            b.read(Op::UnfoldGrad(UnfoldGrad { unfold, input, dtype, layout }), &[dy])
        });
    }
}

/// Stems with padded channels, and casts of what they give.
fn more_convolutions(cases: &mut Vec<Case>) {
    for padding in [1, 5] {
        case(cases, format!("conv2d stem padded by {padding}"), move |b| {
            let conv = Conv2d { stride: [2; 2], padding: [3; 2], ..Conv2d::default() };
            let (x, w) = (b.padded(&[4, 3, 32, 32], padding), b.padded(&[16, 3, 7, 7], padding));
            b.read(Op::Conv2d(conv), &[x, w])?;
            let dy = b.x(&[4, 16, 16, 16]);
            b.read(Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [7, 7] }), &[x, dy])
        });
    }
}
