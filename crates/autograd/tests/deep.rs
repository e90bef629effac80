//! Case B32: nothing recurses with the depth of the network, and nothing takes more than linear time in it.

use std::time::{Duration, Instant};
use vdnn_autograd::{Optimizer, Options, Root, differentiate};
use vdnn_graph::{Graph, InPlace, Op, Program, ValueId, op};
use vdnn_layers::{BatchNorm2d, Conv2d, Flatten, Layer, Linear, Net, NetOptions, Relu, add, concat};
use vdnn_tensor::{DType, TensorType};

const STACK: usize = 2 << 20;

/// Generous against a busy machine; a quadratic walk over these sizes takes many minutes.
const LIMIT: Duration = Duration::from_secs(20);

fn in_small_stack(body: impl FnOnce() + Send + 'static) {
    let start = Instant::now();
    std::thread::Builder::new().stack_size(STACK).spawn(body).unwrap().join().unwrap();
    assert!(start.elapsed() < LIMIT, "took {:?}", start.elapsed());
}

fn momentum() -> Optimizer {
    Optimizer::Sgd(op::Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 0.0, nesterov: false })
}

fn train(net: Net) -> Program {
    let loss = net.loss().unwrap();
    let train = differentiate(net.into_graph(), &Options::train(loss, momentum())).unwrap();
    Program::linearize(train.graph, InPlace::Allowed).unwrap()
}

fn small() -> (Net, ValueId) {
    let options = NetOptions { batch_size: 2, image: [2, 2, 2], ..NetOptions::default() };
    let net = Net::new("deep", &options).unwrap();
    let image = net.image();
    (net, image)
}

fn classify(net: &mut Net, x: ValueId) {
    let x = Flatten.push(net, "flatten", x).unwrap();
    let x = Linear::new(net.channels(x), 2).push(net, "fc", x).unwrap();
    net.classify(x, 0.0).unwrap();
}

#[test]
fn a_chain_of_100_000_nodes() {
    in_small_stack(|| {
        let mut graph = Graph::new("chain");
        let mut x = graph.parameter("w", TensorType::new([1, 4], DType::F32)).unwrap();
        for i in 0..100_000 {
            x = graph.push(&format!("relu{i}"), Op::Relu, &[x]).unwrap()[0];
        }
        let root = Root::Value { value: x, seed_name: "seed".to_string() };
        let train = differentiate(graph, &Options { optimizer: momentum(), ..Options::new(root) }).unwrap();
        let program = Program::linearize(train.graph, InPlace::Allowed).unwrap();
        assert_eq!(program.n_steps(), 200_001);
    });
}

/// One convolution after another, each in a layer of its own with parameters and updates.
#[test]
fn ten_thousand_layers_with_parameters() {
    in_small_stack(|| {
        let (mut net, image) = small();
        let mut x = image;
        for i in 0..10_000 {
            x = Conv2d::new(2, 2, 1).push(&mut net, &format!("conv{i}"), x).unwrap();
            x = BatchNorm2d::new(2).push(&mut net, &format!("bn{i}"), x).unwrap();
            x = Relu.push(&mut net, &format!("relu{i}"), x).unwrap();
        }
        classify(&mut net, x);
        let program = train(net);
        assert_eq!(program.graph.persistents().len(), 4 * 2 * 10_000 + 2 * 10_000 + 4);
    });
}

/// Every value is used twice, and once more at the very end.
#[test]
fn ten_thousand_residual_blocks() {
    in_small_stack(|| {
        let (mut net, image) = small();
        let mut x = Conv2d::new(2, 2, 1).push(&mut net, "stem", image).unwrap();
        for i in 0..10_000 {
            let y = Relu.push(&mut net, &format!("relu{i}"), x).unwrap();
            x = add(&mut net, &format!("add{i}"), x, y).unwrap();
        }
        classify(&mut net, x);
        train(net);
    });
}

/// One value read by ten thousand branches, joined by one concatenation.
#[test]
fn a_fork_of_ten_thousand() {
    in_small_stack(|| {
        let (mut net, image) = small();
        let x = Conv2d::new(2, 2, 1).push(&mut net, "stem", image).unwrap();
        let parts: Vec<ValueId> = (0..10_000).map(|i| Relu.push(&mut net, &format!("relu{i}"), x).unwrap()).collect();
        let x = concat(&mut net, "concat", &parts).unwrap();
        classify(&mut net, x);
        train(net);
    });
}

/// A dense block: each concatenation lies inside the next.
#[test]
fn a_thousand_nested_concatenations() {
    in_small_stack(|| {
        let (mut net, image) = small();
        let mut x = Conv2d::new(2, 1, 1).push(&mut net, "stem", image).unwrap();
        for i in 0..1_000 {
            let channels = net.channels(x);
            let f = Conv2d::new(channels, 1, 1).push(&mut net, &format!("f{i}"), x).unwrap();
            x = concat(&mut net, &format!("x{i}"), &[x, f]).unwrap();
        }
        classify(&mut net, x);
        let program = train(net);
        let whole = program.graph.find_value("x999").unwrap();
        let stem = program.graph.find_value("stem").unwrap();
        assert_eq!(program.aliases.root(stem), program.aliases.root(whole));
    });
}
