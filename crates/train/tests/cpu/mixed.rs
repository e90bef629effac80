//! Fusion and half precision on whole networks: what fused batch norms compute is what the plain graph computes; in bf16 bits
//! depend on no policy and no number of threads, and what is trained and kept is f32.

use crate::setup::{Outcome, Setup, run, trainer};
use vdnn_graph::Role;
use vdnn_graph::passes::Passes;
use vdnn_layers::{BatchNorm2d, Conv2d, Flatten, Layer, Linear, MaxPool2d, Net, NetOptions, Relu, Sequential, add};
use vdnn_memory::PlanError;
use vdnn_models::Options as ModelOptions;
use vdnn_schedule::Action;
use vdnn_tensor::{DType, HostTensor};
use vdnn_train::{BuildError, TrainError};

const FUSED: Passes = Passes { fuse: true, storage: None, ..Passes::NONE };
/// How tf32 is stored on a GPU.
const LAST: Passes = Passes { fuse: true, storage: Some(DType::F32), ..Passes::NONE };
const BF16: Passes = Passes { fuse: true, storage: Some(DType::BF16), ..Passes::NONE };
const F16: Passes = Passes { fuse: true, storage: Some(DType::F16), ..Passes::NONE };

/// A small VGG with batch normalisation; everything else by its name.
pub fn network(model: &str, options: &ModelOptions) -> Result<Net, BuildError> {
    if model != "vgg-norm" {
        return vdnn_models::build(model, options).map_err(Into::into);
    }
    let ModelOptions { batch_size, mode, seed, passes, .. } = *options;
    let options = NetOptions { batch_size, image: [1, 28, 28], mode, seed, passes, ..NetOptions::default() };
    let mut net = Net::new(model, &options)?;
    let mut body = Sequential::new();
    for (from, to) in [(1, 8), (8, 16)] {
        body = body.next(Conv2d::new(from, to, 3).padding(1)).next(BatchNorm2d::new(to)).next(Relu);
        body = body.next(MaxPool2d::new(2, 2));
    }
    let image = net.image();
    let x = body.push(&mut net, "features", image)?;
    let x = Flatten.push(&mut net, "flatten", x)?;
    let x = Linear::new(16 * 49, 10).push(&mut net, "fc", x)?;
    net.classify(x, 0.0)?;
    Ok(net)
}

fn setup<'a>(model: &'a str, policy: &'a str, passes: Passes) -> Setup<'a> {
    Setup { model, policy, passes, network, steps: 8, ..Setup::default() }
}

fn floor(setup: &Setup<'_>) -> u64 {
    match trainer(setup) {
        Err(TrainError::Plan(PlanError::Infeasible(refusal))) => refusal.floor,
        other => panic!("a budget of one byte must be refused, got {}", other.map(|_| "a trainer").unwrap_err()),
    }
}

/// Every policy with the algorithms of `reference`, which kept everything.
fn same_bits(model: &str, passes: Passes, reference: &Outcome) {
    let algos_from = || Some(reference.schedule.clone());
    for policy in ["none", "all", "conv", "checkpoint", "hybrid"] {
        let mut setup = Setup { algos_from: algos_from(), ..setup(model, policy, passes) };
        if matches!(policy, "checkpoint" | "hybrid") {
            setup.budget = Some(1);
            let floor = floor(&setup);
            setup.budget = Some(floor + reference.planned.saturating_sub(floor) / 4);
        }
        let outcome = run(&setup);
        let name = format!("{model} {policy} {passes:?}");
        assert_eq!(outcome.bits(), reference.bits(), "{name}");
        assert!(outcome.measured <= outcome.planned, "{name}: measured {} of {}", outcome.measured, outcome.planned);
        assert!(outcome.offloads() || matches!(policy, "none" | "checkpoint" | "hybrid"), "{name}");
        assert!(outcome.launches_again() > 0 || policy != "checkpoint", "{name}");
    }
}

#[test]
fn fused_f32_trains_to_the_bits_of_the_plain_graph() {
    for model in ["vgg-norm", "resnet-small"] {
        let plain = run(&setup(model, "none", Passes::NONE));
        same_bits(model, FUSED, &plain);
        let fused = run(&setup(model, "none", FUSED));
        assert!(fused.schedule.nodes.len() < plain.schedule.nodes.len(), "{model}");
    }
}

/// The order of maps changes no bit on the CPU, whose kernels see them in NCHW order, under no policy.
#[test]
fn channels_last_in_f32_trains_to_the_bits_of_the_plain_graph() {
    for model in ["vgg-norm", "vgg-small", "resnet-small"] {
        let plain = run(&setup(model, "none", Passes::NONE));
        let last = run(&setup(model, "none", LAST));
        assert_eq!(last.bits(), plain.bits(), "{model}");
        same_bits(model, LAST, &last);
    }
}

/// Convolutions that take the ReLU in, and pools with indices: the fastest algorithms are the same in both graphs.
#[test]
fn fused_convolutions_and_pools_train_to_the_bits_of_the_plain_graph() {
    let [plain, fused] = [Passes::NONE, FUSED].map(|passes| run(&setup("vgg-small", "none", passes)));
    assert_eq!(fused.bits(), plain.bits());
    assert!(fused.schedule.nodes.len() < plain.schedule.nodes.len());
    let fused = trainer(&setup("vgg-small", "none", FUSED)).unwrap();
    let count = |kind: &str| fused.planned().program.graph.nodes().iter().filter(|node| node.op.kind() == kind).count();
    assert_eq!(
        (count("max_pool2d_relu_bias_grad"), count("max_pool2d_indices_grad")),
        (count("max_pool2d_indices"), 0)
    );
}

