//! Whole networks under every policy: any legal interleaving of the compiled schedule gives the bits of keeping everything
//! on the CPU device. What the compiler's events do not order would show here as other bits, NaNs or a conflict.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vdnn_autograd::{Optimizer, differentiate, encode};
use vdnn_graph::op::Sgd;
use vdnn_graph::passes::{Passes, fuse_statistics, split_batch};
use vdnn_graph::{Graph, InPlace, Program};
use vdnn_layers::{Conv2d, Flatten, Layer, LayerError, Linear, MaxPool2d, Net, NetOptions, Relu, concat};
use vdnn_memory::{Budgets, Encoded, HomeLayout, Options, Prefetch, Problem, Sync, compile_with_policy, policies};
use vdnn_models::Options as ModelOptions;
use vdnn_runtime::cpu;
use vdnn_runtime::{ChaosDevice, CpuDevice, Device, Executor, KernelRequest};
use vdnn_schedule::{Action, Direction, KernelTable, Schedule, Space};
use vdnn_sim::{DiskRates, Links};
use vdnn_tensor::{DType, HostTensor, Philox};

const CLASSES: u64 = 10;

/// With one algorithm a node, bits must not depend on the policy. One of small workspace, so that the peak is feature maps.
fn kernels(program: &Program) -> KernelTable {
    let request = KernelRequest::whole(true);
    let mut kernels = CpuDevice::with_threads(1).unwrap().kernel_table(&program.graph, request).unwrap();
    for choices in &mut kernels.choices {
        let tiles = choices.iter().position(|choice| choice.algorithm == "tiles").unwrap_or(0);
        *choices = vec![choices[tiles].clone()];
    }
    kernels
}

/// Each convolution in two pieces of the batch.
fn in_halves(program: &Program, kernels: &mut KernelTable) {
    for (node, choices) in program.graph.nodes().iter().zip(&mut kernels.choices) {
        let pieces = cpu::pieces(&program.graph, node).unwrap();
        let found = pieces.into_iter().find(|choice| choice.algorithm == "tiles/2");
        *choices = found.map_or_else(|| choices.clone(), |choice| vec![choice]);
    }
    assert!(kernels.choices.iter().flatten().any(|choice| choice.algorithm == "tiles/2"));
}

/// A training iteration, what it starts from, and one algorithm for each kernel.
struct Training {
    batch_size: u64,
    program: Arc<Program>,
    initial: BTreeMap<String, HostTensor>,
    kernels: KernelTable,
    /// The same with masks and indices, for the policy that takes them.
    encoded: Option<(Arc<Program>, KernelTable)>,
    homes: HomeLayout,
}

/// A program with a schedule of it.
type Compiled = (Arc<Program>, Arc<Schedule>);

impl Training {
    fn new(model: &str, batch_size: u64, image_size: u64) -> Self {
        Self::with(model, batch_size, image_size, Passes::NONE)
    }

    fn with(model: &str, batch_size: u64, image_size: u64, passes: Passes) -> Self {
        Self::rewritten(model, batch_size, image_size, passes, |graph| graph)
    }

    /// The same with its whole iteration rewritten.
    fn rewritten(
        model: &str,
        batch_size: u64,
        image_size: u64,
        passes: Passes,
        rewrite: impl Fn(Graph) -> Graph,
    ) -> Self {
        let net = vdnn_models::build(model, &Self::options(batch_size, image_size, passes)).unwrap();
        Self::of(net, |graph| graph, rewrite)
    }

    fn options(batch_size: u64, image_size: u64, passes: Passes) -> ModelOptions {
        ModelOptions {
            batch_size,
            image_size: Some(image_size),
            channels: Some(3),
            classes: Some(CLASSES),
            dropout: Some(0.5),
            seed: 11,
            passes,
            ..ModelOptions::default()
        }
    }

