//! Every op's gradients against finite differences.

use crate::gradcheck::{Case, check};
use vdnn_autograd::Root;
use vdnn_graph::op::{self, Window};
use vdnn_graph::{Graph, Op, ValueId};
use vdnn_tensor::{DType, Layout, TensorType};

/// Checks Y = op(X) for X of a shape.
fn unary(op: Op, shape: &[u64]) {
    let mut case = Case::new();
    let x = case.leaf("x", shape);
    let y = case.push("y", op, &[x]);
    case.check(y);
}

fn conv(image: [u64; 4], weight: [u64; 4], conv: op::Conv2d, bias: bool) {
    let mut case = Case::new();
    let mut inputs = vec![case.leaf("x", &image), case.leaf("w", &weight)];
    if bias {
        inputs.push(case.leaf("b", &weight[..1]));
    }
    let y = case.push("y", Op::Conv2d(conv), &inputs);
    case.check(y);
}

#[test]
fn conv2d_plain_and_with_bias() {
    conv([2, 3, 5, 5], [4, 3, 3, 3], op::Conv2d::default(), false);
    conv([2, 3, 5, 5], [4, 3, 3, 3], op::Conv2d { padding: [1, 1], ..op::Conv2d::default() }, true);
    conv([3, 2, 4, 6], [5, 2, 1, 1], op::Conv2d::default(), true);
}

/// Case B01: strides that leave large steps between windows, alone and one after the other.
#[test]
fn conv2d_with_large_strides() {
    conv([1, 3, 32, 32], [2, 3, 16, 16], op::Conv2d { stride: [16, 16], ..op::Conv2d::default() }, true);
    let mut case = Case::new();
    let x = case.leaf("x", &[1, 2, 14, 14]);
    let (w1, w2) = (case.leaf("w1", &[3, 2, 7, 7]), case.leaf("w2", &[2, 3, 3, 3]));
    let strided = |padding| Op::Conv2d(op::Conv2d { stride: [2; 2], padding: [padding; 2], ..op::Conv2d::default() });
    let y = case.push("y", strided(3), &[x, w1]);
    let z = case.push("z", strided(1), &[y, w2]);
    case.check(z);
}

/// Case B03: height and width differ in everything; stride and dilation one at a time and together.
#[test]
fn conv2d_tells_height_from_width() {
    for (stride, dilation) in [([2, 1], [1, 1]), ([1, 3], [1, 1]), ([1, 1], [2, 1]), ([1, 1], [1, 2]), ([2, 3], [3, 2])]
    {
        let attributes = op::Conv2d { stride, padding: [2, 1], dilation, groups: 1 };
        conv([2, 2, 9, 12], [3, 2, 2, 3], attributes, true);
    }
}

#[test]
fn conv2d_in_groups() {
    let attributes = |groups| op::Conv2d { stride: [2, 1], padding: [1, 0], dilation: [1, 2], groups };
    conv([2, 4, 6, 7], [6, 2, 3, 2], attributes(2), true);
    conv([2, 4, 6, 7], [4, 1, 3, 2], attributes(4), false);
}

/// With ReLU in the same op; with and without a bias.
#[test]
fn conv2d_relu() {
    let attributes = op::Conv2d { stride: [2, 1], padding: [1, 0], ..op::Conv2d::default() };
    for bias in [false, true] {
        let mut case = Case::new();
        let mut inputs = vec![case.leaf("x", &[2, 3, 6, 5]), case.leaf("w", &[4, 3, 3, 2])];
        inputs.extend(bias.then(|| case.leaf("b", &[4])));
        let y = case.push("y", Op::Conv2dRelu(attributes), &inputs);
        case.check(y);
    }
}

#[test]
fn linear() {
    for bias in [false, true] {
        let mut case = Case::new();
        let mut inputs = vec![case.leaf("x", &[3, 5]), case.leaf("w", &[4, 5])];
        if bias {
            inputs.push(case.leaf("b", &[4]));
        }
        let y = case.push("y", Op::Linear, &inputs);
        case.check(y);
    }
}

#[test]
fn relu() {
    unary(Op::Relu, &[2, 3, 4, 4]);
}

/// Case B09: windows that overlap, with padding; and windows that hang over the edge.
#[test]
fn max_pool2d() {
    let pool = |window| Op::MaxPool2d(op::MaxPool2d { window });
    unary(pool(Window::square(2)), &[2, 3, 6, 4]);
    unary(pool(Window { stride: [2; 2], padding: [1; 2], ..Window::square(3) }), &[2, 2, 8, 7]);
    unary(pool(Window { stride: [1; 2], padding: [1; 2], ..Window::square(3) }), &[1, 2, 5, 5]);
    unary(pool(Window { stride: [2; 2], ceil_mode: true, ..Window::square(3) }), &[2, 1, 8, 6]);
    unary(
        pool(Window { kernel: [2, 3], stride: [3, 2], padding: [0, 1], dilation: [2, 1], ceil_mode: false }),
        &[1, 2, 9, 7],
    );
}

