//! Policies on the CPU device: the same bits, the planned memory, the same result with any number of threads.

use vdnn_autograd::Optimizer;
use vdnn_datasets::{Dataset, Split, fashion_mnist_sample};
use vdnn_layers::Mode;
use vdnn_memory::{Budgets, Options, Prefetch, Sync, policies};
use vdnn_models::Options as ModelOptions;
use vdnn_runtime::CpuDevice;
use vdnn_schedule::{Action, Direction, Schedule, Space};
use vdnn_sim::Links;
use vdnn_train::{Feed, Optimization, Recipe, Settings, TrainError, Trainer};

struct Setup<'a> {
    model: &'a str,
    policy: &'a str,
    options: Options,
    budget: Option<u64>,
    algos_from: Option<Schedule>,
    threads: usize,
    steps: u64,
    /// Small: kernels without workspace are plain loops.
    batch: u64,
    learning_rate: f64,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Setup {
            model: "vgg-small",
            policy: "none",
            options: Options { min_offload: 0, memory_optimal_workspace: 0, ..Options::default() },
            budget: None,
            algos_from: None,
            threads: 2,
            steps: 20,
            batch: 4,
            learning_rate: 0.01,
        }
    }
}

/// What must not depend on the policy, and what does.
struct Outcome {
    losses: Vec<u64>,
    weights: String,
    schedule: Schedule,
    planned: u64,
    measured: u64,
}

impl Outcome {
    fn bits(&self) -> (&[u64], &str) {
        (&self.losses, &self.weights)
    }

    fn offloads(&self) -> bool {
        self.schedule.transfer_bytes(Direction::Offload) > 0
    }

    fn losses(&self) -> Vec<f64> {
        self.losses.iter().map(|&bits| f64::from_bits(bits)).collect()
    }
}

fn trainer(setup: &Setup<'_>) -> Result<Trainer, TrainError> {
    let model = setup.model.to_string();
    let build = move |batch_size: u64, mode: Mode| {
        let options = ModelOptions {
            batch_size,
            mode,
            image_size: Some(28),
            channels: Some(1),
            classes: Some(10),
            dropout: Some(0.3),
            seed: 7,
            ..ModelOptions::default()
        };
        vdnn_models::build(&model, &options).map_err(Into::into)
    };
    let settings = Settings {
        policy: policies::find(setup.policy).unwrap(),
        options: setup.options,
        budgets: Budgets { device: setup.budget, host: None },
        links: Links { d2h: 2e8, h2d: 2e8, duplex_each: 2e8, latency: 0.0 },
        algos_from: setup.algos_from.clone(),
    };
    let recipe = Recipe {
        batch_size: setup.batch,
        partial_batches: vec![],
        eval_batches: vec![],
        optimization: Optimization::sgd(0.9, 5e-4),
        settings,
        deterministic: true,
        seed: 7,
    };
    Trainer::new(&build, Box::new(CpuDevice::with_threads(setup.threads)?), &recipe)
}

fn feed_pixels(data: &Dataset, step: u64, batch: u64) -> (Vec<f32>, Vec<i32>) {
    let first = (step * batch) as usize;
    let range = first..first + batch as usize;
    let pixels = data.images()[range.start * 784..range.end * 784].iter();
    (pixels.map(|&p| (f32::from(p) / 255.0 - 0.286) / 0.353).collect(), labels(data, range))
}

fn labels(data: &Dataset, range: std::ops::Range<usize>) -> Vec<i32> {
    data.labels()[range].to_vec()
}

fn run(setup: &Setup<'_>) -> Outcome {
    let data = fashion_mnist_sample().unwrap().train;
    assert_eq!(data.split(), Split::Train);
    let mut trainer = trainer(setup).unwrap();
    let mut losses = Vec::new();
    for step in 0..setup.steps {
        let (images, labels) = feed_pixels(&data, step, setup.batch);
        let result = trainer.step(Feed { images: &images, labels: &labels }, setup.learning_rate).unwrap();
        losses.push(result.loss.to_bits());
    }
    Outcome {
        losses,
        weights: trainer.weights_sha256().unwrap(),
        planned: trainer.peak_bytes(Space::Device),
        measured: trainer.measured_peak().unwrap(),
        schedule: (*trainer.planned().schedule).clone(),
    }
}

fn check_memory(name: &str, outcome: &Outcome, alignment: u64) {
    let (planned, measured) = (outcome.planned, outcome.measured);
    assert!(measured <= planned, "{name}: measured {measured} over planned {planned}");
    assert!(measured + alignment >= planned, "{name}: measured {measured} far below planned {planned}");
}

/// {none, baseline, all, conv} with the same algorithms: equal to the last bit, under both rules of waiting.
fn same_bits(model: &str, suffix: &str) {
    let reference = run(&Setup { model, policy: &format!("none-{suffix}"), ..Setup::default() });
    check_memory("none", &reference, 256);
    for sync in [Sync::Events, Sync::PerLayer] {
        for (family, prefetch) in [
            ("baseline", Prefetch::Cost),
            ("all", Prefetch::Paper),
            ("conv", Prefetch::Cost),
            ("all", Prefetch::Lookahead(2)),
        ] {
            let policy = format!("{family}-{suffix}");
            let options = Options { sync, prefetch, ..Setup::default().options };
            let outcome = run(&Setup { model, policy: &policy, options, ..Setup::default() });
            let name = format!("{model} {policy} {sync:?} {prefetch:?}");
            assert_eq!(outcome.bits(), reference.bits(), "{name}");
            assert_eq!(outcome.offloads(), family != "baseline", "{name}");
            check_memory(&name, &outcome, 256);
        }
    }
}

