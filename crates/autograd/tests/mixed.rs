//! Differentiation of what the passes make: gradients of weights come back to f32 before the update, fused batch norms have
//! rules of their own, and masks still fit.

use vdnn_autograd::{AutogradError, Optimizer, Options, Root, differentiate, encode};
use vdnn_graph::passes::Passes;
use vdnn_graph::{Graph, InPlace, Op, Phase, Program, Role, op};
use vdnn_layers::{
    BatchNorm2d, Conv2d, Flatten, Layer, LayerError, Linear, MaxPool2d, Mode, Net, NetOptions, Relu, Reuse, add,
};
use vdnn_tensor::DType;

const BF16: Passes = Passes { fuse: true, storage: Some(DType::BF16), ..Passes::NONE };

fn residual(mode: Mode, passes: Passes) -> Result<Net, LayerError> {
    let options = NetOptions { batch_size: 2, image: [3, 8, 8], mode, passes, ..NetOptions::default() };
    let mut net = Net::new("test", &options)?;
    let image = net.image();
    let x = Conv2d::new(3, 8, 3).padding(1).push(&mut net, "stem", image)?;
    let x = Relu.push(&mut net, "relu0", x)?;
    let x = MaxPool2d::new(2, 2).push(&mut net, "pool", x)?;
    let y = Conv2d::new(8, 8, 3).padding(1).no_bias().push(&mut net, "conv1", x)?;
    let y = BatchNorm2d::new(8).push(&mut net, "bn1", y)?;
    let y = Relu.push(&mut net, "relu1", y)?;
    let again = Reuse::new(Conv2d::new(8, 8, 3).padding(1).no_bias(), "conv1");
    let y = again.push(&mut net, "conv2", y)?;
    let y = BatchNorm2d::new(8).push(&mut net, "bn2", y)?;
    let y = add(&mut net, "add", y, x)?;
    let y = Relu.push(&mut net, "relu2", y)?;
    let y = Flatten.push(&mut net, "flatten", y)?;
    let y = Linear::new(8 * 16, 5).push(&mut net, "fc", y)?;
    net.classify(y, 0.0)?;
    net.lower()
}

fn train(net: Net) -> Graph {
    let sgd = op::Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 0.0, nesterov: false };
    let options = Options::train(net.loss().unwrap(), Optimizer::Sgd(sgd));
    differentiate(net.into_graph(), &options).unwrap().graph
}

fn position(graph: &Graph, name: &str) -> usize {
    graph.nodes().iter().position(|node| node.name == name).unwrap_or_else(|| panic!("no {name} in\n{graph}"))
}

#[test]
fn every_weight_is_updated_in_place_from_a_gradient_of_its_own_type() {
    let program = Program::linearize(train(residual(Mode::Train, BF16).unwrap()), InPlace::Allowed).unwrap();
    let graph = &program.graph;
    let mut updates = 0;
    for node in graph.nodes().iter().filter(|node| matches!(node.op, Op::Sgd(_))) {
        let [weight, gradient] = [node.inputs[0], node.inputs[1]];
        assert_eq!(graph.value(weight).ty, graph.value(gradient).ty);
        assert_eq!(graph.value(gradient).role, Role::ParameterGradient);
        assert_eq!(graph.value(gradient).name, format!("{}.grad", graph.value(weight).name));
        assert_eq!(program.aliases.location(weight), program.aliases.location(node.outputs[0]));
        updates += 1;
    }
    assert_eq!(updates, graph.values().iter().filter(|v| v.role == Role::Parameter && v.producer.is_none()).count());
    let halves = graph.persistents().iter().filter(|p| graph.value(p.initial).ty.dtype.is_half()).count();
    assert_eq!(halves, 0, "nothing in half precision outlives the iteration");
}

/// Weight gradient, data gradient, cast of the weight's gradient, update; once for a weight that is used twice.
#[test]
fn a_shared_weight_has_one_cast_each_way() {
    let graph = train(residual(Mode::Train, BF16).unwrap());
    let order = [
        "conv1.weight.bf16",
        "conv1",
        "conv2",
        "conv2.weight_grad",
        "conv2.data_grad",
        "conv1.weight_grad",
        "conv1.data_grad",
        "conv1.weight.bf16.data_grad",
        "conv1.weight.update",
        "pool.data_grad",
    ];
    let places = order.map(|name| position(&graph, name));
    assert!(places.is_sorted(), "{order:?} at {places:?}");
    let casts = graph.nodes().iter().filter(|node| matches!(node.op, Op::Cast(_)));
    let of_weight = casts.filter(|node| node.name.starts_with("conv1.weight")).count();
    assert_eq!(of_weight, 2);
    assert!(graph.nodes().iter().all(|node| node.name != "image.bf16.data_grad"), "the image has no gradient");
}

#[test]
fn masks_and_indices_fit_half_precision() {
    let unfused = Passes { fuse: false, ..BF16 };
    let program = Program::linearize(train(residual(Mode::Train, unfused).unwrap()), InPlace::Allowed).unwrap();
    let encoded = encode(&program).unwrap().unwrap().graph;
    let types = |name: &str| encoded.value(encoded.find_value(name).unwrap()).ty.to_string();
    assert_eq!(types("relu0.mask"), "u8[2, 64]");
    assert_eq!(types("pool.indices"), "u8[2, 8, 4, 4] nhwc");
    assert_eq!(types("relu2.mask"), "u8[2, 16]");
    assert!(encoded.nodes().iter().any(|node| node.phase == Phase::Backward && node.op == Op::ReluMaskGrad));
}

