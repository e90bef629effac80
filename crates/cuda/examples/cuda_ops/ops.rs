//! Every op in several shapes: odd sizes, slices, in place, nothing at all.

use crate::build::Build;
use crate::single::Gpu;
use crate::{Outcome, Report, encoded};
use vdnn_graph::op::{
    Adam, AdaptiveAvgPool2d, AdaptiveAvgPool2dGrad, AvgPool2d, AvgPool2dGrad, Axis, BatchNorm, BatchNormUpdate, Cast,
    Concat, Conv2d, Conv2dDataGrad, Conv2dWeightGrad, Dropout, Group, LocalResponseNorm, LossScaleUpdate,
    MOST_UNSCALED, MaxPool2d, Normalise, Sgd, SoftmaxCrossEntropy, Split, Unflatten, Unscale, Window,
};
use vdnn_graph::{Op, ValueId};
use vdnn_tensor::{DType, Layout, MemoryOrder};

/// A name and what makes the graph.
pub type Case = (String, Box<dyn Fn(&mut Build) -> Outcome>);

/// Cases of ops that have kernels for half precision as well, besides some that a name tells.
pub fn of_maps() -> Vec<Case> {
    let mut cases = Vec::new();
    convolutions(&mut cases);
    linears(&mut cases);
    norms(&mut cases);
    pools(&mut cases);
    elementwise(&mut cases);
    groups(&mut cases);
    cases
}

pub fn run(report: &mut Report) -> Outcome {
    let mut cases = of_maps();
    losses(&mut cases);
    optimizers(&mut cases);
    loss_scaling(&mut cases);
    images(&mut cases);
    let mut gpu = Gpu::open()?;
    for (index, (name, build)) in cases.into_iter().enumerate() {
        let mut graph = Build::new(&name, index);
        let outcome = build(&mut graph).and_then(|()| gpu.compare(graph, 1e-4));
        report.outcome(&name, outcome);
    }
    Ok(())
}

pub fn case(cases: &mut Vec<Case>, name: String, build: impl Fn(&mut Build) -> Outcome + 'static) {
    cases.push((name, Box::new(build)));
}

/// X `[N, C, H, W]`, K filters of kh × kw, attributes.
type Shape = ([u64; 4], u64, [u64; 2], Conv2d);

fn convolutions(cases: &mut Vec<Case>) {
    let conv = |stride, padding, dilation, groups| Conv2d { stride, padding, dilation, groups };
    let shapes: Vec<(&str, Shape)> = vec![
        ("plain", ([4, 16, 14, 14], 24, [3, 3], conv([1; 2], [1; 2], [1; 2], 1))),
        ("stem", ([2, 3, 33, 31], 8, [7, 7], conv([2; 2], [3; 2], [1; 2], 1))),
        ("point", ([3, 32, 9, 9], 16, [1, 1], conv([1; 2], [0; 2], [1; 2], 1))),
        ("strided point", ([3, 32, 9, 9], 16, [1, 1], conv([2; 2], [0; 2], [1; 2], 1))),
        ("uneven", ([2, 5, 11, 8], 7, [3, 2], conv([2, 1], [1, 0], [1; 2], 1))),
        ("dilated", ([2, 8, 12, 12], 8, [3, 3], conv([1; 2], [2; 2], [2; 2], 1))),
        ("grouped", ([2, 8, 12, 12], 16, [3, 3], conv([1; 2], [1; 2], [1; 2], 4))),
        ("depthwise", ([2, 8, 12, 12], 8, [3, 3], conv([1; 2], [1; 2], [1; 2], 8))),
        ("one sample", ([1, 4, 6, 6], 4, [3, 3], conv([1; 2], [1; 2], [1; 2], 1))),
        ("no samples", ([0, 4, 6, 6], 4, [3, 3], conv([1; 2], [1; 2], [1; 2], 1))),
    ];
    for (name, shape) in shapes {
        case(cases, format!("conv2d {name}"), move |b| {
            let ([n, c, h, w], k, [kh, kw], conv) = shape;
            let (x, weight) = (b.x(&[n, c, h, w]), b.parameter(&[k, c / conv.groups, kh, kw]));
            b.read(Op::Conv2d(conv), &[x, weight])
        });
        case(cases, format!("conv2d with bias {name}"), move |b| {
            let ([n, c, h, w], k, [kh, kw], conv) = shape;
            let (x, weight, bias) = (b.x(&[n, c, h, w]), b.parameter(&[k, c / conv.groups, kh, kw]), b.parameter(&[k]));
            b.read(Op::Conv2d(conv), &[x, weight, bias])
        });
        case(cases, format!("conv2d_data_grad {name}"), move |b| {
            let ([_, c, h, w], k, [kh, kw], conv) = shape;
            let (dy, weight) = (output(b, shape)?, b.parameter(&[k, c / conv.groups, kh, kw]));
            b.read(Op::Conv2dDataGrad(Conv2dDataGrad { conv, input: [h, w] }), &[dy, weight])
        });
        case(cases, format!("conv2d_weight_grad {name}"), move |b| {
            let (x, _, kernel, conv) = shape;
            let (dy, x) = (output(b, shape)?, b.x(&x));
            b.read(Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel }), &[x, dy])
        });
    }
    sliced_convolutions(cases);
    convolutions_of_samples(cases);
}

