//! When offloaded bytes leave and come back, on a small network with kernels and copies of stated length.
//!
//! ```text
//!  layer     0 conv0   1 pool1   2 conv2   3 relu3 (in place)   4 conv4   5 conv5   6 flatten, fc, loss
//!  X of      (image)   conv0     pool1                          conv2     conv4
//! ```
//! `all` moves the Xs of 1, 2 and 4 (5 is the last feature layer); `conv` moves those of 2 and 4.

use crate::iteration::{Iteration, options, sgd};
use vdnn_autograd::UpdateAt;
use vdnn_graph::{Phase, Step};
use vdnn_layers::{Conv2d, Flatten, Layer, Linear, MaxPool2d, Net, NetOptions, Relu};
use vdnn_memory::{MemoryPlan, Options, Prefetch, Problem, Residency, Sync, policies};
use vdnn_schedule::Choice;
use vdnn_sim::Links;

const BATCH: u64 = 2;

fn network() -> Iteration {
    let options = NetOptions { batch_size: BATCH, image: [4, 8, 8], ..NetOptions::default() };
    let mut net = Net::new("windows", &options).unwrap();
    let conv = || Conv2d::new(4, 4, 3).padding(1).no_bias();
    let image = net.image();
    let x = conv().push(&mut net, "conv0", image).unwrap();
    let x = MaxPool2d::new(2, 1).push(&mut net, "pool1", x).unwrap();
    let x = conv().push(&mut net, "conv2", x).unwrap();
    let x = Relu.push(&mut net, "relu3", x).unwrap();
    let x = conv().push(&mut net, "conv4", x).unwrap();
    let x = conv().push(&mut net, "conv5", x).unwrap();
    let x = Flatten.push(&mut net, "flatten", x).unwrap();
    let x = Linear::new(4 * 7 * 7, 3).no_bias().push(&mut net, "fc", x).unwrap();
    net.classify(x, 0.0).unwrap();
    let mut iteration = Iteration::training(net, sgd(0.0), UpdateAt::Layer);
    let one_second = Choice { algorithm: "one".into(), workspace: 0, seconds: 1.0, deterministic: true };
    iteration.kernels.choices.iter_mut().for_each(|choices| *choices = vec![one_second.clone()]);
    iteration
}

/// Names of the nodes at which each moved storage is released and fetched.
fn windows(iteration: &Iteration, policy: &str, options: Options, seconds_a_copy: f64) -> Vec<[String; 3]> {
    let program = &iteration.program;
    // All moved storages but conv0 have the size of pool1's Y.
    let rate = (BATCH * 4 * 7 * 7 * 4) as f64 / seconds_a_copy;
    let links = Links::new(rate, rate, rate);
    let problem = Problem { links, ..iteration.problem(options, None) };
    let plan = policies::find(policy).unwrap().plan(&problem).unwrap();
    described(iteration, &plan, &|step| program.node_at(step).name.clone())
}

fn described(iteration: &Iteration, plan: &MemoryPlan, name: &dyn Fn(Step) -> String) -> Vec<[String; 3]> {
    let window = |((root, _), residency): (&(vdnn_graph::ValueId, _), &Residency)| match residency {
        Residency::Offload { release, fetch, .. } => {
            [iteration.program.graph.value(*root).name.clone(), name(*release), name(*fetch)]
        }
        other => panic!("{other:?}"),
    };
    plan.gaps.iter().map(window).collect()
}

fn expect(found: Vec<[String; 3]>, expected: &[[&str; 3]]) {
    let expected: Vec<[String; 3]> = expected.iter().map(|row| row.map(str::to_string)).collect();
    assert_eq!(found, expected);
}

/// The steps the other tests name.
#[test]
fn the_order_is_as_the_tests_assume() {
    let program = network().program;
    let names: Vec<&str> = (0..program.n_steps()).map(|i| program.node_at(Step(i as u32)).name.as_str()).collect();
    let forward = "conv0 pool1 conv2 relu3 conv4 conv5 flatten fc loss accuracy";
    let backward = "loss.data_grad fc.weight_grad fc.data_grad fc.weight.update flatten.data_grad \
                    conv5.weight_grad conv5.data_grad conv5.weight.update \
                    conv4.weight_grad conv4.data_grad conv4.weight.update relu3.data_grad \
                    conv2.weight_grad conv2.data_grad conv2.weight.update pool1.data_grad \
                    conv0.weight_grad conv0.weight.update";
    assert_eq!(names.join(" "), format!("{forward} {backward}"));
    let phases = (0..program.n_steps()).filter(|&i| program.node_at(Step(i as u32)).phase == Phase::Forward);
    assert_eq!(phases.count(), 10);
}

