//! Exact cases from the field.

use crate::interpreter::Interpreter;
use vdnn_autograd::{Options, Root, TrainGraph, differentiate};
use vdnn_graph::{Graph, InPlace, Op, ValueId, op};
use vdnn_layers::{
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Dropout, Flatten, Layer, Linear, MaxPool2d, Net, NetOptions, Relu,
};
use vdnn_tensor::{DType, TensorType};

fn gradients(graph: Graph, y: ValueId, keep: &[&str]) -> TrainGraph {
    let keep = keep.iter().map(|name| graph.find_value(name).unwrap()).collect();
    let root = Root::Value { value: y, seed_name: "dy".to_string() };
    differentiate(graph, &Options { keep, ..Options::new(root) }).unwrap()
}

/// Case B01 at full size: dX has X's shape and dW has W's.
#[test]
fn gradients_have_the_shapes_of_what_they_are_gradients_of() {
    let mut net = Net::new("patches", &NetOptions::default()).unwrap();
    let image = net.image();
    let y = Conv2d::new(3, 8, 16).stride(16).push(&mut net, "patch", image).unwrap();
    let z = Conv2d::new(3, 8, 7).stride(2).padding(3).push(&mut net, "stem", image).unwrap();
    let z = Conv2d::new(8, 8, 3).stride(2).padding(1).push(&mut net, "next", z).unwrap();
    for root in [y, z] {
        let train = gradients(net.graph().clone(), root, &["image"]);
        for (&value, &gradient) in &train.gradients {
            assert_eq!(train.graph.value(value).ty, train.graph.value(gradient).ty);
        }
    }
}

/// Case B02: the last input is reached by no window; its gradient is exactly 0.
#[test]
fn an_input_tail_that_no_window_reaches() {
    let mut graph = Graph::new("tail");
    let x = graph.parameter("x", TensorType::new([1, 1, 1, 6], DType::F64)).unwrap();
    let w = graph.parameter("w", TensorType::new([1, 1, 1, 3], DType::F64)).unwrap();
    let conv = Op::Conv2d(op::Conv2d { stride: [1, 2], ..op::Conv2d::default() });
    let y = graph.push("y", conv, &[x, w]).unwrap()[0];
    let train = gradients(graph, y, &["x", "w"]);
    for algorithm in 0..4 {
        let mut run = Interpreter::new(train.graph.clone(), InPlace::Allowed);
        run.algorithm = algorithm;
        run.set("x", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        run.set("w", &[1.0, 2.0, 3.0]);
        run.set("dy", &[1.0, 1.0]);
        run.run();
        assert_eq!(run.get("y"), [14.0, 26.0]);
        assert_eq!(run.get("x.grad"), [1.0, 2.0, 4.0, 2.0, 3.0, 0.0]);
        assert_eq!(run.get("w.grad"), [4.0, 6.0, 8.0]);
    }
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-7, "expected {expected}, found {found}");
    }
}

fn options(n: u64, image: [u64; 3]) -> NetOptions {
    NetOptions { batch_size: n, image, dtype: DType::F64, ..NetOptions::default() }
}

fn start(net: &Net, graph: Graph) -> Interpreter {
    let mut run = Interpreter::new(graph, InPlace::Allowed);
    net.initial_values().for_each(|(name, tensor)| run.set_tensor(name, &tensor));
    run
}

/// Cases B11, B12 and B15: biased variance in the output, unbiased in the state, moved once a step, with or without
/// backward.
#[test]
fn running_statistics_move_once() {
    let mut net = Net::new("bn", &options(4, [1, 1, 1])).unwrap();
    let image = net.image();
    let y = BatchNorm2d::new(1).push(&mut net, "bn", image).unwrap();
    let train = gradients(net.graph().clone(), y, &["image"]);
    for graph in [net.graph().clone(), train.graph] {
        let mut run = start(&net, graph);
        run.set("image", &[1.0, 2.0, 3.0, 4.0]);
        if run.graph().find_value("dy").is_some() {
            run.set("dy", &[1.0, -1.0, 0.5, 2.0]);
        }
        run.run();
        close(&run.get("bn"), &[-1.341_635_4, -0.447_211_8, 0.447_211_8, 1.341_635_4]);
        close(&run.get("bn.running_mean"), &[0.25]);
        close(&run.get("bn.running_var"), &[1.066_666_666_7]);
        run.run();
        close(&run.get("bn.running_mean"), &[0.475]);
        close(&run.get("bn.running_var"), &[1.126_666_666_7]);
    }
}

