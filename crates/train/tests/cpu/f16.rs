//! Training in f16: steps whose gradients overflow are skipped and seen, the scale finds its place, bits depend on no policy,
//! and a run that no scale can save ends.

use crate::mixed::network;
use crate::setup::{Outcome, Setup, feed_pixels, run, trainer};
use std::path::Path;
use vdnn_datasets::fashion_mnist_sample;
use vdnn_graph::passes::Passes;
use vdnn_memory::PlanError;
use vdnn_tensor::{DType, HostTensor};
use vdnn_train::{Checkpoint, Feed, INITIAL_LOSS_SCALE, LossScale, RunState, StepResult, TrainError, Trainer};

const F16: Passes = Passes { fuse: true, storage: Some(DType::F16), ..Passes::NONE };

fn setup<'a>(model: &'a str, policy: &'a str) -> Setup<'a> {
    Setup { model, policy, passes: F16, network, steps: 8, ..Setup::default() }
}

/// Networks without dropout, whose masks differ with the iteration.
const NO_DROPOUT: [&str; 2] = ["vgg-norm", "resnet-small"];

fn steps(trainer: &mut Trainer, setup: &Setup<'_>, range: std::ops::Range<u64>) -> Result<Vec<StepResult>, TrainError> {
    let data = fashion_mnist_sample().unwrap().train;
    let mut step = |step| {
        let (images, labels) = feed_pixels(&data, step, setup.batch);
        trainer.step(Feed::new(&images, &labels), setup.learning_rate)
    };
    range.map(&mut step).collect()
}

fn scalar(value: f32) -> HostTensor {
    HostTensor::from_bytes([1], DType::F32, value.to_le_bytes().to_vec()).unwrap()
}

/// From the largest scale, at which dlogits are beyond 65504: halved and skipped until gradients fit, nothing changed until then,
/// then the losses of the f32 run as far as half precision goes.
#[test]
fn a_scale_that_is_far_too_large_falls_and_training_starts() {
    for model in NO_DROPOUT {
        // Slow enough that gradients do not grow out of f16 again.
        let setup = Setup { learning_rate: 1e-3, ..setup(model, "none") };
        let mut trainer = trainer(&setup).unwrap();
        assert_eq!(trainer.loss_scale().unwrap(), Some(LossScale { scale: INITIAL_LOSS_SCALE, skipped_steps: 0 }));
        trainer.set_tensor("loss_scale", &scalar(16_777_216.0)).unwrap();
        let (mut scale, mut skipped, start) = (16_777_216.0, 0, trainer.weights_sha256().unwrap());
        // The first batch again and again: nothing is learnt from it as long as steps are skipped.
        loop {
            let result = steps(&mut trainer, &setup, 0..1).unwrap()[0];
            if !result.skipped {
                assert_eq!(result.loss_scale, Some(LossScale { scale, skipped_steps: skipped }), "{model}");
                break;
            }
            (scale, skipped) = (scale / 2.0, skipped + 1);
            assert_eq!(result.loss_scale, Some(LossScale { scale, skipped_steps: skipped }), "{model}");
            assert_eq!(trainer.weights_sha256().unwrap(), start, "{model}: a skipped step changes no parameter");
        }
        assert!(skipped >= 2 && scale >= 1024.0, "{model}: {skipped} steps skipped, then {scale}");
        assert_ne!(trainer.weights_sha256().unwrap(), start);
        let results = steps(&mut trainer, &setup, 1..8).unwrap();
        // The scale is the largest there can be: a step may still be too much for it, and costs little at this learning rate.
        assert!(results.iter().filter(|result| result.skipped).count() <= 1, "{model}: {results:?}");
        let losses: Vec<f64> = results.iter().map(|result| result.loss).collect();
        let f32s = run(&Setup { passes: Passes::NONE, ..setup }).losses();
        let worst = losses.iter().zip(&f32s[1..]).map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max);
        assert!(worst > 0.0 && worst < 0.03, "{model}: f16 leaves f32 by {worst}");
    }
}

/// Momentum starts at the first step that is taken: skipped steps before it leave no trace in the weights.
#[test]
fn skipped_first_steps_leave_the_weights_of_a_run_without_them() {
    for model in NO_DROPOUT {
        let setup = setup(model, "none");
        let trained = |scale: f64| {
            let mut trainer = trainer(&setup).unwrap();
            trainer.set_tensor("loss_scale", &scalar(scale as f32)).unwrap();
            while steps(&mut trainer, &setup, 0..1).unwrap()[0].skipped {}
            steps(&mut trainer, &setup, 1..4).unwrap();
            (trainer.iteration(), trainer.loss_scale().unwrap().unwrap(), trainer.weights_sha256().unwrap())
        };
        let (iterations, late, weights) = trained(16_777_216.0);
        assert!(late.skipped_steps > 0 && iterations == 4 + late.skipped_steps, "{model}");
        let (_, early, expected) = trained(late.scale);
        assert_eq!((early.scale, early.skipped_steps), (late.scale, 0), "{model}");
        assert_eq!(weights, expected, "{model}");
    }
}

fn floor(setup: &Setup<'_>) -> u64 {
    match trainer(setup) {
        Err(TrainError::Plan(PlanError::Infeasible(refusal))) => refusal.floor,
        other => panic!("a budget of one byte must be refused, got {}", other.map(|_| "a trainer").unwrap_err()),
    }
}