    /// A network with its forward graph rewritten, and then its whole iteration.
    fn of(net: Net, before: impl Fn(Graph) -> Graph, rewrite: impl Fn(Graph) -> Graph) -> Self {
        let net = net.lower().unwrap();
        let batch_size = net.options().batch_size;
        let initial = net.initial_values().map(|(name, value)| (name.to_string(), value)).collect();
        let graph = before(net.into_graph());
        let loss = graph.find_value("loss").unwrap();
        let sgd = Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 1e-4, nesterov: false };
        let options = vdnn_autograd::Options::train(loss, Optimizer::Sgd(sgd));
        let graph = rewrite(differentiate(graph, &options).unwrap().graph);
        let homes = HomeLayout::for_graphs(&[&graph], 256);
        let program = Arc::new(Program::linearize(graph, InPlace::Allowed).unwrap());
        let encoded = encode(&program).unwrap().map(|encoded| {
            let kernels = kernels(&encoded);
            (Arc::new(encoded), kernels)
        });
        Training { batch_size, kernels: kernels(&program), encoded, program, initial, homes }
    }

    /// The same with each convolution in two pieces of the batch.
    fn in_pieces(mut self) -> Self {
        in_halves(&self.program, &mut self.kernels);
        if let Some((program, kernels)) = &mut self.encoded {
            in_halves(program, kernels);
        }
        self
    }

    fn problem(&self, options: Options, budget: Option<u64>) -> Problem<'_> {
        let disk = DiskRates { write: 3e8, read: 4e8, latency: 0.0 };
        Problem {
            program: &self.program,
            kernels: &self.kernels,
            links: Links { disk: Some(disk), ..Links::new(1e9, 1e9, 1e9) },
            homes: &self.homes,
            budgets: Budgets { device: budget, host: None, disk: None },
            options,
            encoded: self.encoded.as_ref().map(|(program, kernels)| Encoded { program, kernels }),
        }
    }

    /// The least budget at which a policy has a plan.
    fn floor(&self, policy: &str, options: Options) -> u64 {
        policies::find(policy).unwrap().plan(&self.problem(options, Some(0))).unwrap_err().floor
    }

    fn compiled(&self, policy: &str, options: Options, budget: Option<u64>) -> Compiled {
        self.compiled_for(policy, &self.problem(options, budget))
    }

    fn compiled_for(&self, policy: &str, problem: &Problem<'_>) -> Compiled {
        let policy = policies::find(policy).unwrap();
        let (schedule, plan) = compile_with_policy(problem, policy.as_ref()).unwrap();
        let encoded = self.encoded.as_ref().filter(|_| plan.is_encoded());
        let program = encoded.map_or(&self.program, |(program, _)| program);
        let violations = vdnn_check::check(&schedule, program);
        assert!(violations.is_empty(), "{violations:?}");
        (Arc::clone(program), Arc::new(schedule))
    }

    /// Every persistent and metric after two iterations.
    fn run(&self, device: Box<dyn Device>, compiled: &Compiled) -> Result<Vec<(String, Vec<u8>)>, String> {
        let (mut executor, ids) =
            Executor::with_schedules(device, std::slice::from_ref(compiled)).map_err(|error| error.to_string())?;
        let graph = &self.program.graph;
        let mut random = Philox::new(5, 5);
        let pixels = 0..executor.home_bytes(ids[0], "image").unwrap() / 4;
        let pixels: Vec<u8> = pixels.flat_map(|_| (random.uniform() - 0.5).to_le_bytes()).collect();
        executor.write(ids[0], "image", &pixels).unwrap();
        let labels: Vec<u8> = (0..self.batch_size as i32).flat_map(|i| (i * 7 % 10).to_le_bytes()).collect();
        executor.write(ids[0], "label", &labels).unwrap();
        executor.write(ids[0], "learning_rate", &0.01f32.to_le_bytes()).unwrap();
        for persistent in graph.persistents() {
            let value = graph.value(persistent.initial);
            let zeros = vec![0; value.ty.bytes() as usize];
            let bytes = self.initial.get(&value.name).map_or(&zeros[..], |tensor| tensor.as_bytes());
            executor.write(ids[0], &value.name, bytes).unwrap();
        }
        for iteration in 0..2u64 {
            executor.write(ids[0], "iteration", &iteration.to_le_bytes()).unwrap();
            executor.run(ids[0]).map_err(|error| error.to_string())?;
        }
        let lasting = graph.persistents().iter().map(|persistent| persistent.last);
        let names = lasting.chain(graph.metrics().iter().copied()).map(|id| graph.value(id).name.clone());
        Ok(names.map(|name| (name.clone(), executor.read(ids[0], &name).unwrap())).collect())
    }

    /// The CPU and some interleavings of every policy, against keeping everything.
    fn check(&self, seeds: std::ops::Range<u64>) {
        let options = Options { min_offload: 0, ..Options::default() };
        let kept = self.compiled("none", options, None);
        let expected = self.run(Box::new(CpuDevice::new().unwrap()), &kept).unwrap();
        let (_, loss) = expected.iter().find(|(name, _)| name == "loss").unwrap();
        assert!(f32::from_le_bytes(loss[..4].try_into().unwrap()).is_finite());
        let least = self.floor("all-p", options);
        let most = kept.1.peak_bytes(Space::Device);
        assert!(least < most, "offloading saves memory: {least} and {most} bytes");
        let halfway = u64::midpoint(least, most);
        let variants = [
            ("none", options, None),
            ("baseline", options, None),
            ("all-m", Options { sync: Sync::PerLayer, prefetch: Prefetch::Paper, ..options }, None),
            ("all-p", options, None),
            ("all-p", options, Some(least)),
            ("all-p", Options { prefetch: Prefetch::Lookahead(1), ..options }, None),
            ("conv-p", options, None),
            ("dyn", options, Some(halfway)),
        ];
        for (policy, options, budget) in variants {
            let compiled = self.compiled(policy, options, budget);
            let moved = compiled.1.transfer_bytes(Direction::Offload);
            assert_eq!(moved == 0, matches!(policy, "none" | "baseline"), "{policy} offloads {moved} bytes");
            self.same_bits(&format!("{policy} {options:?}"), &compiled, &expected, seeds.clone());
        }
    }

    /// Less host memory than what leaves needs: the rest of it on disk.
    fn check_on_disk(&self, seeds: std::ops::Range<u64>) {
        let kept = Options { min_offload: 0, ..Options::default() };
        let expected = self.run(Box::new(CpuDevice::new().unwrap()), &self.compiled("none", kept, None)).unwrap();
        for sync in [Sync::Events, Sync::PerLayer] {
            let options = Options { sync, ..kept };
            let host = self.compiled("all-p", options, None).1.peak_bytes(Space::Host) * 3 / 5;
            let problem = self.problem(options, None);
            let budgets = Budgets { host: Some(host), disk: Some(1 << 30), ..problem.budgets };
            let compiled = self.compiled_for("all-p", &Problem { budgets, ..problem });
            assert!(compiled.1.disk_bytes(Direction::Prefetch) > 0 && compiled.1.peak_bytes(Space::Host) <= host);
            self.same_bits(&format!("on disk, {sync:?}"), &compiled, &expected, seeds.clone());
        }
    }

    /// The policies that make values again, from their floor to their peak. The kinds of the nodes that ran again.
    fn check_recomputing(&self, seeds: std::ops::Range<u64>) -> BTreeSet<&'static str> {
        let options = Options { min_offload: 0, ..Options::default() };
        let kept = self.compiled("none", options, None);
        let expected = self.run(Box::new(CpuDevice::new().unwrap()), &kept).unwrap();
        let (most, mut kinds) = (kept.1.peak_bytes(Space::Device), BTreeSet::new());
        for policy in ["hybrid", "checkpoint"] {
            let floor = self.floor(policy, options);
            assert!(floor < most, "{policy} saves memory: {floor} and {most} bytes");
            let (mut again, mut encoded) = (0, 0);
            for budget in [0, 35, 70, 95].map(|percent| floor + (most - floor) * percent / 100) {
                let compiled = self.compiled(policy, options, Some(budget));
                let schedule = &compiled.1;
                encoded += usize::from(!Arc::ptr_eq(&compiled.0, &self.program));
                assert!(schedule.peak_bytes(Space::Device) <= budget);
                let later = schedule.commands.iter().filter_map(|command| match command.action {
                    Action::Launch { node, run, .. } if run > 0 => Some(compiled.0.graph.node(node).op.kind()),
                    _ => None,
                });
                again += later.clone().count();
                kinds.extend(later);
                let moved = schedule.transfer_bytes(Direction::Offload);
                assert!(moved == 0 || policy == "hybrid", "checkpoint copies {moved} bytes");
                self.same_bits(&format!("{policy} at {budget}"), &compiled, &expected, seeds.clone());
            }
            // Fused, a network without pools has nothing left to encode.
            let takes = policy == "hybrid" && self.encoded.is_some();
            assert_eq!(encoded > 0, takes, "{policy}: {encoded} of four schedules with masks");
            // Few of googlenet's values, and of those of a chain whose batch is split, are cheaper to make again than these links
            // are slow.
            let split = self.program.graph.nodes().iter().any(|node| node.op.kind() == "split");
            let dear = split || self.program.graph.name == "googlenet";
            assert!(again > 0 || (policy == "hybrid" && dear), "{policy}");
        }
        kinds
    }

    fn same_bits(&self, name: &str, compiled: &Compiled, expected: &[(String, Vec<u8>)], seeds: std::ops::Range<u64>) {
        let devices = seeds.map(|seed| Box::new(ChaosDevice::new(seed)) as Box<dyn Device>);
        let mut cpu: Box<dyn Device> = Box::new(CpuDevice::new().unwrap());
        cpu.set_disk_folder(&std::env::temp_dir());
        for (index, device) in std::iter::once(cpu).chain(devices).enumerate() {
            let found = self.run(device, compiled).unwrap_or_else(|error| panic!("{name}, device {index}: {error}"));
            for (found, expected) in found.iter().zip(expected) {
                assert_eq!(found.0, expected.0);
                assert!(found.1 == expected.1, "{name}, device {index}: {} differs", found.0);
            }
        }
    }
}

