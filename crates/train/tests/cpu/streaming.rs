//! Parameters and momentum at home in host memory: the same bits, the planned memory, one home for all schedules of a run.

use crate::setup::{Outcome, Setup, feed_pixels, run, trainer};
use std::path::Path;
use tempfile::TempDir;
use vdnn_datasets::{Dataset, fashion_mnist_sample};
use vdnn_memory::{Options, PlanError, State, Sync};
use vdnn_schedule::{Direction, Space};
use vdnn_train::{Checkpoint, EvaluationSum, Feed, RunState, TrainError, Trainer};

fn with_state(state: State) -> Options {
    Options { state, ..Setup::default().options }
}

fn streamed_bytes(outcome: &Outcome) -> u64 {
    let schedule = &outcome.schedule;
    let homes = schedule.homes.iter().map(|home| schedule.buffer(home.buffer));
    homes.filter(|home| home.space == Space::Host).map(|home| home.bytes).sum()
}

/// Every policy that moves memory, with everything persistent away between its uses.
#[test]
fn streamed_bits() {
    for model in ["vgg-small", "resnet-small"] {
        let reference = run(&Setup { model, policy: "none-m", ..Setup::default() });
        assert_eq!(streamed_bytes(&reference), 0);
        for (policy, sync) in [("none-m", Sync::Events), ("all-m", Sync::Events), ("conv-m", Sync::PerLayer)] {
            let options = Options { sync, ..with_state(State::Host) };
            let outcome = run(&Setup { model, policy, options, ..Setup::default() });
            let name = format!("{model} {policy} {sync:?}");
            assert_eq!(outcome.bits(), reference.bits(), "{name}");
            let (planned, measured) = (outcome.planned, outcome.measured);
            assert!(measured <= planned && measured + 256 >= planned, "{name}: measured {measured} of {planned}");
            assert!(planned < reference.planned && streamed_bytes(&outcome) > 0, "{name}");
            // Momentum and parameters come up, and go home after their update.
            let moved = |way| outcome.schedule.transfer_bytes(way);
            assert!(moved(Direction::Offload) >= streamed_bytes(&outcome) / 2, "{name}");
            assert!(moved(Direction::Prefetch) >= streamed_bytes(&outcome), "{name}");
        }
    }
}

fn floor(setup: &Setup<'_>) -> u64 {
    match trainer(&Setup { budget: Some(1), ..Setup { partial: vec![], eval: vec![], ..setup_of(setup) } }) {
        Err(TrainError::Plan(PlanError::Infeasible(refusal))) => refusal.floor,
        other => panic!("a budget of one byte must be refused, got {}", other.map(|_| "a trainer").unwrap_err()),
    }
}

fn setup_of<'a>(setup: &Setup<'a>) -> Setup<'a> {
    Setup { model: setup.model, policy: setup.policy, options: setup.options, ..Setup::default() }
}

/// `hybrid` streams by itself where the budget is below what it needs with everything at home, and trains to the bits of
/// `none` with the algorithms it chose.
#[test]
fn hybrid_streams_below_its_floor_at_home() {
    for model in ["vgg-small", "resnet-small"] {
        let setup = |state| Setup { model, policy: "hybrid", options: with_state(state), steps: 8, ..Setup::default() };
        let [at_home, least] = [State::Device, State::Auto].map(|state| floor(&setup(state)));
        assert!(least < at_home, "{model}: {least} of {at_home}");
        for budget in [least, at_home - 1] {
            let outcome = run(&Setup { budget: Some(budget), ..setup(State::Auto) });
            let name = format!("{model} at {budget}");
            assert!(streamed_bytes(&outcome) > 0 && outcome.planned <= budget, "{name}");
            assert!(outcome.measured <= outcome.planned, "{name}");
            let algos_from = Some(outcome.schedule.clone());
            let kept = run(&Setup { model, policy: "none", algos_from, steps: 8, ..Setup::default() });
            assert_eq!(outcome.bits(), kept.bits(), "{name}");
        }
        assert!(trainer(&Setup { budget: Some(least - 1), ..setup(State::Auto) }).is_err(), "{model}");
    }
}

