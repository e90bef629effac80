//! The paper's networks on its machine: bytes of feature maps, and bytes moved by `all` and `conv`.
//!
//! The published table counts X of every convolution (and pooling) layer. Here the input stays, since the loader still has
//! it, and so does X of the last feature layer, a pooling in all of these, which is needed at once: the expected bytes are
//! the table's less those two.

use vdnn_autograd::{Options as Differentiation, differentiate};
use vdnn_graph::{InPlace, Op, Program, Role};
use vdnn_memory::{Budgets, HomeLayout, Options, Problem, compile_with_policy, policies};
use vdnn_models::{Options as ModelOptions, build};
use vdnn_schedule::{Direction, Schedule};
use vdnn_sim::Machine;

/// A network's training iteration without momentum, as in the paper's tables.
pub fn training(model: &str, batch_size: u64) -> Program {
    let net = build(model, &ModelOptions { batch_size, ..ModelOptions::default() }).unwrap();
    let loss = net.loss().unwrap();
    let options = Differentiation::train(loss, crate::iteration::sgd(0.0));
    Program::linearize(differentiate(net.into_graph(), &options).unwrap().graph, InPlace::Allowed).unwrap()
}

/// A program compiled for the paper's machine.
pub fn on_titan_x(program: &Program, policy: &str, budget: Option<u64>) -> Schedule {
    let machine = Machine::named("titan-x").unwrap();
    let kernels = machine.kernel_table(program).unwrap();
    let homes = HomeLayout::for_graphs(&[&program.graph], 256);
    let problem = Problem {
        program,
        kernels: &kernels,
        links: machine.links(),
        homes: &homes,
        budgets: Budgets { device: budget, host: Some(machine.host_bytes), disk: None },
        options: Options { min_offload: 0, memory_optimal_workspace: 0, ..Options::default() },
        encoded: None,
    };
    let policy = policies::find(policy).unwrap();
    let (schedule, _) = compile_with_policy(&problem, policy.as_ref()).unwrap();
    assert_eq!(vdnn_check::check(&schedule, program), vec![]);
    schedule
}

fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

/// Storages of feature maps, and the input. Dropout's are left out, as published: there it runs in place, here pooling's
/// gradient still reads what it would overwrite.
fn feature_maps(program: &Program) -> u64 {
    let graph = &program.graph;
    let dropped = |id| graph.value(id).producer.is_some_and(|node| matches!(graph.node(node).op, Op::Dropout(_)));
    let owners = graph.value_ids().filter(|&id| program.aliases.root(id) == id && !dropped(id));
    let maps = owners.filter(|&id| graph.value(id).role == Role::FeatureMap);
    image(program) + maps.map(|id| program.aliases.storage_bytes(id)).sum::<u64>()
}

fn image(program: &Program) -> u64 {
    let id = program.graph.find_value("image").unwrap();
    program.graph.value(id).ty.bytes()
}

fn last_feature_input(program: &Program) -> u64 {
    let graph = &program.graph;
    let pool = graph.nodes().iter().rfind(|node| matches!(node.op, Op::MaxPool2d(_))).unwrap();
    graph.value(pool.inputs[0]).ty.bytes()
}

#[test]
fn feature_maps_and_offloads_of_the_papers_networks() {
    // Network, batch, feature maps, moved by conv and by all, in GB, as published.
    for (model, batch, maps, conv, all) in [
        ("alexnet", 128, 0.38, 0.17, 0.37),
        ("overfeat-fast", 128, 0.58, 0.25, 0.56),
        ("overfeat-accurate", 128, 1.23, 0.40, 1.21),
        ("vgg16", 64, 3.90, 2.32, 3.89),
        ("vgg16", 128, 7.80, 4.65, 7.78),
        ("vgg16", 256, 15.60, 9.30, 15.57),
        ("vgg-116", 32, 17.62, 16.8, 17.6),
    ] {
        let program = training(model, batch);
        let found = gigabytes(feature_maps(&program));
        assert!((found - maps).abs() < 0.02, "{model} ({batch}): {found} GB of feature maps, published {maps}");
        let (input, last) = (gigabytes(image(&program)), gigabytes(last_feature_input(&program)));
        let rounding = if all > 16.0 { 0.051 } else { 0.0051 };
        for (policy, published, kept) in [("conv", conv, input), ("all", all, input + last)] {
            let schedule = on_titan_x(&program, policy, None);
            let moved = gigabytes(schedule.transfer_bytes(Direction::Offload));
            let expected = published - kept;
            println!("{model} ({batch}) {policy}: {moved:.3} GB, expected {expected:.3}, feature maps {found:.3}");
            assert!((moved - expected).abs() <= rounding, "{model} ({batch}) {policy}: {moved}, expected {expected}");
            assert_eq!(schedule.transfer_bytes(Direction::Offload), schedule.transfer_bytes(Direction::Prefetch));
        }
    }
}

/// The two figures stated with the input and the last feature layer left where they are.
#[test]
fn vgg16_at_256() {
    let program = training("vgg16", 256);
    for (policy, expected) in [("all", 15.31), ("conv", 9.15), ("all-m", 15.31), ("conv-m", 9.15), ("none", 0.0)] {
        let moved = gigabytes(on_titan_x(&program, policy, None).transfer_bytes(Direction::Offload));
        assert!((moved - expected).abs() <= 0.0051, "{policy}: {moved} GB, expected {expected}");
    }
}

/// The paper's point: VGG-16 (256) trains in 12 GB, and the card's memory suffices for VGG-116 (32) too.
#[test]
fn networks_larger_than_the_card_fit_it() {
    let card = Machine::named("titan-x").unwrap().device_bytes;
    for (model, batch) in [("vgg16", 256), ("vgg-116", 32)] {
        let program = training(model, batch);
        let needed = on_titan_x(&program, "none", None).peak_bytes(vdnn_schedule::Space::Device);
        assert!(needed > card, "{model} ({batch}) needs {needed} bytes");
        let schedule = on_titan_x(&program, "dyn", Some(card));
        assert!(schedule.peak_bytes(vdnn_schedule::Space::Device) <= card);
    }
}