#[test]
fn a_chain_with_dropout() {
    let training = Training::new("vgg-small", 16, 28);
    training.check(0..12);
    training.check_on_disk(0..12);
    training.check_recomputing(0..6);
}

#[test]
fn a_chain_in_pieces_of_the_batch() {
    let training = Training::new("vgg-small", 16, 28).in_pieces();
    training.check(0..3);
    training.check_recomputing(0..3);
}

#[test]
fn residual_joins_with_batch_norm() {
    let training = Training::new("resnet-cifar-8", 4, 32);
    training.check(0..4);
    training.check_on_disk(0..4);
    training.check_recomputing(0..3);
}

/// bf16, channels last, fused: casts of weights and of their gradients, masks in the order of memory.
#[test]
fn residual_joins_in_bf16() {
    let training =
        Training::with("resnet-cifar-8", 4, 32, Passes { fuse: true, storage: Some(DType::BF16), ..Passes::NONE });
    training.check(0..3);
    training.check_recomputing(0..2);
}

/// f16, where convolutions make the statistics of their outputs, also when they run again: the bits of the two nodes.
#[test]
fn residual_joins_in_f16_with_statistics() {
    let passes = Passes { fuse: true, storage: Some(DType::F16), ..Passes::NONE };
    let training = Training::rewritten("resnet-cifar-8", 4, 32, passes, |graph| fuse_statistics(&graph).unwrap().graph);
    let count = |training: &Training, kind: &str| {
        training.program.graph.nodes().iter().filter(|node| node.op.kind() == kind).count()
    };
    let apart = Training::with("resnet-cifar-8", 4, 32, passes);
    let statistics = count(&apart, "batch_norm_stats");
    assert!(statistics > 6 && count(&training, "conv2d_stats") == statistics);
    assert_eq!(count(&training, "batch_norm_stats"), 0);
    let results = [&training, &apart].map(|training| {
        let kept = training.compiled("none", Options { min_offload: 0, ..Options::default() }, None);
        training.run(Box::new(CpuDevice::new().unwrap()), &kept).unwrap()
    });
    assert!(results[0] == results[1], "the same bits with and without the pass");
    training.check(0..3);
    assert!(training.check_recomputing(0..2).contains("conv2d_stats"));
}

