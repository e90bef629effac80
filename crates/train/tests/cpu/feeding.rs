//! Batches as bytes and as numbers, copied before a step and while one runs: the same bits, within the budget.

use crate::setup::{Setup, feed_pixels, trainer};
use vdnn_datasets::{Source, fashion_mnist_sample};
use vdnn_graph::op::Normalise;
use vdnn_graph::passes::Passes;
use vdnn_layers::Net;
use vdnn_memory::PlanError;
use vdnn_models::Options as ModelOptions;
use vdnn_schedule::Space;
use vdnn_tensor::DType;
use vdnn_train::{BuildError, EvaluationSum, Feed, TrainError, Trainer};

const STEPS: u64 = 6;

/// The network of a name over bytes.
fn of_bytes(model: &str, options: &ModelOptions) -> Result<Net, BuildError> {
    let bytes = Some(Normalise { mean: vec![0.286_041], std: vec![0.353_024], dtype: DType::F32 });
    vdnn_models::build(model, &ModelOptions { bytes, ..options.clone() }).map_err(Into::into)
}

fn bytes<'a>(policy: &'a str, model: &'a str) -> Setup<'a> {
    Setup { policy, model, network: of_bytes, steps: STEPS, ..Setup::default() }
}

fn images(step: u64, batch: u64) -> (Vec<u8>, Vec<i32>) {
    let data = fashion_mnist_sample().unwrap().train;
    let (_, labels) = feed_pixels(&data, step, batch);
    (data.images()[(step * batch * 784) as usize..((step + 1) * batch * 784) as usize].to_vec(), labels)
}

/// Losses and weights after some steps, each batch loaded before its step.
fn direct(setup: &Setup<'_>) -> (Vec<u64>, String) {
    let mut trainer = trainer(setup).unwrap();
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let (images, labels) = images(step, setup.batch);
        losses.push(trainer.step(Feed::new(&images, &labels), 0.01).unwrap().loss.to_bits());
    }
    (losses, trainer.weights_sha256().unwrap())
}

/// The same with each batch staged while the step before runs.
fn staged(setup: &Setup<'_>, trainer: &mut Trainer) -> (Vec<u64>, String) {
    let (first, labels) = images(0, setup.batch);
    let mut batch = trainer.load(Feed::new(&first, &labels)).unwrap();
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let mut running = trainer.begin_step(batch, 0.01).unwrap();
        let (next, labels) = images(step + 1, setup.batch);
        let next = running.stage(Feed::new(&next, &labels)).unwrap();
        losses.push(running.finish().unwrap().loss.to_bits());
        batch = trainer.load_staged(next).unwrap();
    }
    (losses, trainer.weights_sha256().unwrap())
}

/// What the host makes of bytes and what the network makes of them: every loss and every weight.
#[test]
fn bytes_train_as_numbers_do() {
    for (model, dtype, storage) in [
        ("vgg-small", DType::F32, None),
        ("resnet-small", DType::F32, None),
        ("resnet-small", DType::F32, Some(DType::BF16)),
    ] {
        let passes = Passes { fuse: storage.is_some(), storage, ..Passes::NONE };
        let setup = Setup { dtype, passes, ..bytes("none", model) };
        let mut plain = trainer(&Setup { network: Setup::default().network, ..setup }).unwrap();
        let normalization = fashion_mnist_sample().unwrap().train.normalization().clone();
        let mut losses = Vec::new();
        for step in 0..STEPS {
            let (images, labels) = images(step, 4);
            let numbers = normalization.apply(&images, 784);
            losses.push(plain.step(Feed::new(&numbers, &labels), 0.01).unwrap().loss.to_bits());
        }
        let numbers = (losses, plain.weights_sha256().unwrap());
        assert_eq!(direct(&bytes_of(model, passes)), numbers, "{model} {storage:?}");
    }
}

fn bytes_of(model: &str, passes: Passes) -> Setup<'_> {
    Setup { passes, ..bytes("none", model) }
}

/// Every policy, over bytes, staged: the bits of `none` with the same algorithms, and no byte beyond the plan.
#[test]
fn no_policy_changes_a_bit_of_a_staged_run() {
    for (policy, model) in
        [("all-m", "vgg-small"), ("conv-m", "resnet-small"), ("baseline-m", "vgg-small"), ("none-m", "vgg-small")]
    {
        let setup = Setup { staging: true, ..bytes(policy, model) };
        let mut trainer = trainer(&setup).unwrap();
        let found = staged(&setup, &mut trainer);
        assert_eq!(found, direct(&bytes("none-m", model)), "{model} {policy}");
        let (planned, measured) = (trainer.peak_bytes(Space::Device), trainer.measured_peak().unwrap());
        assert!(measured <= planned && measured + 256 >= planned, "{policy}: planned {planned}, measured {measured}");
    }
}

