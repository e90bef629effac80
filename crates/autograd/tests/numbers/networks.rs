//! Whole networks: gradients against finite differences, and in place against out of place to the last bit.

use crate::gradcheck::check;
use crate::interpreter::{Interpreter, noise};
use vdnn_autograd::{Optimizer, Options, Root, UpdateAt, differentiate};
use vdnn_graph::{InPlace, Role, ValueId, op};
use vdnn_layers::{
    AvgPool2d, BatchNorm2d, Conv2d, Dropout, Flatten, Layer, LayerError, Linear, MaxPool2d, Net, NetOptions, Relu,
    Reuse, add, concat,
};
use vdnn_tensor::DType;

const LABELS: [i32; 3] = [1, 0, 2];

fn build(body: impl FnOnce(&mut Net, ValueId) -> Result<ValueId, LayerError>) -> Net {
    let options = NetOptions { batch_size: 3, image: [2, 6, 6], dtype: DType::F64, seed: 5, ..NetOptions::default() };
    let mut net = Net::new("test", &options).unwrap();
    let image = net.image();
    let x = body(&mut net, image).unwrap();
    let x = Flatten.push(&mut net, "flatten", x).unwrap();
    let x = Linear::new(net.channels(x), 3).push(&mut net, "fc", x).unwrap();
    net.classify(x, 0.05).unwrap();
    net
}

fn conv(net: &mut Net, name: &str, x: ValueId, out: u64) -> Result<ValueId, LayerError> {
    Conv2d::new(net.channels(x), out, 3).padding(1).push(net, name, x)
}

/// Norm, then ReLU in place, then a residual join into another ReLU in place.
fn residual(net: &mut Net, image: ValueId) -> Result<ValueId, LayerError> {
    let x = conv(net, "conv1", image, 4)?;
    let x = BatchNorm2d::new(4).push(net, "bn1", x)?;
    let x = Relu.push(net, "relu1", x)?;
    let y = conv(net, "conv2", x, 4)?;
    let y = BatchNorm2d::new(4).push(net, "bn2", y)?;
    let y = Relu.push(net, "relu2", y)?;
    let y = Dropout(0.3).push(net, "drop", y)?;
    let y = add(net, "add", x, y)?;
    Relu.push(net, "relu3", y)
}

/// Two ReLUs in a row, and an addition over the second's result, which another layer reads as well (case B30).
fn in_place_traps(net: &mut Net, image: ValueId) -> Result<ValueId, LayerError> {
    let x = conv(net, "conv1", image, 4)?;
    let x = Relu.push(net, "relu1", x)?;
    let x = Relu.push(net, "relu2", x)?;
    let side = conv(net, "conv2", x, 4)?;
    let sum = add(net, "add", x, side)?;
    let y = Relu.push(net, "relu3", sum)?;
    let y = add(net, "add2", y, x)?;
    MaxPool2d::new(3, 2).padding(1).push(net, "pool", y)
}

fn dense(net: &mut Net, image: ValueId) -> Result<ValueId, LayerError> {
    let mut x = conv(net, "stem", image, 2)?;
    for k in 0..2 {
        let f = BatchNorm2d::new(net.channels(x)).push(net, &format!("bn{k}"), x)?;
        let f = Relu.push(net, &format!("relu{k}"), f)?;
        let f = conv(net, &format!("conv{k}"), f, 2)?;
        x = concat(net, &format!("concat{k}"), &[x, f])?;
    }
    AvgPool2d::new(2, 2).push(net, "pool", x)
}

/// One convolution and norm called twice (case B31).
fn shared(net: &mut Net, image: ValueId) -> Result<ValueId, LayerError> {
    let (convolution, norm) = (Conv2d::new(2, 2, 3).padding(1), BatchNorm2d::new(2));
    let x = convolution.push(net, "conv", image)?;
    let x = norm.push(net, "bn", x)?;
    let x = Relu.push(net, "relu", x)?;
    let x = Reuse::new(convolution, "conv").push(net, "conv_again", x)?;
    let x = Reuse::new(norm, "bn").push(net, "bn_again", x)?;
    Relu.push(net, "relu_again", x)
}

/// Two outputs of which one is used; parts of one value on two ways that meet again.
fn branches(net: &mut Net, image: ValueId) -> Result<ValueId, LayerError> {
    let x = conv(net, "stem", image, 2)?;
    let unused = conv(net, "unused", x, 3)?;
    Relu.push(net, "unused_relu", unused)?;
    let one = Relu.push(net, "one", x)?;
    let two = conv(net, "two", x, 2)?;
    let joined = concat(net, "joined", &[one, two, one])?;
    Relu.push(net, "relu", joined)
}

