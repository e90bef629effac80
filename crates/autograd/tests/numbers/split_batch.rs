//! A batch that is split: the bits of the whole batch forward, its gradients but for the order of sums.

use crate::gradcheck::check;
use crate::interpreter::{Interpreter, noise};
use vdnn_autograd::{Optimizer, Options, Root, differentiate};
use vdnn_graph::passes::{Rewritten, frontiers, split_batch};
use vdnn_graph::{Graph, InPlace, Role, ValueId, op};
use vdnn_layers::{
    AvgPool2d, Conv2d, Flatten, Layer, LayerError, Linear, LocalResponseNorm, MaxPool2d, Net, NetOptions, Relu, add,
    concat,
};
use vdnn_tensor::DType;

const LABELS: [i32; 5] = [1, 0, 2, 2, 1];
/// Every kernel there is for a convolution, with one for products: what is fastest depends on the number of samples.
const ALGORITHMS: [&[&str]; 5] =
    [&["direct"], &["tiles", "gemm"], &["im2col", "gemm"], &["winograd2", "direct"], &["winograd4", "gemm"]];

fn build(body: Body) -> Net {
    let image = [2, 8, 8];
    let options = NetOptions { batch_size: 5, image, dtype: DType::F64, seed: 5, ..NetOptions::default() };
    let mut net = Net::new("test", &options).unwrap();
    let image = net.image();
    let x = body(&mut net, image).unwrap();
    let x = Flatten.push(&mut net, "flatten", x).unwrap();
    let x = Linear::new(net.channels(x), 6).push(&mut net, "fc1", x).unwrap();
    let x = Relu.push(&mut net, "fc_relu", x).unwrap();
    let x = Linear::new(6, 3).push(&mut net, "fc2", x).unwrap();
    net.classify(x, 0.05).unwrap();
    net
}

fn conv(net: &mut Net, name: &str, x: ValueId, out: u64, kernel: u64) -> Result<ValueId, LayerError> {
    let y = Conv2d::new(net.channels(x), out, kernel).padding(kernel / 2).push(net, name, x)?;
    Relu.push(net, &format!("{name}.relu"), y)
}

fn vgg(net: &mut Net, image: ValueId) -> Result<ValueId, LayerError> {
    let x = conv(net, "conv1", image, 3, 3)?;
    let x = conv(net, "conv2", x, 3, 3)?;
    let x = MaxPool2d::new(2, 2).push(net, "pool1", x)?;
    let x = conv(net, "conv3", x, 4, 3)?;
    MaxPool2d::new(2, 2).push(net, "pool2", x)
}

/// Branches that are joined along the channels, a sum, two kinds of pools, normalisation across channels.
fn inception(net: &mut Net, image: ValueId) -> Result<ValueId, LayerError> {
    let x = conv(net, "stem", image, 4, 3)?;
    let x = LocalResponseNorm::new(3).push(net, "lrn", x)?;
    let x = MaxPool2d::new(2, 2).push(net, "pool1", x)?;
    let one = conv(net, "one", x, 2, 1)?;
    let three = conv(net, "three", x, 3, 3)?;
    let pooled = MaxPool2d::new(3, 1).padding(1).push(net, "pool", x)?;
    let pooled = conv(net, "pooled", pooled, 2, 1)?;
    let x = concat(net, "concat", &[one, three, pooled])?;
    let y = conv(net, "conv", x, 7, 3)?;
    let x = add(net, "add", x, y)?;
    AvgPool2d::new(2, 2).push(net, "pool2", x)
}

type Body = fn(&mut Net, ValueId) -> Result<ValueId, LayerError>;

const NETS: [(&str, Body); 2] = [("vgg", vgg), ("inception", inception)];

/// Places to join at: all that are worth trying, one inside a module (others then are joined as well), one behind everything.
fn places(net: &Net) -> Vec<ValueId> {
    let inside = ["three", "conv3"].iter().filter_map(|name| net.graph().find_value(name));
    frontiers(net.graph()).values.into_iter().chain(inside).chain(net.logits()).collect()
}

fn filled(graph: Graph, net: &Net, in_place: InPlace, algorithms: &'static [&'static str]) -> Interpreter {
    let mut run = Interpreter::new(graph, in_place);
    run.named = algorithms;
    for (name, tensor) in net.initial_values() {
        run.set_tensor(name, &tensor);
    }
    let momenta: Vec<(String, usize)> = (run.graph().persistents().iter())
        .map(|persistent| run.graph().value(persistent.initial))
        .filter(|value| value.role == Role::State)
        .map(|value| (value.name.clone(), value.ty.shape.elements() as usize))
        .collect();
    momenta.iter().for_each(|(name, n)| run.set(name, &vec![0.0; *n]));
    run.set("image", &noise("image", net.ty(net.image())));
    run.set("learning_rate", &[0.05]);
    run.set_labels(&LABELS);
    run
}