#[test]
fn avg_pool2d() {
    for count_include_pad in [false, true] {
        let pool = |window| Op::AvgPool2d(op::AvgPool2d { window, count_include_pad });
        unary(pool(Window::square(2)), &[2, 3, 4, 6]);
        unary(pool(Window { stride: [2, 1], padding: [1, 1], ..Window::square(3) }), &[2, 2, 7, 5]);
        unary(pool(Window { stride: [2; 2], padding: [1; 2], ceil_mode: true, ..Window::square(3) }), &[1, 2, 8, 6]);
    }
}

#[test]
fn adaptive_avg_pool2d() {
    for output in [[1, 1], [2, 3], [4, 5]] {
        unary(Op::AdaptiveAvgPool2d(op::AdaptiveAvgPool2d { output }), &[2, 3, 5, 7]);
    }
}

#[test]
fn unfold() {
    let (dtype, layout) = (DType::F64, Layout::default());
    for (window, stride, padding, output) in
        [([7, 2], [2, 2], [3, 3], [4, 6]), ([3, 1], [1, 1], [1, 1], [7, 5]), ([1, 2], [3, 4], [0, 1], [3, 2])]
    {
        unary(Op::Unfold(op::Unfold { window, stride, padding, output, dtype, layout }), &[2, 2, 7, 5]);
    }
}

#[test]
fn local_response_norm() {
    for (size, channels) in [(5, 7), (4, 3), (1, 2)] {
        let norm = op::LocalResponseNorm { size, alpha: 0.3, beta: 0.75, k: 2.0 };
        unary(Op::LocalResponseNorm(norm), &[2, channels, 2, 3]);
    }
}

/// X, gamma and beta, the way through the statistics included.
#[test]
fn batch_norm() {
    let mut case = Case::new();
    let x = case.leaf("x", &[3, 2, 2, 3]);
    let (gamma, beta) = (case.leaf("gamma", &[2]), case.leaf("beta", &[2]));
    let statistics = case.graph.push("stats", Op::BatchNormStats, &[x]).unwrap();
    let norm = Op::BatchNorm(op::BatchNorm { eps: 1e-5 });
    let y = case.push("y", norm, &[x, statistics[0], statistics[1], gamma, beta]);
    case.check(y);
}

/// The same in one op with ReLU; the residual too, and the normalised X as its own residual.
#[test]
fn batch_norm_with_relu() {
    for residual in 0..3 {
        let mut case = Case::new();
        let x = case.leaf("x", &[3, 2, 2, 3]);
        let (gamma, beta) = (case.leaf("gamma", &[2]), case.leaf("beta", &[2]));
        let statistics = case.graph.push("stats", Op::BatchNormStats, &[x]).unwrap();
        let norm = op::BatchNorm { eps: 1e-5 };
        let mut inputs = vec![x, statistics[0], statistics[1], gamma, beta];
        let op = match residual {
            0 => Op::BatchNormRelu(norm),
            1 => {
                inputs.push(case.leaf("residual", &[3, 2, 2, 3]));
                Op::BatchNormAddRelu(norm)
            }
            _ => {
                inputs.push(x);
                Op::BatchNormAddRelu(norm)
            }
        };
        let y = case.push("y", op, &inputs);
        case.check(y);
    }
}

/// Two norms under a ReLU: of two maps, of one map twice, and of a result that is read twice, whose two gradients the op adds.
#[test]
fn two_batch_norms_with_relu() {
    for (same_map, twice) in [(false, false), (true, false), (false, true)] {
        let mut case = Case::new();
        let a = case.leaf("a", &[3, 2, 2, 3]);
        let b = if same_map { a } else { case.leaf("b", &[3, 2, 2, 3]) };
        let mut inputs = Vec::new();
        for (name, x) in [("a", a), ("b", b)] {
            let [gamma, beta] = ["gamma", "beta"].map(|of| case.leaf(&format!("{name}_{of}"), &[2]));
            let statistics = case.graph.push(&format!("{name}_stats"), Op::BatchNormStats, &[x]).unwrap();
            inputs.extend([x, statistics[0], statistics[1], gamma, beta]);
        }
        let mut y = case.push("y", Op::BatchNormPairRelu(op::BatchNormPair { eps: [1e-5, 1e-3] }), &inputs);
        if twice {
            let again = case.push("again", Op::Relu, &[y]);
            y = case.push("sum", Op::Add, &[y, again]);
        }
        case.check(y);
    }
}

/// The stem of a ResNet in one op, with overlapping windows and with windows side by side.
#[test]
fn batch_norm_with_relu_and_pool() {
    for (kernel, padding) in [(3, 1), (2, 0)] {
        let mut case = Case::new();
        let x = case.leaf("x", &[2, 2, 5, 4]);
        let (gamma, beta) = (case.leaf("gamma", &[2]), case.leaf("beta", &[2]));
        let statistics = case.graph.push("stats", Op::BatchNormStats, &[x]).unwrap();
        let window = op::Window { stride: [2, 2], padding: [padding; 2], ..op::Window::square(kernel) };
        let (norm, pool) = (op::BatchNorm { eps: 1e-5 }, op::MaxPool2d { window });
        let stem = Op::BatchNormReluMaxPool2d(op::BatchNormReluMaxPool2d { norm, pool });
        let y = case.push("y", stem, &[x, statistics[0], statistics[1], gamma, beta]);
        case.check(y);
    }
}