fn nets() -> Vec<(&'static str, Net)> {
    vec![
        ("residual", build(residual)),
        ("in_place_traps", build(in_place_traps)),
        ("dense", build(dense)),
        ("shared", build(shared)),
        ("branches", build(branches)),
    ]
}

#[test]
fn gradients_of_whole_networks() {
    for (_, net) in nets() {
        let graph = net.graph();
        let mut leaves = vec!["image".to_string()];
        let parameters = graph.persistents().iter().map(|p| graph.value(p.initial));
        let trained = parameters.filter(|value| value.role == Role::Parameter && !value.name.starts_with("unused"));
        leaves.extend(trained.map(|value| value.name.clone()));
        let root = Root::Loss(net.loss().unwrap());
        check(net.into_graph(), root, &leaves, &LABELS);
    }
}

/// Losses and final parameters and states of three training steps.
fn trained(net: &Net, update_at: UpdateAt, in_place: InPlace) -> Vec<(String, Vec<f64>)> {
    let sgd = op::Sgd { momentum: 0.9, dampening: 0.1, weight_decay: 1e-3, nesterov: true };
    let options = Options { update_at, ..Options::train(net.loss().unwrap(), Optimizer::Sgd(sgd)) };
    let train = differentiate(net.graph().clone(), &options).unwrap();
    let mut interpreter = Interpreter::new(train.graph, in_place);
    let persistents: Vec<ValueId> = interpreter.graph().persistents().iter().map(|p| p.initial).collect();
    let names: Vec<String> = persistents.iter().map(|&id| interpreter.graph().value(id).name.clone()).collect();
    for (name, id) in names.iter().zip(&persistents) {
        let zeros = vec![0.0; interpreter.graph().value(*id).ty.shape.elements() as usize];
        interpreter.set(name, &zeros);
    }
    for (name, tensor) in net.initial_values() {
        interpreter.set_tensor(name, &tensor);
    }
    interpreter.set("learning_rate", &[0.05]);
    interpreter.set_labels(&LABELS);
    let mut results = Vec::new();
    for step in 0..3 {
        let image = noise(&format!("image{step}"), net.ty(net.image()));
        interpreter.set("image", &image);
        interpreter.set_iteration(step);
        interpreter.run();
        results.push((format!("loss {step}"), interpreter.get("loss")));
    }
    results.extend(names.into_iter().map(|name| (name.clone(), interpreter.get(&name))));
    results
}

/// Case B30: whatever runs in place, and wherever updates stand, the numbers are the same.
#[test]
fn in_place_changes_no_bit() {
    for (name, net) in nets() {
        let reference = trained(&net, UpdateAt::Layer, InPlace::PersistentsOnly);
        assert!(reference.iter().all(|(_, values)| values.iter().all(|x| x.is_finite())), "{name}: {reference:?}");
        assert_ne!(reference[0].1, reference[2].1, "{name}: the loss moves");
        assert_eq!(reference, trained(&net, UpdateAt::Layer, InPlace::Allowed), "{name}");
        assert_eq!(reference, trained(&net, UpdateAt::End, InPlace::Allowed), "{name}");
    }
}

/// A loss that is not finite leaves every trained number and every momentum as it was.
#[test]
fn a_loss_that_is_not_finite_trains_nothing() {
    let net = build(in_place_traps);
    let sgd = op::Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 0.1, nesterov: false };
    let train = differentiate(net.graph().clone(), &Options::train(net.loss().unwrap(), Optimizer::Sgd(sgd))).unwrap();
    let mut run = Interpreter::new(train.graph, InPlace::Allowed);
    let names: Vec<(String, usize)> = (run.graph().persistents().iter())
        .map(|p| run.graph().value(p.initial))
        .map(|value| (value.name.clone(), value.ty.shape.elements() as usize))
        .collect();
    names.iter().for_each(|(name, n)| run.set(name, &vec![0.25; *n]));
    run.set("learning_rate", &[0.1]);
    run.set_labels(&LABELS);
    run.set("image", &[f64::INFINITY; 3 * 2 * 6 * 6]);
    run.run();
    assert!(!run.get("loss")[0].is_finite());
    assert!(names.iter().all(|(name, _)| run.get(name).iter().all(|x| *x == 0.25)));
}
