//! Schedules as text, to be read and to make changes visible: two tiny networks in full, the paper's as figures.
//! `UPDATE_EXPECT=1 cargo test -p vdnn-memory` writes them anew.

use crate::figures::{on_titan_x, training};
use crate::iteration::{Iteration, options, sgd};
use expect_test::expect_file;
use vdnn_autograd::UpdateAt;
use vdnn_graph::ValueId;
use vdnn_layers::{BatchNorm2d, Conv2d, Flatten, Layer, Linear, MaxPool2d, Net, NetOptions, Relu, add, concat};
use vdnn_memory::{Options, Prefetch, Sync, compile_with_policy, policies};
use vdnn_schedule::{Direction, Space, StreamRole, stats};

fn net(name: &str) -> Net {
    Net::new(name, &NetOptions { batch_size: 2, image: [1, 4, 4], ..NetOptions::default() }).unwrap()
}

fn classify(mut net: Net, x: ValueId) -> Iteration {
    let x = Flatten.push(&mut net, "flatten", x).unwrap();
    let features = net.channels(x);
    let x = Linear::new(features, 2).push(&mut net, "fc", x).unwrap();
    net.classify(x, 0.0).unwrap();
    let mut iteration = Iteration::training(net, sgd(0.0), UpdateAt::Layer);
    // One algorithm a kernel, so that the text does not change with the CPU's kernels.
    for choices in &mut iteration.kernels.choices {
        choices.truncate(1);
        (choices[0].algorithm, choices[0].workspace, choices[0].seconds) = ("only".into(), 0, 1e-6);
    }
    iteration
}

fn chain() -> Iteration {
    let mut net = net("chain");
    let image = net.image();
    let x = Conv2d::new(1, 2, 3).padding(1).push(&mut net, "conv1", image).unwrap();
    let x = Relu.push(&mut net, "relu1", x).unwrap();
    let x = MaxPool2d::new(2, 2).push(&mut net, "pool1", x).unwrap();
    let x = Conv2d::new(2, 2, 3).padding(1).push(&mut net, "conv2", x).unwrap();
    let x = MaxPool2d::new(2, 2).push(&mut net, "pool2", x).unwrap();
    classify(net, x)
}

fn fork() -> Iteration {
    let mut net = net("fork");
    let image = net.image();
    let x = Conv2d::new(1, 2, 1).no_bias().push(&mut net, "stem", image).unwrap();
    let y = BatchNorm2d::new(2).push(&mut net, "bn", x).unwrap();
    let x = add(&mut net, "add", x, y).unwrap();
    let a = Conv2d::new(2, 1, 1).no_bias().push(&mut net, "left", x).unwrap();
    let b = Conv2d::new(2, 1, 1).no_bias().push(&mut net, "right", x).unwrap();
    let x = concat(&mut net, "concat", &[a, b]).unwrap();
    let x = MaxPool2d::new(2, 2).push(&mut net, "pool", x).unwrap();
    classify(net, x)
}

fn text(iteration: &Iteration, policy: &str, sync: Sync) -> String {
    let prefetch = if sync == Sync::PerLayer { Prefetch::Paper } else { Prefetch::Cost };
    let problem = iteration.problem(Options { sync, prefetch, ..options() }, None);
    let (schedule, _) = compile_with_policy(&problem, policies::find(policy).unwrap().as_ref()).unwrap();
    assert_eq!(vdnn_check::check(&schedule, &iteration.program), vec![]);
    schedule.to_text()
}

#[test]
fn a_chain() {
    let chain = chain();
    expect_file!["golden/chain_none.txt"].assert_eq(&text(&chain, "none", Sync::Events));
    expect_file!["golden/chain_all_per_layer.txt"].assert_eq(&text(&chain, "all", Sync::PerLayer));
    expect_file!["golden/chain_all_events.txt"].assert_eq(&text(&chain, "all", Sync::Events));
}

#[test]
fn a_fork_and_a_concatenation() {
    let fork = fork();
    expect_file!["golden/fork_none.txt"].assert_eq(&text(&fork, "none", Sync::Events));
    expect_file!["golden/fork_all_per_layer.txt"].assert_eq(&text(&fork, "all", Sync::PerLayer));
    expect_file!["golden/fork_all_events.txt"].assert_eq(&text(&fork, "all", Sync::Events));
}

/// Under the paper's 12 GB for `dyn`, without limit for the others.
#[test]
fn figures_of_large_networks() {
    let card = 12 << 30;
    let mut table = format!(
        "{:11}{:>6} {:11}{:>14}{:>14}{:>14}{:>14}{:>13}{:>9}{:>7}{:>7}\n",
        "network", "batch", "policy", "peak", "live peak", "host", "moved", "workspace", "commands", "copies", "waits"
    );
    for (model, batch) in [("vgg16", 256), ("resnet50", 256), ("googlenet", 512)] {
        let program = training(model, batch);
        // Without a budget `optimal` is `none`, and within one it refuses networks of this size.
        for entry in policies::REGISTRY.into_iter().filter(|entry| entry.name != "optimal") {
            let budget = (entry.name == "dyn").then_some(card);
            let schedule = on_titan_x(&program, entry.name, budget);
            let stats = stats(&schedule);
            let copies = stats.streams.iter().map(|stream| stream.transfers).sum::<usize>();
            let waits = stats.streams.iter().find(|stream| stream.role == StreamRole::Compute).map_or(0, |s| s.waits);
            table.push_str(&format!(
                "{model:11}{batch:>6} {:11}{:>14}{:>14}{:>14}{:>14}{:>13}{:>9}{copies:>7}{waits:>7}\n",
                entry.name,
                schedule.peak_bytes(Space::Device),
                stats.live_peak.bytes,
                schedule.peak_bytes(Space::Host),
                schedule.transfer_bytes(Direction::Offload),
                stats.workspace_peak_bytes,
                stats.commands,
            ));
        }
    }
    expect_file!["golden/large_networks.txt"].assert_eq(&table);
}