/// Case B12: evaluation reads the running statistics and changes nothing.
#[test]
fn evaluation_changes_nothing() {
    let mut net = Net::new("bn", &NetOptions { mode: vdnn_layers::Mode::Eval, ..options(2, [1, 1, 1]) }).unwrap();
    let image = net.image();
    BatchNorm2d::new(1).eps(0.0).push(&mut net, "bn", image).unwrap();
    let mut run = start(&net, net.graph().clone());
    run.set("bn.running_mean", &[1.0]);
    run.set("bn.running_var", &[4.0]);
    run.set("image", &[1.0, 5.0]);
    run.run();
    assert_eq!(run.get("bn"), [0.0, 2.0]);
    assert_eq!((run.get("bn.running_mean"), run.get("bn.running_var")), (vec![1.0], vec![4.0]));
}

/// Case B16: an empty batch goes through; gradients of weights are zero and running statistics stay.
#[test]
fn an_empty_batch() {
    let mut net = Net::new("empty", &options(0, [3, 8, 8])).unwrap();
    let x = net.image();
    let x = Conv2d::new(3, 4, 3).padding(1).push(&mut net, "conv", x).unwrap();
    let x = BatchNorm2d::new(4).push(&mut net, "bn", x).unwrap();
    let x = Relu.push(&mut net, "relu", x).unwrap();
    let x = MaxPool2d::new(2, 2).push(&mut net, "pool", x).unwrap();
    let x = AdaptiveAvgPool2d(2).push(&mut net, "avgpool", x).unwrap();
    let x = Flatten.push(&mut net, "flatten", x).unwrap();
    let y = Linear::new(16, 5).push(&mut net, "fc", x).unwrap();
    let refused = net.clone().classify(y, 0.0).unwrap_err().to_string();
    assert!(refused.contains("mean over no samples"), "{refused}");
    let parameters: Vec<String> = net.initial().iter().map(|(name, _)| name.clone()).collect();
    let trained: Vec<&str> = parameters.iter().map(String::as_str).filter(|name| !name.contains("running")).collect();
    let train = gradients(net.graph().clone(), y, &trained);
    let mut run = start(&net, train.graph);
    run.run();
    for name in trained {
        let gradient = run.get(&format!("{name}.grad"));
        assert!(gradient.iter().all(|g| *g == 0.0), "{name}: {gradient:?}");
    }
    assert_eq!(run.get("bn.running_mean"), [0.0; 4]);
    assert_eq!(run.get("bn.running_var"), [1.0; 4]);
}

/// Case B29: the gradient passes exactly where the forward let the value pass, scaled alike; each iteration has a mask
/// of its own, and two layers of one step have different ones.
#[test]
fn dropout_masks() {
    let mut net = Net::new("drop", &options(8, [4, 4, 4])).unwrap();
    let image = net.image();
    let x = Dropout(0.5).push(&mut net, "drop1", image).unwrap();
    Dropout(0.5).push(&mut net, "drop2", image).unwrap();
    let train = gradients(net.graph().clone(), x, &["image"]);
    let mut run = start(&net, train.graph);
    let ones = vec![1.0; 8 * 64];
    run.set("image", &ones);
    run.set("dy", &ones);
    let mut step = |iteration| {
        run.set_iteration(iteration);
        run.run();
        assert_eq!(run.get("drop1"), run.get("image.grad"));
        assert_ne!(run.get("drop1"), run.get("drop2"));
        run.get("drop1")
    };
    let first = step(0);
    assert!(first.iter().all(|y| *y == 0.0 || *y == 2.0));
    let kept = first.iter().filter(|y| **y > 0.0).count();
    assert!((200..312).contains(&kept), "{kept} of 512 kept");
    assert_eq!(first, step(0), "a second run of an iteration drops the same elements");
    assert_ne!(first, step(1));
}