/// An input of the type that a convolution's Y has.
fn output(b: &mut Build, (x, k, kernel, conv): Shape) -> Outcome<ValueId> {
    let size = |axis: usize| {
        let reach = conv.dilation[axis] * (kernel[axis] - 1) + 1;
        (x[2 + axis] + 2 * conv.padding[axis] - reach) / conv.stride[axis] + 1
    };
    Ok(b.x(&[x[0], k, size(0), size(1)]))
}

/// Convolutions that read and write slices of a concatenation, at even and odd places.
fn sliced_convolutions(cases: &mut Vec<Case>) {
    for size in [8u64, 7] {
        case(cases, format!("conv2d on slices of {size}x{size}"), move |b| {
            let conv = Conv2d { padding: [1; 2], ..Conv2d::default() };
            let (x, wa, wb) = (b.x(&[3, 4, size, size]), b.parameter(&[5, 4, 3, 3]), b.parameter(&[6, 4, 3, 3]));
            let a = b.push(Op::Conv2d(conv), &[x, wa])?[0];
            let c = b.push(Op::Conv2d(conv), &[x, wb])?[0];
            let whole = b.push(Op::Concat(Concat::default()), &[a, c])?[0];
            let parts = b.push(Op::Split(Split::channels(vec![5, 6])), &[whole])?;
            let (we, wf) = (b.parameter(&[2, 5, 3, 3]), b.parameter(&[2, 6, 3, 3]));
            b.read(Op::Conv2d(conv), &[parts[0], we])?;
            b.read(Op::Conv2d(conv), &[parts[1], wf])?;
            let dy = b.x(&[3, 2, size, size]);
            b.read(Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [3, 3] }), &[parts[1], dy])?;
            let data = Op::Conv2dDataGrad(Conv2dDataGrad { conv, input: [size, size] });
            let (da, db) = (b.push(data.clone(), &[dy, we])?[0], b.push(data, &[dy, wf])?[0]);
            let both = b.push(Op::Concat(Concat::default()), &[da, db])?[0];
            let last = b.push(Op::Relu, &[both])?[0];
            b.back(last);
            Ok(())
        });
    }
}

/// Convolutions that read and write some samples of a larger batch, of even and odd sizes, as where a batch is split.
fn convolutions_of_samples(cases: &mut Vec<Case>) {
    for size in [8u64, 7] {
        case(cases, format!("conv2d on samples of {size}x{size}"), move |b| {
            let conv = Conv2d { padding: [1; 2], ..Conv2d::default() };
            let (x, w) = (b.x(&[5, 3, size, size]), b.parameter(&[5, 3, 3, 3]));
            let cut = || Op::Split(Split { sections: vec![1, 4], axis: Axis::Batch });
            let images = b.push(cut(), &[x])?;
            let (first, rest) =
                (b.push(Op::Conv2d(conv), &[images[0], w])?[0], b.push(Op::Conv2d(conv), &[images[1], w])?[0]);
            let whole = b.push(Op::Concat(Concat::along(Axis::Batch)), &[first, rest])?[0];
            b.read(Op::Relu, &[whole])?;
            let dy = b.x(&[5, 5, size, size]);
            let parts = b.push(cut(), &[dy])?;
            for (image, dy) in images.into_iter().zip(parts) {
                b.read(Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [3, 3] }), &[image, dy])?;
                b.read(Op::Conv2dDataGrad(Conv2dDataGrad { conv, input: [size, size] }), &[dy, w])?;
            }
            Ok(())
        });
    }
}