/// At the floor of `hybrid` and `checkpoint` and a little above, where the normalised image may be made again from its bytes.
#[test]
fn a_budget_counts_the_second_batch() {
    for (policy, model) in [("hybrid", "resnet-small"), ("checkpoint", "vgg-small"), ("dyn", "vgg-small")] {
        let setup = |staging, budget| Setup { staging, budget, ..bytes(policy, model) };
        let floor = |staging| match trainer(&setup(staging, Some(1))) {
            Err(TrainError::Plan(PlanError::Infeasible(refusal))) => refusal.floor,
            other => panic!("a budget of one byte must be refused, got {}", other.map(|_| "a trainer").unwrap_err()),
        };
        let least = floor(true);
        // The batch and its labels, on 256 bytes.
        let second = (4u64 * 784).next_multiple_of(256) + 4 * 4;
        let more = least.abs_diff(floor(false));
        assert!(more >= second - 256 && more <= second + 512, "{policy}: {more} bytes for a batch of {second}");
        for budget in [least, least + 100_000] {
            let setup = setup(true, Some(budget));
            let mut trainer = trainer(&setup).unwrap();
            let (losses, _) = staged(&setup, &mut trainer);
            let (planned, measured) = (trainer.peak_bytes(Space::Device), trainer.measured_peak().unwrap());
            assert!(measured <= planned && planned <= budget, "{policy}: {measured}, {planned}, {budget}");
            let algos_from = Some((*trainer.planned().schedule).clone());
            assert_eq!(losses, direct(&Setup { algos_from, ..bytes("none", model) }).0, "{policy} in {budget}");
        }
        assert!(trainer(&setup(true, Some(least - 1))).is_err(), "{policy}: one byte below the floor");
    }
}

/// A last partial batch and evaluations share the room of the full batch.
#[test]
fn a_staged_batch_may_be_smaller_and_outlives_an_evaluation() {
    let setup = || Setup { staging: true, partial: vec![3], eval: vec![2], ..bytes("all", "vgg-small") };
    let run = |ahead: bool| {
        let mut trainer = trainer(&setup()).unwrap();
        let [(full, full_labels), (part, part_labels)] = [images(0, 4), images(5, 3)];
        let loaded = trainer.load(Feed::new(&full, &full_labels)).unwrap();
        let mut running = trainer.begin_step(loaded, 0.01).unwrap();
        let next = ahead.then(|| running.stage(Feed::new(&part, &part_labels)).unwrap());
        let first = running.finish().unwrap().loss;
        let mut sum = EvaluationSum::default();
        let (test, test_labels) = images(9, 2);
        trainer.evaluate_batch(Feed::new(&test, &test_labels), &mut sum).unwrap();
        let second = match next {
            Some(next) => trainer.load_staged(next).unwrap(),
            None => trainer.load(Feed::new(&part, &part_labels)).unwrap(),
        };
        let second = trainer.step_loaded(second, 0.01).unwrap().loss;
        ([first, second, sum.result().unwrap().loss].map(f64::to_bits), trainer.weights_sha256().unwrap())
    };
    assert_eq!(run(true), run(false));
}

/// What is staged again takes the place of what was; a step that nobody waits for has ended all the same.
#[test]
fn the_batch_staged_last_is_loaded() {
    let setup = Setup { staging: true, ..bytes("all", "vgg-small") };
    let [(a, la), (b, lb)] = [images(0, 4), images(1, 4)];
    let mut twice = trainer(&setup).unwrap();
    let loaded = twice.load(Feed::new(&a, &la)).unwrap();
    let mut running = twice.begin_step(loaded, 0.01).unwrap();
    let _ = running.stage(Feed::new(&a, &la)).unwrap();
    let next = running.stage(Feed::new(&b, &lb)).unwrap();
    drop(running);
    let next = twice.load_staged(next).unwrap();
    let found = twice.step_loaded(next, 0.01).unwrap().loss;
    let mut plain = trainer(&setup).unwrap();
    // The step that was dropped has updated the weights and counts.
    plain.step(Feed::new(&a, &la), 0.01).unwrap();
    assert_eq!(twice.iteration(), 2);
    let expected = plain.step(Feed::new(&b, &lb), 0.01).unwrap().loss;
    assert_eq!(found.to_bits(), expected.to_bits());
}

#[test]
fn images_in_the_wrong_form_are_refused() {
    let (images, labels) = images(0, 4);
    let numbers = vec![0.5; images.len()];
    let mut of_bytes = trainer(&bytes("none", "vgg-small")).unwrap();
    let mut of_numbers = trainer(&Setup::default()).unwrap();
    let message = |refused: Option<TrainError>| refused.expect("refused").to_string();
    let found = message(of_bytes.step(Feed::new(&numbers, &labels), 0.01).err());
    assert!(found.contains("u8[4, 1, 28, 28], found 3136 f32 numbers"), "{found}");
    let found = message(of_numbers.step(Feed::new(&images, &labels), 0.01).err());
    assert!(found.contains("f32[4, 1, 28, 28], found 3136 bytes"), "{found}");
    let found = message(of_bytes.step(Feed::new(&images[1..], &labels), 0.01).err());
    assert!(found.contains("u8[4, 1, 28, 28], found 3135 bytes"), "{found}");
    let found = message(of_bytes.stage(Feed::new(&images, &labels)).err());
    assert!(found.contains("Recipe::staging"), "{found}");
}