#[test]
fn bf16_bits_depend_on_no_policy_and_no_number_of_threads() {
    for model in ["vgg-norm", "resnet-small"] {
        let kept = run(&setup(model, "none", BF16));
        same_bits(model, BF16, &kept);
        let alone = run(&Setup { threads: 1, ..setup(model, "none", BF16) });
        assert_eq!(alone.bits(), kept.bits(), "{model}");
        let f32s = run(&setup(model, "none", Passes::NONE));
        let worst = kept.losses().iter().zip(f32s.losses()).map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max);
        assert!(worst > 0.0 && worst < 0.1, "{model}: bf16 leaves f32 by {worst}");
    }
}

/// Convolutions that make the statistics of their outputs, in f16 alone; made again they make both.
#[test]
fn f16_bits_of_convolutions_with_statistics_depend_on_no_policy() {
    let kept = run(&setup("resnet-small", "none", F16));
    same_bits("resnet-small", F16, &kept);
    let nodes =
        |passes| trainer(&setup("resnet-small", "none", passes)).unwrap().planned().program.graph.nodes().to_vec();
    let count = |passes, kind: &str| nodes(passes).iter().filter(|node| node.op.kind() == kind).count();
    let norms = count(BF16, "batch_norm_stats");
    assert_eq!((count(F16, "conv2d_stats"), count(F16, "batch_norm_stats"), count(F16, "conv2d")), (norms, 0, 0));
    assert_eq!((count(BF16, "conv2d_stats"), count(FUSED, "conv2d_stats")), (0, 0));
    let trained = Setup { algos_from: Some(kept.schedule.clone()), ..setup("resnet-small", "checkpoint", F16) };
    let program = trainer(&trained).unwrap().planned().program.clone();
    let schedule = run(&trained).schedule;
    let again = schedule.commands.iter().filter(|command| match command.action {
        Action::Launch { node, run, .. } => run > 0 && program.graph.node(node).op.kind() == "conv2d_stats",
        _ => false,
    });
    assert!(again.count() > 0);
}

#[test]
fn what_outlives_an_iteration_is_f32_in_the_logical_order() {
    let tensors = |passes| {
        let mut all = trainer(&setup("resnet-small", "none", passes)).unwrap().tensors().unwrap();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    };
    let (f32s, halves) = (tensors(Passes::NONE), tensors(BF16));
    assert!(halves.iter().all(|(_, _, tensor)| tensor.dtype() == DType::F32));
    let names = |all: &[(String, Role, HostTensor)]| all.iter().map(|tensor| tensor.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(&f32s), names(&halves));
    assert!(f32s == halves, "the same initial weights and states");
}

#[test]
fn half_precision_from_f64_is_refused() {
    let refused = trainer(&Setup { dtype: DType::F64, ..setup("vgg-small", "none", BF16) });
    let message = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(message.contains("expected an f32 network in NCHW order, found f64"), "{message}");
}

/// A block whose sides both end in a norm, and one that is added to it: the gradient of the first's result is given in two parts.
fn blocks(model: &str, options: &ModelOptions) -> Result<Net, BuildError> {
    let ModelOptions { batch_size, mode, seed, passes, .. } = *options;
    let options = NetOptions { batch_size, image: [1, 28, 28], mode, seed, passes, ..NetOptions::default() };
    let mut net = Net::new(model, &options)?;
    let normed = |from: u64, size: u64| {
        let convolution = Conv2d::new(from, 16, size).padding(size / 2);
        Sequential::new().next(convolution).next(BatchNorm2d::new(16))
    };
    let image = net.image();
    let x = normed(1, 3).next(Relu).push(&mut net, "stem", image)?;
    let sides = [normed(16, 3).push(&mut net, "a", x)?, normed(16, 1).push(&mut net, "b", x)?];
    let sum = add(&mut net, "first.add", sides[0], sides[1])?;
    let y = Relu.push(&mut net, "first.relu", sum)?;
    let side = normed(16, 3).push(&mut net, "c", y)?;
    let sum = add(&mut net, "second.add", side, y)?;
    let x = Relu.push(&mut net, "second.relu", sum)?;
    let x = MaxPool2d::new(4, 4).push(&mut net, "pool", x)?;
    let x = Flatten.push(&mut net, "flatten", x)?;
    let x = Linear::new(16 * 49, 10).push(&mut net, "fc", x)?;
    net.classify(x, 0.0)?;
    Ok(net)
}

/// Near its floor a network keeps the norms of its residuals apart, and trains to the same bits.
#[test]
fn norms_apart_train_to_the_bits_of_pairs() {
    for passes in [FUSED, LAST, BF16, F16] {
        let pairs = |setup: &Setup<'_>| {
            let graph = trainer(setup).unwrap().planned().program.graph.clone();
            graph.nodes().iter().filter(|node| node.op.kind() == "batch_norm_pair_relu").count()
        };
        let mut near = Setup { budget: Some(1), network: blocks, ..setup("blocks", "hybrid", passes) };
        near.budget = Some(floor(&near));
        let outcome = run(&near);
        // Its algorithms are those with the least workspace.
        let algos_from = Some(outcome.schedule.clone());
        let kept = Setup { network: blocks, algos_from, ..setup("blocks", "none", passes) };
        assert_eq!((pairs(&kept), pairs(&near)), (1, 0), "{passes:?}");
        assert_eq!(run(&kept).bits(), outcome.bits(), "{passes:?}");
    }
}