fn linears(cases: &mut Vec<Case>) {
    for (n, features, out) in [(4, 32, 10), (7, 5, 3), (1, 64, 1), (64, 512, 1000), (128, 4096, 512), (0, 8, 4)] {
        case(cases, format!("linear {n}x{features}x{out}"), move |b| {
            let (x, w, bias) = (b.x(&[n, features]), b.parameter(&[out, features]), b.parameter(&[out]));
            b.read(Op::Linear, &[x, w])?;
            b.read(Op::Linear, &[x, w, bias])
        });
        case(cases, format!("linear gradients {n}x{features}x{out}"), move |b| {
            let (x, w, dy) = (b.x(&[n, features]), b.parameter(&[out, features]), b.x(&[n, out]));
            b.read(Op::LinearDataGrad, &[dy, w])?;
            b.read(Op::LinearWeightGrad, &[x, dy])?;
            b.read(Op::BiasGrad, &[dy])
        });
    }
}

fn norms(cases: &mut Vec<Case>) {
    let norm = BatchNorm { eps: 1e-5 };
    for dims in [[4, 8, 9, 7], [6, 3, 1, 1], [32, 64, 28, 28], [1, 5, 16, 16]] {
        case(cases, format!("batch_norm {dims:?}"), move |b| {
            let (x, gamma, beta) = (b.x(&dims), b.parameter(&dims[1..2]), b.parameter(&dims[1..2]));
            let statistics = b.push(Op::BatchNormStats, &[x])?;
            let (mean, variance) = (b.state(&dims[1..2]), b.state(&dims[1..2]));
            let update = BatchNormUpdate { momentum: 0.1, count: dims[0] * dims[2] * dims[3] };
            b.read(Op::BatchNormUpdate(update), &[statistics[0], statistics[1], mean, variance])?;
            b.read(Op::BatchNorm(norm), &[x, statistics[0], statistics[1], gamma, beta])?;
            let dy = b.x(&dims);
            b.read(Op::BatchNormGrad(norm), &[x, dy, statistics[0], statistics[1], gamma])?;
            b.read(Op::BiasGrad, &[dy])
        });
        for size in [3, 5] {
            case(cases, format!("local_response_norm {size} {dims:?}"), move |b| {
                let lrn = LocalResponseNorm { size, alpha: 1e-2, beta: 0.75, k: 2.0 };
                let (x, dy) = (b.x(&dims), b.x(&dims));
                b.read(Op::LocalResponseNorm(lrn), &[x])?;
                b.read(Op::LocalResponseNormGrad(lrn), &[x, dy])
            });
        }
    }
}

fn pools(cases: &mut Vec<Case>) {
    let window = |kernel: u64, stride: u64, padding: u64, dilation: u64, ceil_mode| Window {
        kernel: [kernel; 2],
        stride: [stride; 2],
        padding: [padding; 2],
        dilation: [dilation; 2],
        ceil_mode,
    };
    let windows = [
        window(2, 2, 0, 1, false),
        window(3, 2, 0, 1, true),
        window(3, 2, 1, 1, false),
        window(3, 1, 1, 1, false),
        window(3, 2, 1, 2, true),
    ];
    for (index, window) in windows.into_iter().enumerate() {
        for dims in [[2, 3, 13, 11], [3, 16, 32, 32]] {
            case(cases, format!("max_pool2d {index} {dims:?}"), move |b| {
                let x = b.x(&dims);
                let pool = Op::MaxPool2d(MaxPool2d { window });
                let y = b.push(pool, &[x])?[0];
                let ty = b.graph.value(y).ty.clone();
                let dy = b.x(ty.shape.dims());
                b.read(Op::MaxPool2dGrad(MaxPool2d { window }), &[x, y, dy])?;
                b.back(y);
                Ok(())
            });
            for awkward in [false, true] {
                let name = format!("max_pool2d with indices {index} {dims:?} awkward {awkward}");
                case(cases, name, move |b| encoded::max_pool2d(b, dims, window, awkward));
            }
            if window.dilation == [1; 2] {
                case(cases, format!("avg_pool2d {index} {dims:?}"), move |b| average(b, window, dims));
            }
        }
    }
    for (dims, output) in
        [([2, 3, 7, 9], [1, 1]), ([2, 64, 14, 14], [1, 1]), ([2, 5, 13, 11], [6, 4]), ([2, 3, 4, 4], [7, 7])]
    {
        case(cases, format!("adaptive_avg_pool2d {dims:?} to {output:?}"), move |b| {
            let (x, dy) = (b.x(&dims), b.x(&[dims[0], dims[1], output[0], output[1]]));
            b.read(Op::AdaptiveAvgPool2d(AdaptiveAvgPool2d { output }), &[x])?;
            let input = [dims[2], dims[3]];
            b.read(Op::AdaptiveAvgPool2dGrad(AdaptiveAvgPool2dGrad { input }), &[dy])
        });
    }
}

