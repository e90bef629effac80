//! Every network builds, differentiates and linearises, in both modes.

use vdnn_autograd::{Optimizer, Options as GradOptions, UpdateAt, differentiate};
use vdnn_graph::{InPlace, Op, Program, Role, op};
use vdnn_layers::{Mode, Net};
use vdnn_models::{Options, build, models};

fn sgd(momentum: f64) -> Optimizer {
    Optimizer::Sgd(op::Sgd { momentum, dampening: 0.0, weight_decay: 5e-4, nesterov: false })
}

fn program(net: Net, update_at: UpdateAt) -> Program {
    let loss = net.loss().expect("every network classifies");
    let options = GradOptions { update_at, ..GradOptions::train(loss, sgd(0.9)) };
    let train = differentiate(net.into_graph(), &options).expect("every network differentiates");
    Program::linearize(train.graph, InPlace::Allowed).expect("updates come after the last use")
}

#[test]
fn every_network_trains() {
    for spec in models() {
        let net = spec.build(&Options { batch_size: 2, ..Options::default() }).unwrap();
        let n_parameters = net.graph().persistents().iter().map(|p| p.initial);
        let n_parameters = n_parameters.filter(|&id| net.graph().value(id).role == Role::Parameter).count();
        for update_at in [UpdateAt::Layer, UpdateAt::End] {
            let program = program(net.clone(), update_at);
            let updates = program.graph.nodes().iter().filter(|node| matches!(node.op, Op::Sgd(_))).count();
            assert_eq!(updates, n_parameters, "{}: every parameter is updated once", spec.name);
        }
    }
}

#[test]
fn every_network_evaluates_without_effects() {
    for spec in models() {
        let options = Options { batch_size: 1, mode: Mode::Eval, ..Options::default() };
        let graph = spec.build(&options).unwrap().into_graph();
        assert!(graph.nodes().iter().all(|node| !node.op.has_effect()), "{}", spec.name);
        let program = Program::linearize(graph, InPlace::Allowed).unwrap();
        assert!(program.graph.persistents().iter().all(|p| p.initial == p.last));
    }
}

#[test]
fn training_and_evaluation_have_the_same_parameters() {
    for spec in models() {
        let names = |mode| {
            let net = spec.build(&Options { batch_size: 2, mode, ..Options::default() }).unwrap();
            net.initial().iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(Mode::Train), names(Mode::Eval), "{}", spec.name);
    }
}

#[test]
fn nothing_needs_the_gradient_of_the_image() {
    let program = program(build("vgg16", &Options::default()).unwrap(), UpdateAt::Layer);
    assert!(program.graph.find_value("image.grad").is_none());
    assert!(program.graph.nodes().iter().all(|node| node.name != "features.0.data_grad"));
}