#[test]
fn f16_bits_depend_on_no_policy_and_no_number_of_threads() {
    for model in ["vgg-small", "resnet-small"] {
        let kept: Outcome = run(&setup(model, "none"));
        for policy in ["all", "conv", "dyn", "hybrid"] {
            let mut setup = Setup { algos_from: Some(kept.schedule.clone()), ..setup(model, policy) };
            if matches!(policy, "dyn" | "hybrid") {
                setup.budget = Some(1);
                let floor = floor(&setup);
                setup.budget = Some(floor + kept.planned.saturating_sub(floor) / 4);
            }
            let outcome = run(&setup);
            assert_eq!(outcome.bits(), kept.bits(), "{model} {policy}");
            assert!(outcome.measured <= outcome.planned, "{model} {policy}");
            assert!(outcome.offloads() || matches!(policy, "dyn" | "hybrid"), "{model} {policy}");
        }
        let alone = run(&Setup { threads: 1, ..setup(model, "none") });
        assert_eq!(alone.bits(), kept.bits(), "{model}");
    }
}

/// The scale and its counters are states like others: a run that is cut in two is the run in one.
#[test]
fn a_checkpoint_holds_the_scale() {
    let setup = setup("resnet-small", "none");
    let begin = || {
        let mut trainer = trainer(&setup).unwrap();
        trainer.set_tensor("loss_scale", &scalar(16_777_216.0)).unwrap();
        trainer
    };
    let mut whole = begin();
    steps(&mut whole, &setup, 0..16).unwrap();
    let mut first = begin();
    steps(&mut first, &setup, 0..3).unwrap();
    let state = RunState { model: "resnet-small".into(), iteration: 3, epoch: 0, batch: 3, seed: 7 };
    let saved = Checkpoint::take(&mut first, state).unwrap();
    let mut second = trainer(&setup).unwrap();
    saved.restore(&mut second, Path::new("memory")).unwrap();
    assert_eq!(second.loss_scale().unwrap(), first.loss_scale().unwrap());
    steps(&mut second, &setup, 3..16).unwrap();
    assert_eq!(second.loss_scale().unwrap(), whole.loss_scale().unwrap());
    assert_eq!(second.weights_sha256().unwrap(), whole.weights_sha256().unwrap());
    // In other arithmetic the scale is passed over.
    let mut wide = trainer(&Setup { passes: Passes::NONE, ..self::setup("resnet-small", "none") }).unwrap();
    saved.restore(&mut wide, Path::new("memory")).unwrap();
}

/// A scale of 0 would make no numbers of finite gradients, unseen by the check.
#[test]
fn a_checkpoint_with_a_scale_that_no_run_has_is_refused() {
    let setup = setup("resnet-small", "none");
    let mut trainer = trainer(&setup).unwrap();
    let state = RunState { model: "resnet-small".into(), iteration: 3, epoch: 0, batch: 3, seed: 7 };
    let saved = Checkpoint::take(&mut trainer, state).unwrap();
    for (scale, allowed) in [(1.0, true), (16_777_216.0, true), (0.0, false), (-4.0, false), (f32::NAN, false)] {
        let mut changed = saved.clone();
        changed
            .tensors
            .iter_mut()
            .filter(|(name, _)| name == "loss_scale")
            .for_each(|entry| entry.1 = self::scalar(scale));
        let restored = changed.restore(&mut trainer, Path::new("memory"));
        assert_eq!(restored.is_ok(), allowed, "{scale}");
        let words = restored.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(allowed || words.contains("loss_scale: expected a number from 1 to 16777216, found"), "{words}");
    }
    assert_eq!((trainer.loss_scale().unwrap().unwrap().scale, trainer.iteration()), (16_777_216.0, 3));
}

/// Gradients beyond f16 whatever the scale, the loss being finite: the run ends and says what to try, the weights as they were.
#[test]
fn a_run_that_no_scale_can_save_ends() {
    let setup = setup("vgg-small", "none");
    let mut trainer = trainer(&setup).unwrap();
    let data = fashion_mnist_sample().unwrap().train;
    let (images, labels) = feed_pixels(&data, 0, setup.batch);
    // The first weights' gradients are sums over thousands of such pixels, times what the last weights make of dlogits.
    let images: Vec<f32> = images.iter().map(|pixel| pixel * 1e4).collect();
    let tensors = trainer.tensors().unwrap();
    let weights = || tensors.iter().filter(|(name, _, _)| name.ends_with(".weight"));
    for ((name, _, weight), factor) in
        [(weights().next(), 1.0 / 64.0), (weights().next_back(), 64.0)].map(|(w, f)| (w.unwrap(), f))
    {
        let scaled = weight.to_vec::<f32>().unwrap().iter().flat_map(|w| (w * factor).to_le_bytes()).collect();
        let scaled = HostTensor::from_bytes(weight.shape().clone(), DType::F32, scaled).unwrap();
        trainer.set_tensor(name, &scaled).unwrap();
    }
    let before = trainer.weights_sha256().unwrap();
    for step in 0..40 {
        match trainer.step(Feed::new(&images, &labels), setup.learning_rate) {
            Ok(result) => assert!(result.skipped && step < 16, "{step}: {result:?}"),
            Err(error) => {
                assert!(matches!(error, TrainError::LossScale { step: 16, in_a_row: 17, scale: 1.0 }), "{error}");
                break;
            }
        }
    }
    assert_eq!(trainer.weights_sha256().unwrap(), before);
    let loss_scale = trainer.loss_scale().unwrap().unwrap();
    assert_eq!((trainer.iteration(), loss_scale.skipped_steps, loss_scale.scale), (17, 17, 1.0));
}