/// The paper: the offload of X starts with its layer's own forward, both streams join at the layer's end. On the backward
/// of layer c the ids c−1, c−2, … are scanned for one that is offloaded and not yet fetched, one for each backward layer;
/// a convolution that needs none stops the scan.
///
/// Backward of fc (and of flatten): conv5 kept its X, so the scan stops there. Backward of conv5: conv4's X, one layer ahead.
/// Backward of conv4: conv2's X (relu3 owns nothing). Backward of relu3: conv2 is fetched already, pool1's X is next.
#[test]
fn the_papers_rule_fetches_one_layer_ahead() {
    let iteration = network();
    let options = Options { prefetch: Prefetch::Paper, sync: Sync::PerLayer, ..options() };
    // The storage of relu3 in place is conv2's.
    let all = windows(&iteration, "all", options, 0.1);
    let (x1, x2, x4) = (
        ["conv0", "conv2", "relu3.data_grad"],
        ["pool1", "relu3", "conv4.weight_grad"],
        ["conv2", "conv5", "conv5.weight_grad"],
    );
    expect(all, &[x1, x2, x4]);
    // Without pool1's X to move, `conv` fetches at the same places.
    expect(windows(&iteration, "conv", options, 0.1), &[x2, x4]);
}

/// A convolution that keeps its X stops the scan, so that data does not come back too early.
#[test]
fn the_papers_scan_stops_at_a_convolution_that_kept_its_input() {
    let iteration = network();
    let problem = iteration.problem(Options { prefetch: Prefetch::Paper, sync: Sync::PerLayer, ..options() }, None);
    let gaps: Vec<_> = policies::feature_gaps(&problem).into_iter().map(|feature| feature.gap).collect();
    let name = |gap: &vdnn_memory::Gap| iteration.program.graph.value(gap.root).name.clone();
    assert_eq!(gaps.iter().map(name).collect::<Vec<_>>(), ["conv0", "pool1", "conv2"]);
    // Only pool1's X moves. Every scan before conv2's backward meets a convolution that kept its X.
    let plan = MemoryPlan::keep_all(&iteration.program);
    let fitted = vdnn_memory::fit_to_budget(&problem, "one", &plan, &gaps[..1]).unwrap();
    let at = |step: Step| iteration.program.node_at(step).name.clone();
    expect(described(&iteration, &fitted.plan, &at), &[["conv0", "conv2", "conv2.weight_grad"]]);
}

/// `lookahead:n`: when the backward of the layer n layers before the need begins; 0 is the layer itself.
#[test]
fn lookahead_counts_backward_layers() {
    let iteration = network();
    let fetches = |n| {
        let options = Options { prefetch: Prefetch::Lookahead(n), ..options() };
        windows(&iteration, "all", options, 0.1).into_iter().map(|[.., fetch]| fetch).collect::<Vec<_>>()
    };
    // conv0's Y is needed by pool1, pool1's by conv2, conv2's (relu3 in place) by conv4.
    assert_eq!(fetches(0), ["pool1.data_grad", "conv2.weight_grad", "conv4.weight_grad"]);
    assert_eq!(fetches(1), ["conv2.weight_grad", "relu3.data_grad", "conv5.weight_grad"]);
    assert_eq!(fetches(2), ["relu3.data_grad", "conv4.weight_grad", "flatten.data_grad"]);
}

/// `cost` with kernels of one second: a copy of 2.5 s down holds its bytes for three more steps; coming back, copies queue
/// before the need, each as late as those after it allow.
#[test]
fn cost_leaves_time_for_the_copies() {
    let iteration = network();
    // Quick copies: released after one step, fetched one step before the need.
    expect(
        windows(&iteration, "conv", options(), 0.5),
        &[["pool1", "relu3", "relu3.data_grad"], ["conv2", "conv5", "conv5.weight.update"]],
    );
    // Down: pool1's copy begins with conv2 (step 2) and is done at 4.5 s, so step 5 is the first without it; conv2's begins
    // at 4.5 s and is done at 7 s. Up: conv2's ends at step 18 (conv4.weight_grad), begins at 15.5 s, in step 15; pool1's
    // ends at step 22 and begins at 19.5 s, in step 19.
    expect(
        windows(&iteration, "conv", options(), 2.5),
        &[["pool1", "conv5", "conv4.data_grad"], ["conv2", "fc", "conv5.weight_grad"]],
    );
}

/// Where a copy cannot be hidden it runs all the same, for one step, as late as can be: kernels wait only then.
#[test]
fn copies_that_cannot_be_hidden_still_run() {
    let iteration = network();
    let found = windows(&iteration, "conv", options(), 1000.0);
    let expected =
        [["pool1", "conv5.weight.update", "relu3.data_grad"], ["conv2", "conv5.weight.update", "conv4.weight_grad"]];
    expect(found, &expected);
}