#[test]
fn vgg_performance_optimal_bits() {
    same_bits("vgg-small", "p");
}

#[test]
fn vgg_memory_optimal_bits() {
    same_bits("vgg-small", "m");
}

#[test]
fn resnet_performance_optimal_bits() {
    same_bits("resnet-small", "p");
}

#[test]
fn resnet_memory_optimal_bits() {
    same_bits("resnet-small", "m");
}

/// At a learning rate low enough that training itself does not magnify the last digits: what a ReLU or a maximum decides
/// may turn on them, and every step builds on the one before.
#[test]
fn other_algorithms_change_only_the_last_digits() {
    for model in ["vgg-small", "resnet-small"] {
        let setup = || Setup { model, batch: 8, learning_rate: 0.001, ..Setup::default() };
        let fast = run(&Setup { policy: "none-p", ..setup() });
        let small = run(&Setup { policy: "none-m", ..setup() });
        for (step, (a, b)) in fast.losses().iter().zip(small.losses()).enumerate() {
            assert!((a - b).abs() <= 1e-4 * a.abs(), "{model} step {step}: {a} and {b}");
        }
        let used = |outcome: &Outcome| outcome.schedule.algorithms.clone();
        assert_ne!(used(&fast), used(&small), "the two groups must differ in algorithms");
    }
}

/// `dyn` at its floor, at two budgets between, and unlimited, each equal to `none` with the algorithms it chose.
#[test]
fn dynamic_bits_at_every_budget() {
    for model in ["vgg-small", "resnet-small"] {
        let floor = match trainer(&Setup { model, policy: "dyn", budget: Some(1), ..Setup::default() }) {
            Err(TrainError::Plan(vdnn_memory::PlanError::Infeasible(refusal))) => refusal.floor,
            other => panic!("a budget of one byte must be refused, got {}", other.map(|_| "a trainer").unwrap_err()),
        };
        let top = run(&Setup { model, policy: "none", steps: 1, ..Setup::default() }).planned;
        assert!(floor < top);
        let budgets = [Some(floor), Some(floor + (top - floor) / 3), Some(floor + (top - floor) * 2 / 3), None];
        for budget in budgets {
            let outcome = run(&Setup { model, policy: "dyn", budget, ..Setup::default() });
            assert!(budget.is_none_or(|budget| outcome.planned <= budget));
            check_memory(&format!("{model} dyn {budget:?}"), &outcome, 256);
            let algos_from = Some(outcome.schedule.clone());
            let kept = run(&Setup { model, policy: "none", algos_from, ..Setup::default() });
            assert_eq!(outcome.bits(), kept.bits(), "{model} dyn at {budget:?}");
        }
        let below = trainer(&Setup { model, policy: "dyn", budget: Some(floor - 1), ..Setup::default() });
        assert!(matches!(below, Err(TrainError::Plan(_))), "one byte below the floor");
    }
}

#[test]
fn bits_do_not_depend_on_threads() {
    for model in ["vgg-small", "resnet-small"] {
        let two = run(&Setup { model, policy: "conv", threads: 2, batch: 16, ..Setup::default() });
        let one = run(&Setup { model, policy: "conv", threads: 1, batch: 16, ..Setup::default() });
        assert_eq!(one.bits(), two.bits(), "{model}");
    }
}

/// A learning rate that blows up ends the run with its step named, and the weights are those before it.
#[test]
fn a_loss_that_is_no_number_stops_before_the_update() {
    let data = fashion_mnist_sample().unwrap().train;
    let setup = Setup::default();
    let mut trainer = trainer(&setup).unwrap();
    let mut before = trainer.weights_sha256().unwrap();
    for step in 0..50 {
        let (images, labels) = feed_pixels(&data, step, setup.batch);
        match trainer.step(Feed { images: &images, labels: &labels }, 1e12) {
            Ok(_) => before = trainer.weights_sha256().unwrap(),
            Err(TrainError::NotFinite { step: at, .. }) => {
                assert_eq!(at, step);
                assert_eq!(trainer.weights_sha256().unwrap(), before, "the update must not have run");
                return;
            }
            Err(other) => panic!("{other}"),
        }
    }
    panic!("a learning rate of 1e12 must diverge");
}

/// The plan really moves bytes down and up on the device, each way the same number.
#[test]
fn every_offload_is_fetched_back() {
    let outcome = run(&Setup { policy: "all", steps: 1, ..Setup::default() });
    let moved = |way| outcome.schedule.transfer_bytes(way);
    assert!(moved(Direction::Offload) > 0);
    assert_eq!(moved(Direction::Offload), moved(Direction::Prefetch));
    let runs = outcome.schedule.commands.iter().filter(|c| matches!(c.action, Action::Launch { run, .. } if run > 0));
    assert_eq!(runs.count(), 0);
    assert!(matches!(Optimization::sgd(0.9, 0.0).optimizer, Optimizer::Sgd(_)));
}
