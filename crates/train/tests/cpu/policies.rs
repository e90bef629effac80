//! Policies: the same bits, the planned memory, the same result with any number of threads.

use crate::setup::{Outcome, Setup, feed_pixels, run, trainer};
use vdnn_autograd::Optimizer;
use vdnn_datasets::fashion_mnist_sample;
use vdnn_memory::{Options, Prefetch, Sync};
use vdnn_schedule::{Direction, split_pieces};
use vdnn_tensor::DType;
use vdnn_train::{Encodings, Feed, Optimization, TrainError};

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

/// `hybrid` and `checkpoint` at their floor and at two budgets between: equal to `none` with the algorithms they chose, within
/// the plan, and some values really are made again.
#[test]
fn recomputing_bits_at_every_budget() {
    for (policy, model) in [("hybrid", "vgg-small"), ("hybrid", "resnet-small"), ("checkpoint", "resnet-small")] {
        let setup = || Setup { model, policy, steps: 10, ..Setup::default() };
        let floor = match trainer(&Setup { budget: Some(1), ..setup() }) {
            Err(TrainError::Plan(vdnn_memory::PlanError::Infeasible(refusal))) => refusal.floor,
            other => panic!("a budget of one byte must be refused, got {}", other.map(|_| "a trainer").unwrap_err()),
        };
        let top = run(&Setup { policy: "none", steps: 1, ..setup() }).planned;
        assert!(floor < top);
        let mut again = 0;
        for budget in [floor, floor + (top - floor) / 3, floor + (top - floor) * 2 / 3] {
            let outcome = run(&Setup { budget: Some(budget), ..setup() });
            let name = format!("{model} {policy} at {budget}");
            assert!(outcome.planned <= budget, "{name}");
            check_memory(&name, &outcome, 256);
            again += outcome.launches_again();
            assert!(policy == "hybrid" || !outcome.offloads(), "{name}");
            let algos_from = Some(outcome.schedule.clone());
            let kept = run(&Setup { policy: "none", algos_from, ..setup() });
            assert_eq!(outcome.bits(), kept.bits(), "{name}");
        }
        assert!(again > 0, "{model} {policy}: nothing was made again");
    }
}

/// Masks and indices give the bits of the maps they take the place of: `hybrid` at its floor with and without them, each equal
/// to `none` with its algorithms, and both to each other with one set of algorithms.
#[test]
fn encoded_bits_are_those_of_none() {
    for (model, dtype) in [("vgg-small", DType::F32), ("vgg-small", DType::F64)] {
        let setup = |encodings| Setup { model, dtype, encodings, policy: "hybrid", steps: 6, ..Setup::default() };
        let floor = |encodings| match trainer(&Setup { budget: Some(1), ..setup(encodings) }) {
            Err(TrainError::Plan(vdnn_memory::PlanError::Infeasible(refusal))) => refusal.floor,
            other => panic!("a budget of one byte must be refused, got {}", other.map(|_| "a trainer").unwrap_err()),
        };
        let floors = [Encodings::Auto, Encodings::Never].map(floor);
        assert!(floors[0] < floors[1], "{model}: {floors:?}");
        let with = run(&Setup { budget: Some(floors[0]), ..setup(Encodings::Auto) });
        assert!(with.encoded > 0 && with.planned <= floors[0], "{model}: {} rules", with.encoded);
        check_memory(model, &with, 256);
        let algos_from = || Some(with.schedule.clone());
        let kept = run(&Setup { policy: "none", algos_from: algos_from(), ..setup(Encodings::Auto) });
        assert_eq!((kept.encoded, with.bits()), (0, kept.bits()), "{model}");
        let budget = Some(floors[1].max(kept.planned * 3 / 4));
        for encodings in [Encodings::Auto, Encodings::Never] {
            let again = run(&Setup { budget, algos_from: algos_from(), ..setup(encodings) });
            assert_eq!(again.bits(), with.bits(), "{model} with {encodings:?}");
            assert!(again.encoded == 0 || encodings == Encodings::Auto);
        }
        // The other way: algorithms of a plain schedule for an encoded one.
        let algos_from = Some(kept.schedule.clone());
        let back = run(&Setup { budget: Some(floors[0]), algos_from, ..setup(Encodings::Auto) });
        assert_eq!((back.encoded, back.bits()), (with.encoded, with.bits()), "{model}");
    }
}

/// `hybrid` where it is tight takes kernels in pieces of the batch, which changes no bit against keeping everything with the
/// same pieces, nor does the number of threads; and `none` never takes one by itself.
#[test]
fn pieces_of_the_batch_under_a_tight_budget() {
    let setup = || Setup { policy: "hybrid", steps: 5, batch: 32, ..Setup::default() };
    let in_pieces = |outcome: &Outcome| {
        let names = outcome.schedule.algorithms.iter();
        names.filter(|name| split_pieces(name).1 > 1).cloned().collect::<Vec<String>>()
    };
    let floor = match trainer(&Setup { budget: Some(1), ..setup() }) {
        Err(TrainError::Plan(vdnn_memory::PlanError::Infeasible(refusal))) => refusal.floor,
        other => panic!("a budget of one byte must be refused, got {}", other.map(|_| "a trainer").unwrap_err()),
    };
    let mut used = 0;
    for share in [0, 5, 20] {
        let budget = floor + floor * share / 100;
        let outcome = run(&Setup { budget: Some(budget), ..setup() });
        let names = in_pieces(&outcome);
        used += names.len();
        check_memory(&format!("at {budget} with {names:?}"), &outcome, 256);
        let algos_from = || Some(outcome.schedule.clone());
        let kept = run(&Setup { policy: "none", algos_from: algos_from(), ..setup() });
        assert_eq!(in_pieces(&kept).len(), names.len());
        assert_eq!(outcome.bits(), kept.bits(), "at {budget} with {names:?}");
        let alone = run(&Setup { policy: "none", algos_from: algos_from(), threads: 1, ..setup() });
        assert_eq!(alone.bits(), kept.bits(), "at {budget} with {names:?} on one thread");
    }
    assert!(used > 0, "no budget was tight enough");
    assert!(in_pieces(&run(&Setup { policy: "none", steps: 1, ..setup() })).is_empty());
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
        match trainer.step(Feed::new(&images, &labels), 1e12) {
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
    assert_eq!(outcome.launches_again(), 0);
    assert!(matches!(Optimization::sgd(0.9, 0.0).optimizer, Optimizer::Sgd(_)));
}