/// Slices of channels innermost, a row a pixel.
#[test]
fn branches_with_concat_in_bf16() {
    let training =
        Training::with("googlenet", 2, 32, Passes { fuse: true, storage: Some(DType::BF16), ..Passes::NONE });
    training.check(0..1);
}

/// Branches written straight into their concatenation.
#[test]
fn branches_with_concat() {
    let training = Training::new("googlenet", 2, 32);
    training.check(0..1);
    training.check_on_disk(0..1);
    training.check_recomputing(0..1);
}

fn split(parts: u64, at: &'static str) -> impl Fn(Graph) -> Graph {
    move |graph| split_batch(&graph, parts, graph.find_value(at).unwrap()).unwrap().graph
}

/// A batch that is split: parts of images and of the frontier are runs of samples, some of them of another size.
#[test]
fn a_chain_on_one_part_of_the_batch_after_the_other() {
    for (parts, passes) in [(3, Passes::NONE), (2, Passes { fuse: true, storage: Some(DType::BF16), ..Passes::NONE })] {
        let net = vdnn_models::build("vgg-small", &Training::options(8, 28, passes)).unwrap();
        let training = Training::of(net, split(parts, "features.9"), |graph| graph);
        training.check(0..3);
        training.check_on_disk(0..2);
        training.check_recomputing(0..2);
    }
}