fn average(b: &mut Build, window: Window, dims: [u64; 4]) -> Outcome {
    for count_include_pad in [true, false] {
        let pool = AvgPool2d { window, count_include_pad };
        let x = b.x(&dims);
        let y = b.push(Op::AvgPool2d(pool), &[x])?[0];
        let ty = b.graph.value(y).ty.clone();
        b.back(y);
        let dy = b.x(ty.shape.dims());
        b.read(Op::AvgPool2dGrad(AvgPool2dGrad { pool, input: [dims[2], dims[3]] }), &[dy])?;
    }
    Ok(())
}

fn elementwise(cases: &mut Vec<Case>) {
    let shapes: [&[u64]; 6] =
        [&[2, 3, 5, 7], &[4, 8, 16, 16], &[0, 3, 4, 4], &[1, 1, 1, 1], &[3, 4097], &[8, 64, 112, 112]];
    for (dims, awkward) in shapes.into_iter().flat_map(|dims| [(dims, false), (dims, true)]) {
        let name = format!("relu with a mask {dims:?} awkward {awkward}");
        case(cases, name, move |b| encoded::relu(b, dims, awkward));
    }
    for dims in [[2, 3, 5, 7], [4, 8, 16, 16], [0, 3, 4, 4], [1, 1, 1, 1]] {
        case(cases, format!("relu and add {dims:?}"), move |b| {
            let (x, dy) = (b.x(&dims), b.x(&dims));
            b.read(Op::Relu, &[x])?;
            b.read(Op::ReluGrad, &[x, dy])?;
            b.read(Op::Add, &[x, dy])
        });
        case(cases, format!("in place {dims:?}"), move |b| {
            let (x, y, iteration) = (b.x(&dims), b.x(&dims), b.iteration());
            let sum = b.push(Op::Add, &[x, y])?[0];
            let relu = b.push(Op::Relu, &[sum])?[0];
            let dropped = b.push(Op::Dropout(Dropout { p: 0.4, seed: 11, stream: 5 }), &[relu, iteration])?[0];
            let twice = b.push(Op::Add, &[dropped, x])?[0];
            let last = b.push(Op::Relu, &[twice])?[0];
            b.read(Op::Add, &[last, y])
        });
        case(cases, format!("dropout {dims:?}"), move |b| {
            let (x, iteration) = (b.x(&dims), b.iteration());
            b.read(Op::Dropout(Dropout { p: 0.5, seed: 3, stream: 1 }), &[x, iteration])?;
            b.read(Op::DropoutGrad(Dropout { p: 0.25, seed: 3, stream: 2 }), &[x, iteration])
        });
        case(cases, format!("concat and split {dims:?}"), move |b| {
            let (x, y) = (b.x(&dims), b.x(&[dims[0], 5, dims[2], dims[3]]));
            let (a, c) = (b.push(Op::Relu, &[x])?[0], b.push(Op::Relu, &[y])?[0]);
            let whole = b.push(Op::Concat(Concat::default()), &[a, x, c, a])?[0];
            let sections = vec![dims[1], 2 * dims[1], 5];
            let parts = b.push(Op::Split(Split::channels(sections)), &[whole])?;
            for part in &parts {
                b.read(Op::Relu, &[*part])?;
            }
            b.back(parts[1]);
            b.back(whole);
            Ok(())
        });
        case(cases, format!("views {dims:?}"), move |b| {
            let x = b.x(&dims);
            let relu = b.push(Op::Relu, &[x])?[0];
            let flat = b.push(Op::Flatten, &[relu])?[0];
            let back = b.push(Op::Unflatten(Unflatten { sample: dims[1..].to_vec() }), &[flat])?[0];
            b.read(Op::Relu, &[back])?;
            b.read(Op::Flatten, &[x])
        });
    }
}