#[test]
fn add() {
    let mut case = Case::new();
    let (a, b) = (case.leaf("a", &[2, 3]), case.leaf("b", &[2, 3]));
    let y = case.push("y", Op::Add, &[a, b]);
    case.check(y);
}

/// A value used twice, in all the ways: by one node, by two, and through views.
#[test]
fn values_used_more_than_once() {
    let mut case = Case::new();
    let (x, w) = (case.leaf("x", &[2, 4]), case.leaf("w", &[4, 4]));
    let twice = case.push("twice", Op::Add, &[x, x]);
    let hidden = case.push("hidden", Op::Linear, &[twice, w]);
    let again = case.push("again", Op::Linear, &[hidden, w]);
    let sum = case.push("sum", Op::Add, &[hidden, again]);
    let y = case.push("y", Op::Add, &[sum, twice]);
    case.check(y);
}

#[test]
fn concat_and_split() {
    let mut case = Case::new();
    let (a, b) = (case.leaf("a", &[2, 2, 2, 2]), case.leaf("b", &[2, 3, 2, 2]));
    let a = case.push("relu", Op::Relu, &[a]);
    let joined = case.push("joined", Op::Concat(op::Concat::default()), &[a, b, a]);
    let sections = vec![3, 1, 3];
    let parts = case.graph.push("parts", Op::Split(op::Split::channels(sections)), &[joined]).unwrap();
    let y = case.push("y", Op::Add, &[parts[0], parts[2]]);
    case.check(y);
}

/// Samples are joined and cut like channels.
#[test]
fn concat_and_split_along_the_batch() {
    let mut case = Case::new();
    let (a, b) = (case.leaf("a", &[2, 2, 2, 2]), case.leaf("b", &[3, 2, 2, 2]));
    let a = case.push("relu", Op::Relu, &[a]);
    let joined = case.push("joined", Op::Concat(op::Concat::along(op::Axis::Batch)), &[a, b, a]);
    let cut = op::Split { sections: vec![3, 1, 3], axis: op::Axis::Batch };
    let parts = case.graph.push("parts", Op::Split(cut), &[joined]).unwrap();
    let y = case.push("y", Op::Add, &[parts[0], parts[2]]);
    case.check(y);
}

/// Each concatenation lies inside the next, and the gradients are summed inside the split ones.
#[test]
fn nested_concats() {
    let mut case = Case::new();
    let mut x = case.leaf("x", &[2, 2, 3, 3]);
    x = case.push("stem", Op::Relu, &[x]);
    for k in 0..3 {
        let channels = case.graph.value(x).ty.shape.dim(1);
        let w = case.leaf(&format!("w{k}"), &[2, channels, 3, 3]);
        let conv = Op::Conv2d(op::Conv2d { padding: [1, 1], ..op::Conv2d::default() });
        let f = case.push(&format!("f{k}"), conv, &[x, w]);
        let f = case.push(&format!("relu{k}"), Op::Relu, &[f]);
        x = case.push(&format!("x{k}"), Op::Concat(op::Concat::default()), &[x, f]);
    }
    case.check(x);
}

#[test]
fn flatten_and_unflatten() {
    let mut case = Case::new();
    let (x, w) = (case.leaf("x", &[2, 3, 2, 2]), case.leaf("w", &[8, 12]));
    let flat = case.push("flat", Op::Flatten, &[x]);
    let y = case.push("y", Op::Linear, &[flat, w]);
    let y = case.push("image", Op::Unflatten(op::Unflatten { sample: vec![2, 2, 2] }), &[y]);
    let y = case.push("pool", Op::MaxPool2d(op::MaxPool2d { window: Window::square(2) }), &[y]);
    case.check(y);
}

#[test]
fn dropout() {
    let mut case = Case::new();
    let x = case.leaf("x", &[4, 5, 3, 3]);
    let iteration = case.graph.input("iteration", TensorType::new([1], DType::U64)).unwrap();
    let y = case.push("y", Op::Dropout(op::Dropout { p: 0.4, seed: 9, stream: 3 }), &[x, iteration]);
    case.check(y);
}

/// Smoothing, ignored rows, and both at once; the root is the loss itself.
#[test]
fn softmax_cross_entropy() {
    for label_smoothing in [0.0, 0.1] {
        for ignored in [-100, 2] {
            let mut graph = Graph::new("loss");
            let logits = graph.parameter("logits", TensorType::new([4, 5], DType::F64)).unwrap();
            let label = graph.input("label", TensorType::new([4], DType::I32)).unwrap();
            let loss = Op::SoftmaxCrossEntropy(op::SoftmaxCrossEntropy { label_smoothing, ignore_index: ignored });
            let loss: ValueId = graph.push("loss", loss, &[logits, label]).unwrap()[0];
            check(graph, Root::Loss(loss), &["logits".to_string()], &[1, 4, 2, 0]);
        }
    }
}
