//! Convolutions over an unfolded image (`graph/src/passes/stem.rs`) against the plain ones they replace: the same sums in
//! another order.

use crate::interpreter::{Interpreter, noise};
use vdnn_autograd::{Options, Root, differentiate};
use vdnn_graph::passes::stem;
use vdnn_graph::{Graph, InPlace, Op, op};
use vdnn_tensor::{DType, TensorType};

/// Of the largest element of what is compared. Some hundred products are summed in another order: ten times the rounding of that.
const TOLERANCE: f64 = 1e-12;
/// No convolution has more algorithms than this.
const ALGORITHMS: usize = 5;

/// A square filter of a network's first layer.
#[derive(Clone, Copy, Debug)]
struct Stem {
    filter: u64,
    stride: u64,
    padding: u64,
}

const RESNET: Stem = Stem { filter: 7, stride: 2, padding: 3 };
const VGG: Stem = Stem { filter: 3, stride: 1, padding: 1 };
const ALEXNET: Stem = Stem { filter: 11, stride: 4, padding: 2 };

/// `x [2, 3, H, W]` and `w [4, 3, K, K]` convolved to `y`, with `bias` and ReLU in the same node where it is fused.
fn layer(stem: Stem, [h, w]: [u64; 2], fused: bool) -> Graph {
    let mut graph = Graph::new("stem");
    let f64s = |dims: &[u64]| TensorType::new(dims, DType::F64);
    let conv = op::Conv2d { stride: [stem.stride; 2], padding: [stem.padding; 2], ..op::Conv2d::default() };
    let image = graph.input("x", f64s(&[2, 3, h, w])).unwrap();
    let weight = graph.parameter("w", f64s(&[4, 3, stem.filter, stem.filter])).unwrap();
    let bias = graph.parameter("bias", f64s(&[4])).unwrap();
    let op = if fused { Op::Conv2dRelu(conv) } else { Op::Conv2d(conv) };
    graph.push("y", op, &[image, weight, bias]).unwrap();
    graph
}

/// Y, dW and dbias of a layer, and dX where `asked` for, by one of the kernels' algorithms.
fn results(graph: Graph, asked: bool, algorithm: usize) -> Vec<(String, Vec<f64>)> {
    let id = |name: &str| graph.find_value(name).unwrap();
    let of: Vec<_> = ["w", "bias", "x"].into_iter().take(if asked { 3 } else { 2 }).map(id).collect();
    let root = Root::Value { value: id("y"), seed_name: "dy".to_string() };
    let train = differentiate(graph, &Options { keep: of.clone(), ..Options::new(root) }).unwrap();
    let gradients = of.iter().map(|value| train.graph.value(train.gradients[value]).name.clone());
    let names: Vec<String> = std::iter::once("y".to_string()).chain(gradients).collect();
    let mut run = Interpreter::new(train.graph, InPlace::PersistentsOnly);
    run.algorithm = algorithm;
    for name in ["x", "w", "bias", "dy"] {
        let ty = run.graph().value(run.graph().find_value(name).unwrap()).ty.clone();
        run.set(name, &noise(name, &ty));
    }
    run.run();
    names.into_iter().map(|name| (name.clone(), run.get(&name))).collect()
}

/// Compares a stem with its unfolded form at sizes of the image: plain, fused, and without dX.
fn check(of: Stem, sizes: &[[u64; 2]]) {
    for &size in sizes {
        for (fused, asked) in [(false, true), (true, true), (false, false)] {
            let plain = layer(of, size, fused);
            let unfolded = stem(&plain).unwrap().graph;
            let unfolds = unfolded.nodes().iter().filter(|node| matches!(node.op, Op::Unfold(_))).count();
            assert_eq!(unfolds, 2, "image and weights are unfolded:\n{unfolded}");
            // Whichever of the plain convolution's algorithms is last; all are compared with PyTorch's values elsewhere.
            let expected = results(plain, asked, usize::MAX);
            for algorithm in 0..ALGORITHMS {
                let place = format!("{of:?} over {size:?}, fused: {fused}, algorithm {algorithm}");
                let found = results(unfolded.clone(), asked, algorithm);
                expected.iter().zip(&found).for_each(|(expected, found)| assert_close(&place, found, expected));
            }
        }
    }
}

fn assert_close(place: &str, (_, found): &(String, Vec<f64>), (name, expected): &(String, Vec<f64>)) {
    assert_eq!(found.len(), expected.len(), "{name} of {place}");
    let largest = expected.iter().fold(0.0f64, |largest, number| largest.max(number.abs()));
    assert!(largest > 0.0, "{name} of {place}: nothing to compare");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / largest;
        assert!(error < TOLERANCE, "{name}[{index}] of {place}: expected {expected}, found {found}");
    }
}

/// Unfolded by the window in height and the stride in width: 42 channels.
#[test]
fn seven_by_seven_in_steps_of_two() {
    check(RESNET, &[[15, 13], [14, 17], [9, 22]]);
}

/// Unfolded by the window in height alone: 9 channels.
#[test]
fn three_by_three() {
    check(VGG, &[[7, 9], [5, 5], [8, 3]]);
}

/// Unfolded by the stride both ways: 48 channels. At two of the sizes no window reaches the last row or column.
#[test]
fn eleven_by_eleven_in_steps_of_four() {
    check(ALEXNET, &[[31, 35], [33, 37], [29, 32]]);
}