/// Images of bytes in each type, in half precision the bits that a cast of the f32 numbers has.
fn images(cases: &mut Vec<Case>) {
    for dims in [[8, 3, 224, 224], [5, 1, 28, 28], [3, 3, 7, 5], [2, 7, 16, 16], [0, 3, 4, 4], [1, 1, 1, 1]] {
        case(cases, format!("normalise {dims:?}"), move |b| {
            let numbers = |from: f32, step: f32| (0..dims[1]).map(|c| from + step * c as f32).collect();
            let op = |dtype| Op::Normalise(Normalise { mean: numbers(0.485, -0.03), std: numbers(0.229, 0.01), dtype });
            let x = b.pixels(&dims);
            let wide = b.push(op(DType::F32), &[x])?[0];
            for dtype in [DType::BF16, DType::F16] {
                let half = b.push(op(dtype), &[x])?[0];
                let cast = b.push(Op::Cast(Cast { dtype, layout: Layout::default() }), &[wide])?[0];
                b.same(half, cast);
            }
            b.back(wide);
            Ok(())
        });
    }
}

fn losses(cases: &mut Vec<Case>) {
    for (n, classes) in [(4, 10), (1, 10), (128, 1000), (33, 12)] {
        for label_smoothing in [0.0, 0.1] {
            case(cases, format!("softmax_cross_entropy {n}x{classes} smoothing {label_smoothing}"), move |b| {
                let op = SoftmaxCrossEntropy { label_smoothing, ..SoftmaxCrossEntropy::default() };
                let (logits, labels) = (b.x(&[n, classes]), b.labels(n));
                b.read(Op::SoftmaxCrossEntropy(op), &[logits, labels])?;
                b.read(Op::SoftmaxCrossEntropyGrad(op), &[logits, labels])?;
                b.read(Op::Accuracy, &[logits, labels])
            });
        }
    }
}

/// Launches of many members: sizes of more than a stretch, gradients as the maps are, more members than a launch takes.
fn groups(cases: &mut Vec<Case>) {
    for momentum in [0.0, 0.9] {
        case(cases, format!("sgd of many, momentum {momentum}"), move |b| {
            let op = Op::Sgd(Sgd { momentum, dampening: 0.5, weight_decay: 1e-2, nesterov: false });
            let (rate, iteration) = (b.rate(), b.iteration());
            let mut inputs = Vec::new();
            for n in 0..33 {
                let dims: &[u64] = [&[7, 1][..], &[64, 16, 3, 3], &[101, 130], &[24, 40, 1, 1]][n % 4];
                inputs.extend([b.state(dims), b.x(dims)]);
                inputs.extend((momentum != 0.0).then(|| b.state(dims)));
                inputs.extend([rate, iteration]);
            }
            let each = 4 + u32::from(momentum != 0.0);
            twice(b, Op::Group(Group { op: Box::new(op), members: 33, inputs: each }), &inputs)
        });
    }
    case(cases, "running statistics of many".to_string(), |b| {
        let op = Op::BatchNormUpdate(BatchNormUpdate { momentum: 0.1, count: 99 });
        let inputs: Vec<ValueId> = [1, 64, 5000].iter().flat_map(|&c| [0; 4].map(|_| b.state(&[c]))).collect();
        twice(b, Op::Group(Group { op: Box::new(op), members: 3, inputs: 4 }), &inputs)
    });
    for (dtype, order, padding) in [(DType::BF16, MemoryOrder::Nhwc, 5), (DType::F16, MemoryOrder::Nchw, 0)] {
        case(cases, format!("weights cast to {dtype}"), move |b| {
            let to = Cast { dtype, layout: Layout { order, channel_padding: padding } };
            let weights: Vec<ValueId> =
                [[64, 3, 7, 7], [16, 70, 3, 3], [9, 8, 1, 1]].map(|dims| b.state(&dims)).to_vec();
            let halves = b.push(Op::Group(Group { op: Box::new(Op::Cast(to)), members: 3, inputs: 1 }), &weights)?;
            halves.into_iter().for_each(|half| b.back(half));
            Ok(())
        });
    }
}