/// Branches written into slices of the channels of some of the samples.
#[test]
fn branches_on_one_part_of_the_batch_after_the_other() {
    for storage in [None, Some(DType::BF16)] {
        let passes = Passes { fuse: storage.is_some(), storage, ..Passes::NONE };
        let training = Training::of(branches(passes).unwrap(), split(2, "joined"), |graph| graph);
        training.check(0..3);
        training.check_recomputing(0..2);
    }
}

/// Two modules of branches, without batch statistics.
fn branches(passes: Passes) -> Result<Net, LayerError> {
    let mut net =
        Net::new("branches", &NetOptions { batch_size: 5, image: [3, 16, 16], passes, ..NetOptions::default() })?;
    let mut x = net.image();
    for (module, name) in ["first", "joined"].into_iter().enumerate() {
        let conv = |net: &mut Net, part: &str, kernel: u64, x| {
            let y = Conv2d::new(net.channels(x), 8, kernel).padding(kernel / 2).push(
                net,
                &format!("{module}.{part}"),
                x,
            )?;
            Relu.push(net, &format!("{module}.{part}.relu"), y)
        };
        let (one, three) = (conv(&mut net, "one", 1, x)?, conv(&mut net, "three", 3, x)?);
        let pooled = MaxPool2d::new(3, 1).padding(1).push(&mut net, &format!("{module}.pool"), x)?;
        let pooled = conv(&mut net, "pooled", 1, pooled)?;
        x = concat(&mut net, name, &[one, three, pooled])?;
    }
    let x = MaxPool2d::new(2, 2).push(&mut net, "pool", x)?;
    let x = Flatten.push(&mut net, "flatten", x)?;
    let x = Linear::new(net.channels(x), CLASSES).push(&mut net, "fc", x)?;
    net.classify(x, 0.0)?;
    Ok(net)
}

/// Each wait of a compiled schedule left out in turn. What `check` accepts never shows; what it refuses does, for some seed.
#[test]
fn check_and_chaos_agree_on_every_missing_wait() {
    let training = Training::new("vgg-small", 2, 28);
    let compiled = training.compiled("all-p", Options { min_offload: 0, ..Options::default() }, None);
    let expected = training.run(Box::new(ChaosDevice::new(0)), &compiled);
    let (program, schedule) = (compiled.0, Schedule::clone(&compiled.1));
    let is_wait = |at: &usize| matches!(schedule.commands[*at].action, Action::Wait(_));
    let (mut refused, mut caught) = (0, 0);
    for at in (0..schedule.commands.len()).filter(is_wait) {
        let mut mutant = schedule.clone();
        mutant.commands.remove(at);
        let accepted = vdnn_check::check(&mutant, &training.program).is_empty();
        let mutant = (Arc::clone(&program), Arc::new(mutant));
        let shows = |seed| training.run(Box::new(ChaosDevice::new(seed)), &mutant) != expected;
        let shown = (0..16).any(shows);
        assert!(!(accepted && shown), "check accepts the schedule without command {at}, chaos does not");
        refused += usize::from(!accepted);
        caught += usize::from(shown);
    }
    assert!(refused > 10 && caught == refused, "{caught} of {refused} missing waits caught");
}