#[test]
fn fused_statistics_must_be_those_of_the_batch() {
    let net = residual(Mode::Eval, Passes { fuse: true, storage: None, ..Passes::NONE }).unwrap();
    assert!(net.graph().nodes().iter().any(|node| matches!(node.op, Op::BatchNormAddRelu(_))));
    let options = Options::train(net.loss().unwrap(), Optimizer::None);
    let refusal = differentiate(net.into_graph(), &options).unwrap_err();
    assert!(matches!(refusal, AutogradError::NotDifferentiable { op: "batch_norm_add_relu", .. }), "{refusal}");
}

#[test]
fn half_precision_starts_from_f32() {
    let options = NetOptions { image: [1, 2, 2], dtype: DType::F64, passes: BF16, ..NetOptions::default() };
    let mut net = Net::new("wide", &options).unwrap();
    let image = net.image();
    let x = Flatten.push(&mut net, "flatten", image).unwrap();
    net.classify(x, 0.0).unwrap();
    let refusal = net.lower().unwrap_err().to_string();
    assert!(refusal.contains("image of wide") && refusal.contains("expected an f32 network"), "{refusal}");
}

/// All gradients of parameters are unscaled and checked, then the scale moves, then the updates run with what was found.
#[test]
fn with_loss_scaling_updates_wait_for_all_gradients() {
    let net = residual(Mode::Train, Passes { storage: Some(DType::F16), ..BF16 }).unwrap();
    let sgd = op::Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 0.0, nesterov: false };
    let scaled = Options {
        loss_scaling: Some(op::LossScaleUpdate::default()),
        ..Options::train(net.loss().unwrap(), Optimizer::Sgd(sgd))
    };
    let train = differentiate(net.into_graph(), &scaled).unwrap();
    let graph = Program::linearize(train.graph, InPlace::Allowed).unwrap().graph;
    let [unscale, advance] = ["unscale", "loss_scale.update"].map(|name| position(&graph, name));
    assert_eq!(advance, unscale + 1);
    let updates = || graph.nodes().iter().enumerate().filter(|(_, node)| matches!(node.op, Op::Sgd(_)));
    assert!(updates().all(|(at, _)| at > advance), "updates stand at the end");
    let value = |name: &str| graph.find_value(name).unwrap_or_else(|| panic!("no {name}"));
    for (_, node) in updates() {
        let name = &graph.value(node.inputs[0]).name;
        let gradient = graph.value(node.inputs[1]);
        assert_eq!((&gradient.name, gradient.producer.map(|id| id.index())), (&format!("{name}.grad"), Some(unscale)));
        assert_eq!(gradient.role, Role::ParameterGradient);
        assert_eq!(train.gradients[&node.inputs[0]], node.inputs[1]);
        // Learning rate, steps taken, guard.
        assert_eq!(node.inputs[3..], [value("learning_rate"), value("loss_scale.update.step"), value("unscale")]);
        assert_eq!(graph.value(value(&format!("{name}.grad.scaled"))).ty, gradient.ty);
    }
    let gradients = updates().count() as u32;
    assert_eq!(graph.nodes()[unscale].op, Op::Unscale(op::Unscale { gradients }));
    let start = graph.nodes().iter().find(|node| matches!(node.op, Op::SoftmaxCrossEntropyGrad(_))).unwrap();
    assert_eq!(start.inputs[2], value("loss_scale"));
    let states = ["loss_scale", "loss_scale.good_steps", "loss_scale.skipped_steps"].map(value);
    assert!(states.iter().all(|&state| graph.latest(state) != state && graph.value(state).role == Role::State));
}

/// More gradients than one node takes: the guard of one is that of the next.
#[test]
fn many_gradients_are_unscaled_in_groups() {
    let options = NetOptions { batch_size: 2, image: [1, 2, 2], ..NetOptions::default() };
    let mut net = Net::new("deep", &options).unwrap();
    let image = net.image();
    let mut x = Flatten.push(&mut net, "flatten", image).unwrap();
    for index in 0..40 {
        x = Linear::new(4, 4).push(&mut net, &format!("fc{index}"), x).unwrap();
    }
    net.classify(x, 0.0).unwrap();
    let options = Options {
        loss_scaling: Some(op::LossScaleUpdate::default()),
        ..Options::train(net.loss().unwrap(), Optimizer::None)
    };
    let graph = differentiate(net.into_graph(), &options).unwrap().graph;
    let groups: Vec<_> = graph.nodes().iter().filter(|node| matches!(node.op, Op::Unscale(_))).collect();
    assert_eq!(groups.iter().map(|node| node.inputs.len() - 2).collect::<Vec<_>>(), [64, 16]);
    assert_eq!(groups[1].inputs[1], groups[0].outputs[0]);
    assert_eq!(graph.value(groups[0].inputs[1]).name, "loss");
}

#[test]
fn a_given_gradient_is_not_scaled() {
    let net = residual(Mode::Train, BF16).unwrap();
    let root = Root::Value { value: net.loss().unwrap(), seed_name: "seed".into() };
    let options = Options { loss_scaling: Some(op::LossScaleUpdate::default()), ..Options::new(root) };
    let refusal = differentiate(net.into_graph(), &options).unwrap_err();
    assert!(matches!(refusal, AutogradError::NoLossToScale { .. }), "{refusal}");
}