/// Reads an effect's results back, which are persistents, as their sums with themselves.
fn twice(b: &mut Build, op: Op, inputs: &[ValueId]) -> Outcome {
    b.push(op, inputs)?.into_iter().try_for_each(|updated| b.read(Op::Add, &[updated, updated]))
}

fn optimizers(cases: &mut Vec<Case>) {
    for dims in [vec![7], vec![64, 3, 3, 3], vec![1001, 13]] {
        for (momentum, nesterov) in [(0.0, false), (0.9, false), (0.9, true)] {
            let dims = dims.clone();
            case(cases, format!("sgd {momentum} {nesterov} {dims:?}"), move |b| {
                let sgd = Sgd { momentum, dampening: 0.0, weight_decay: 1e-2, nesterov };
                let mut inputs = vec![b.parameter(&dims), b.x(&dims)];
                if momentum != 0.0 {
                    inputs.push(b.state(&dims));
                }
                inputs.extend([b.rate(), b.iteration()]);
                b.read(Op::Sgd(sgd), &inputs)
            });
        }
        for decoupled in [false, true] {
            let dims = dims.clone();
            case(cases, format!("adam {decoupled} {dims:?}"), move |b| {
                let adam = Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 1e-2, decoupled };
                let mut inputs = vec![b.parameter(&dims), b.x(&dims), b.state(&dims), b.state(&dims), b.rate()];
                inputs.push(b.iteration());
                b.read(Op::Adam(adam), &inputs)
            });
        }
    }
}

/// Gradients in place and elsewhere, finite and not, in one group and in several; the scale after a step of either kind.
fn loss_scaling(cases: &mut Vec<Case>) {
    let lengths: [&[u64]; 8] = [&[1], &[64, 3, 7, 7], &[4099], &[3], &[0], &[2048, 1000], &[17], &[512, 512, 3, 3]];
    for count in [1, 8, MOST_UNSCALED] {
        for awkward in [false, true] {
            case(cases, format!("unscale {count} gradients awkward {awkward}"), move |b| {
                let (scale, guard) = (b.state(&[1]), b.rate());
                let mut inputs = vec![scale, guard];
                for index in 0..count {
                    let dims = lengths[index % if count > 8 { 5 } else { 8 }];
                    let given = if awkward && index + 1 == count { b.awkward(dims) } else { b.x(dims) };
                    // One that may be overwritten, and one that the host has given.
                    let sum = if index % 2 == 0 { b.push(Op::Add, &[given, given])?[0] } else { given };
                    inputs.push(sum);
                }
                b.read(Op::Unscale(Unscale { gradients: count as u32 }), &inputs)
            });
        }
    }
    for awkward in [false, true] {
        case(cases, format!("loss_scale_update awkward {awkward}"), move |b| {
            let (scale, guard) = (b.state(&[1]), if awkward { b.awkward(&[64]) } else { b.x(&[64]) });
            let found = b.push(Op::Unscale(Unscale { gradients: 1 }), &[scale, scale, guard])?[0];
            let (good, skipped, iteration) = (b.count(), b.count(), b.iteration());
            let op = LossScaleUpdate { least: 0.125, ..LossScaleUpdate::default() };
            b.push(Op::LossScaleUpdate(op), &[scale, good, skipped, found, iteration])?;
            Ok(())
        });
    }
    case(cases, "softmax_cross_entropy_grad of a scaled loss".to_string(), |b| {
        let (logits, labels, scale) = (b.x(&[33, 12]), b.labels(33), b.state(&[1]));
        b.read(Op::SoftmaxCrossEntropyGrad(SoftmaxCrossEntropy::default()), &[logits, labels, scale])
    });
}
