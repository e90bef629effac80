//! Random small networks with fused layers, in every arithmetic: groups of small launches, gradients through pools and statistics
//! from convolutions under random policies and budgets, with states on the device and in host memory, train to the bits of keeping
//! everything; in f32 also to those of the plain graph.

use crate::setup::{Setup, run, trainer};
use vdnn_graph::passes::Passes;
use vdnn_layers::{BatchNorm2d, Conv2d, Flatten, Layer, Linear, MaxPool2d, Net, NetOptions, Relu, Sequential};
use vdnn_memory::{Options, PlanError, State};
use vdnn_models::Options as ModelOptions;
use vdnn_tensor::{DType, Philox};
use vdnn_train::{BuildError, TrainError};

const NETWORKS: u64 = 24;

/// One of several.
fn pick<T: Copy>(random: &mut Philox, among: &[T]) -> T {
    among[random.word() as usize % among.len()]
}

/// The network of a seed, its name: convolutions of odd and even maps, most of them with a batch norm or a pool whose windows
/// overlap, or leave rows uncovered.
fn network(seed: &str, options: &ModelOptions) -> Result<Net, BuildError> {
    let mut random = Philox::new(seed.parse()?, 0);
    let ModelOptions { batch_size, mode, passes, .. } = *options;
    let options = NetOptions { batch_size, image: [1, 28, 28], mode, seed: 7, passes, ..NetOptions::default() };
    let mut net = Net::new(seed, &options)?;
    let (mut body, mut channels, mut side) = (Sequential::new(), 1, 28);
    for _ in 0..pick(&mut random, &[2, 3, 4]) {
        let (to, kernel, padding) = (pick(&mut random, &[3, 4, 8]), pick(&mut random, &[1, 2, 3]), random.word() % 2);
        let conv = Conv2d::new(channels, to, kernel).padding(u64::from(padding));
        (channels, side) = (to, side + 2 * u64::from(padding) + 1 - kernel);
        body = match pick(&mut random, &[true, false]) {
            true => body.next(conv.no_bias()).next(BatchNorm2d::new(channels)),
            false => body.next(conv),
        };
        body = body.next(Relu);
        if side > 6 && pick(&mut random, &[true, true, false]) {
            let size = pick(&mut random, &[2, 3]);
            body = body.next(MaxPool2d::new(size, 2));
            side = (side - size) / 2 + 1;
        }
    }
    let image = net.image();
    let x = body.push(&mut net, "features", image)?;
    let x = Flatten.push(&mut net, "flatten", x)?;
    let x = Linear::new(channels * side * side, 10).push(&mut net, "fc", x)?;
    net.classify(x, 0.0)?;
    Ok(net)
}

fn floor(setup: &Setup<'_>) -> u64 {
    match trainer(setup) {
        Err(TrainError::Plan(PlanError::Infeasible(refusal))) => refusal.floor,
        other => panic!("a budget of one byte must be refused, got {}", other.map(|_| "a trainer").unwrap_err()),
    }
}

#[test]
fn random_fused_networks_train_to_the_bits_of_keeping_everything() {
    let (mut groups, mut through_pools, mut statistics) = (0, 0, 0);
    for seed in 0..NETWORKS {
        let mut random = Philox::new(seed, 1);
        let storage = pick(&mut random, &[None, Some(DType::BF16), Some(DType::F16)]);
        let (model, batch) = (seed.to_string(), pick(&mut random, &[1, 3, 4]));
        let passes = Passes { fuse: true, storage, ..Passes::NONE };
        let setup = |policy| Setup { model: &model, policy, batch, passes, network, steps: 3, ..Setup::default() };
        let kept = run(&setup("none"));
        if storage.is_none() {
            // Without workspace every kernel is the plain loop, in both graphs.
            let plain = run(&Setup { passes: Passes::NONE, ..setup("none-m") });
            assert_eq!(run(&setup("none-m")).bits(), plain.bits(), "network {seed}, batch {batch}");
        }
        let nodes = trainer(&setup("none")).unwrap().planned().program.graph.nodes().to_vec();
        let count = |end: &str| nodes.iter().filter(|node| node.op.kind().ends_with(end)).count();
        groups += count("_group");
        through_pools += count("max_pool2d_relu_bias_grad");
        statistics += count("conv2d_stats");
        for policy in ["all", "checkpoint", "hybrid"] {
            let state = pick(&mut random, &[State::Device, State::Auto, State::Host]);
            let options = Options { state, ..setup(policy).options };
            let mut setup = Setup { options, algos_from: Some(kept.schedule.clone()), ..setup(policy) };
            let name = format!("network {seed}, batch {batch}, {storage:?}, {policy}, {state:?}");
            if policy != "all" {
                setup.budget = Some(1);
                let least = floor(&setup);
                setup.budget = Some(least - 1);
                assert_eq!(floor(&setup), least, "{name}");
                setup.budget = Some(least + pick(&mut random, &[0, 1, 3]) * kept.planned.saturating_sub(least) / 4);
            }
            let outcome = run(&setup);
            assert_eq!(outcome.bits(), kept.bits(), "{name}");
            assert!(outcome.measured <= outcome.planned, "{name}: measured {}", outcome.measured);
            assert!(outcome.planned <= setup.budget.unwrap_or(u64::MAX), "{name}: planned {}", outcome.planned);
        }
    }
    assert!(groups > NETWORKS as usize && through_pools > NETWORKS as usize / 2, "{groups}, {through_pools}");
    assert!(statistics >= NETWORKS as usize / 4, "{statistics}");
}