/// Full, partial and evaluation batches in turn.
fn in_turn(trainer: &mut Trainer, data: &Dataset) -> (Vec<u64>, String) {
    let mut bits = Vec::new();
    for (index, size) in [4, 2, 4, 7, 4, 2, 7, 4].into_iter().enumerate() {
        let (images, labels) = feed_pixels(data, index as u64, size);
        let feed = Feed::new(&images, &labels);
        bits.push(if size == 7 {
            let mut sum = EvaluationSum::default();
            trainer.evaluate_batch(feed, &mut sum).unwrap();
            sum.result().unwrap().loss.to_bits()
        } else {
            trainer.step(feed, 0.01).unwrap().loss.to_bits()
        });
    }
    (bits, trainer.weights_sha256().unwrap())
}

#[test]
fn schedules_of_a_run_share_homes_in_host_memory() {
    let data = fashion_mnist_sample().unwrap().train;
    for model in ["vgg-small", "resnet-small"] {
        let bits = [State::Device, State::Host].map(|state| {
            let options = with_state(state);
            let setup = Setup { model, policy: "none-m", options, partial: vec![2], eval: vec![7], ..Setup::default() };
            in_turn(&mut trainer(&setup).unwrap(), &data)
        });
        assert_eq!(bits[0], bits[1], "{model}");
    }
    // What the training schedule decides holds for the others, whose own budget would let them stay.
    let setup = Setup { policy: "hybrid", options: with_state(State::Auto), ..Setup::default() };
    let budget = floor(&setup);
    let setup = Setup { budget: Some(budget), partial: vec![2], eval: vec![2], ..setup };
    let mut trainer = trainer(&setup).unwrap();
    let (images, labels) = feed_pixels(&data, 0, 2);
    let feed = Feed::new(&images, &labels);
    trainer.step(feed, 0.01).unwrap();
    trainer.evaluate_batch(feed, &mut EvaluationSum::default()).unwrap();
    assert!(trainer.peak_bytes(Space::Device) <= budget);
}

/// A checkpoint taken where state streams goes on where it does not, and the other way round, as if nothing had happened.
#[test]
fn checkpoints_of_streamed_state() {
    let data = fashion_mnist_sample().unwrap().train;
    let folder = TempDir::new().unwrap();
    let steps = |trainer: &mut Trainer, range: std::ops::Range<u64>| {
        for step in range {
            let (images, labels) = feed_pixels(&data, step, 4);
            trainer.step(Feed::new(&images, &labels), 0.01).unwrap();
        }
    };
    let of = |state| Setup { policy: "all-m", options: with_state(state), ..Setup::default() };
    let mut straight = trainer(&of(State::Device)).unwrap();
    steps(&mut straight, 0..6);
    for (first, then) in [(State::Host, State::Device), (State::Device, State::Host), (State::Host, State::Host)] {
        let path = folder.path().join("checkpoint.safetensors");
        let mut before = trainer(&of(first)).unwrap();
        steps(&mut before, 0..3);
        save(&mut before, &path);
        let mut after = trainer(&of(then)).unwrap();
        Checkpoint::load(&path).unwrap().restore(&mut after, &path).unwrap();
        steps(&mut after, 3..6);
        assert_eq!(after.weights_sha256().unwrap(), straight.weights_sha256().unwrap(), "{first:?} {then:?}");
        let [found, expected] = [&mut after, &mut straight].map(|trainer| trainer.tensors().unwrap());
        assert_eq!(found, expected, "{first:?} {then:?}: momentum as well");
    }
}

fn save(trainer: &mut Trainer, path: &Path) {
    let state = RunState { model: "vgg-small".into(), iteration: trainer.iteration(), epoch: 0, batch: 3, seed: 7 };
    Checkpoint::take(trainer, state).unwrap().save(path).unwrap();
}