#[test]
fn forward_has_the_bits_of_the_whole_batch() {
    for (name, body) in NETS {
        let net = build(body);
        for algorithm in ALGORITHMS {
            let mut whole = filled(net.graph().clone(), &net, InPlace::PersistentsOnly, algorithm);
            whole.run();
            for (place, parts) in places(&net).into_iter().flat_map(|place| [1, 2, 3, 5].map(|k| (place, k))) {
                let split = split_batch(net.graph(), parts, place).unwrap();
                let joined = net.graph().value(place).name.as_str();
                for in_place in [InPlace::PersistentsOnly, InPlace::Allowed] {
                    let mut run = filled(split.graph.clone(), &net, in_place, algorithm);
                    run.run();
                    let about = format!("{name}, {parts} parts to {joined}, {algorithm:?}, {in_place:?}");
                    // In place others may have written over what was joined.
                    let apart = in_place == InPlace::PersistentsOnly;
                    for value in ["loss", "fc2"].into_iter().chain(apart.then_some(joined)) {
                        assert_eq!(run.get(value), whole.get(value), "{value} of {about}");
                    }
                }
            }
        }
    }
}

/// Gradients by name, the image's among them.
fn gradients(net: &Net, graph: Graph, in_place: InPlace) -> Vec<(String, Vec<f64>)> {
    let leaves: Vec<ValueId> = (graph.value_ids())
        .filter(|&id| graph.value(id).role == Role::Parameter || graph.value(id).name == "image")
        .collect();
    let names: Vec<String> = leaves.iter().map(|&id| graph.value(id).name.clone()).collect();
    let loss = graph.find_value("loss").unwrap();
    let train = differentiate(graph, &Options { keep: leaves.clone(), ..Options::new(Root::Loss(loss)) }).unwrap();
    let of = |leaf: &ValueId| train.graph.value(train.gradients[leaf]).name.clone();
    let gradients: Vec<String> = leaves.iter().map(of).collect();
    let mut run = filled(train.graph, net, in_place, ALGORITHMS[2]);
    run.run();
    names.into_iter().zip(gradients).map(|(name, gradient)| (name, run.get(&gradient))).collect()
}

#[test]
fn gradients_differ_by_the_order_of_sums_only() {
    for (name, body) in NETS {
        let net = build(body);
        let whole = gradients(&net, net.graph().clone(), InPlace::PersistentsOnly);
        for (place, parts) in places(&net).into_iter().flat_map(|place| [1, 2, 3, 5].map(|k| (place, k))) {
            let Rewritten { graph, .. } = split_batch(net.graph(), parts, place).unwrap();
            let apart = gradients(&net, graph.clone(), InPlace::PersistentsOnly);
            let about = format!("{name}, {parts} parts to {}", net.graph().value(place).name);
            assert_eq!(apart, gradients(&net, graph, InPlace::Allowed), "in place, {about}");
            for ((leaf, expected), (_, found)) in whole.iter().zip(&apart) {
                let scale = expected.iter().fold(0.0f64, |most, x| most.max(x.abs()));
                let far = expected.iter().zip(found).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
                assert!(scale > 0.0 && far <= 1e-12 * scale, "{leaf} of {about}: {far:e} of {scale:e}");
            }
            assert!(parts > 1 || whole == apart, "one part is the whole batch: {about}");
        }
    }
}

/// Against differences as well, so that this file rests on no other gradient.
#[test]
fn gradients_are_those_of_differences() {
    for (name, body) in NETS {
        let net = build(body);
        let place = net.graph().find_value("pool2").unwrap();
        let Rewritten { graph, .. } = split_batch(net.graph(), 2, place).unwrap();
        let parameters = graph.values().iter().filter(|value| value.role == Role::Parameter);
        let leaves: Vec<String> = parameters.map(|value| value.name.clone()).collect();
        let loss = graph.find_value("loss").unwrap();
        assert!(!leaves.is_empty(), "{name}");
        check(graph, Root::Loss(loss), &leaves, &LABELS);
    }
}

/// Three steps with momentum: the updates stand after the last part's gradient, and what lies where changes nothing.
#[test]
fn training_is_the_same_wherever_values_lie() {
    for (name, body) in NETS {
        let net = build(body);
        let trained = |graph: &Graph, in_place| {
            let sgd = op::Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 1e-3, nesterov: false };
            let loss = graph.find_value("loss").unwrap();
            let train = differentiate(graph.clone(), &Options::train(loss, Optimizer::Sgd(sgd))).unwrap();
            let mut run = filled(train.graph, &net, in_place, ALGORITHMS[2]);
            let losses: Vec<f64> = (0..3)
                .map(|_| {
                    run.run();
                    run.get("loss")[0]
                })
                .collect();
            (losses, run.get("fc1.weight"))
        };
        let whole = trained(net.graph(), InPlace::Allowed);
        let place = net.graph().find_value("pool2").unwrap();
        let graph = split_batch(net.graph(), 3, place).unwrap().graph;
        let (losses, weights) = trained(&graph, InPlace::Allowed);
        assert_eq!((losses.clone(), weights), trained(&graph, InPlace::PersistentsOnly), "{name}");
        assert_eq!(losses[0], whole.0[0], "{name}");
        assert!(whole.0.iter().zip(&losses).all(|(a, b)| (a - b).abs() < 1e-12), "{name}: {losses:?} {whole:?}");
        assert!(losses[2] < losses[0], "{name} learns: {losses:?}");
    }
}
