//! Batches that are split: bits depend on no policy, losses are those of the whole batch, and the floor is lower.

use crate::setup::{Outcome, Setup, feed_pixels, run, trainer};
use vdnn_datasets::fashion_mnist_sample;
use vdnn_graph::ValueId;
use vdnn_graph::passes::{Passes, SplitBatch};
use vdnn_layers::{
    Conv2d, Flatten, Layer, LayerError, Linear, LocalResponseNorm, MaxPool2d, Net, NetOptions, Relu, concat,
};
use vdnn_memory::PlanError;
use vdnn_models::Options as ModelOptions;
use vdnn_tensor::DType;
use vdnn_train::{BuildError, EvaluationSum, Feed, SplitError, TrainError};

/// Branches without batch statistics; everything else by its name.
fn network(model: &str, options: &ModelOptions) -> Result<Net, BuildError> {
    if model != "branches" {
        return vdnn_models::build(model, options).map_err(Into::into);
    }
    let ModelOptions { batch_size, mode, seed, passes, dtype, split_batch, .. } = options.clone();
    let image = [1, 28, 28];
    let options = NetOptions { batch_size, image, mode, seed, passes, dtype, split_batch, ..NetOptions::default() };
    let mut net = Net::new(model, &options)?;
    let image = net.image();
    let x = conv(&mut net, "stem", 8, 3, image)?;
    let x = LocalResponseNorm::new(5).push(&mut net, "lrn", x)?;
    let x = MaxPool2d::new(2, 2).push(&mut net, "pool1", x)?;
    let (one, three) = (conv(&mut net, "one", 4, 1, x)?, conv(&mut net, "three", 8, 3, x)?);
    let pooled = MaxPool2d::new(3, 1).padding(1).push(&mut net, "pool2", x)?;
    let pooled = conv(&mut net, "pooled", 4, 1, pooled)?;
    let x = concat(&mut net, "joined", &[one, three, pooled])?;
    let x = MaxPool2d::new(2, 2).push(&mut net, "pool3", x)?;
    let x = Flatten.push(&mut net, "flatten", x)?;
    let x = Linear::new(16 * 49, 10).push(&mut net, "fc", x)?;
    net.classify(x, 0.0)?;
    Ok(net)
}

fn conv(net: &mut Net, name: &str, out: u64, kernel: u64, x: ValueId) -> Result<ValueId, LayerError> {
    let y = Conv2d::new(net.channels(x), out, kernel).padding(kernel / 2).push(net, name, x)?;
    Relu.push(net, &format!("{name}.relu"), y)
}

fn parts(parts: u64) -> Option<SplitBatch> {
    Some(SplitBatch { parts, at: None })
}

fn at(parts: u64, value: &str) -> Option<SplitBatch> {
    Some(SplitBatch { parts, at: Some(value.to_string()) })
}

fn setup<'a>(model: &'a str, policy: &'a str, split: Option<SplitBatch>) -> Setup<'a> {
    Setup { model, policy, split, network, steps: 6, batch: 8, ..Setup::default() }
}

fn floor(setup: &Setup<'_>) -> u64 {
    match trainer(setup) {
        Err(TrainError::Plan(PlanError::Infeasible(refusal))) => refusal.floor,
        other => panic!("a budget of one byte must be refused, got {}", other.map(|_| "a trainer").unwrap_err()),
    }
}

/// Every policy with the algorithms of one that kept everything.
fn same_bits(setup: impl Fn(&'static str) -> Setup<'static>) -> Outcome {
    let reference = run(&setup("none"));
    for policy in ["none", "baseline", "all", "conv", "dyn", "checkpoint", "hybrid"] {
        let mut setup = Setup { algos_from: Some(reference.schedule.clone()), ..setup(policy) };
        if matches!(policy, "checkpoint" | "hybrid") {
            setup.budget = Some(1);
            let floor = floor(&setup);
            setup.budget = Some(floor + reference.planned.saturating_sub(floor) / 5);
        }
        let outcome = run(&setup);
        let name = format!("{} {policy}", setup.model);
        assert_eq!(outcome.bits(), reference.bits(), "{name}");
        assert!(outcome.measured <= outcome.planned, "{name}");
        assert!(setup.budget.is_none_or(|budget| outcome.planned <= budget), "{name}");
        assert!(outcome.offloads() || !matches!(policy, "all" | "conv"), "{name}");
    }
    reference
}

#[test]
fn bits_are_the_same_under_every_policy() {
    for (model, split) in [("vgg-small", parts(3)), ("branches", at(3, "joined")), ("branches", parts(2))] {
        let outcome = same_bits(|policy| setup(model, policy, split.clone()));
        assert!(outcome.schedule.nodes.iter().any(|name| name.ends_with(".mb1.weight_grad")), "{model}");
    }
}

#[test]
fn bits_are_the_same_under_every_policy_in_half_precision() {
    for storage in [DType::BF16, DType::F16] {
        let passes = Passes { fuse: true, storage: Some(storage), ..Passes::NONE };
        same_bits(|policy| Setup { passes, ..setup("branches", policy, at(2, "joined")) });
    }
}

/// In f64 to rounding, at every step.
#[test]
fn losses_are_those_of_the_whole_batch() {
    for (model, value) in [("vgg-small", "features.4"), ("branches", "joined")] {
        let losses = |split| run(&Setup { dtype: DType::F64, ..setup(model, "none", split) }).losses();
        let (whole, split) = (losses(None), losses(at(3, value)));
        assert!(whole.iter().zip(&split).all(|(a, b)| (a - b).abs() < 1e-11 * a.abs()), "{model}: {whole:?} {split:?}");
        assert_ne!(whole[0], whole[5]);
    }
}

#[test]
fn one_part_is_the_whole_batch() {
    let whole = run(&setup("vgg-small", "none", None));
    let one = run(&setup("vgg-small", "none", parts(1)));
    assert_eq!(whole.bits(), one.bits());
    assert_eq!(whole.schedule.to_text(), one.schedule.to_text());
}

/// The more parts the lower the floor, and training at the floor keeps it.
#[test]
fn the_floor_is_lower_in_more_parts() {
    for model in ["vgg-small", "branches"] {
        let setup = |split| Setup { batch: 32, steps: 3, ..setup(model, "hybrid", split) };
        let floors = [None, parts(2), parts(4)].map(|split| floor(&Setup { budget: Some(1), ..setup(split) }));
        assert!(floors[2] < floors[1] && floors[1] < floors[0], "{model}: {floors:?}");
        let outcome = run(&Setup { budget: Some(floors[2]), ..setup(parts(4)) });
        assert!(outcome.planned <= floors[2] && outcome.measured <= outcome.planned, "{model}");
        let algos_from = Some(outcome.schedule.clone());
        let kept = run(&Setup { policy: "none", algos_from, ..setup(parts(4)) });
        assert_eq!(outcome.bits(), kept.bits(), "{model}");
    }
}

/// Fewer samples than parts in a last batch, and evaluation, which is split as well where that helps.
#[test]
fn smaller_batches_are_split_into_fewer_parts() {
    let data = fashion_mnist_sample().unwrap().train;
    let results = ["none-m", "all-m"].map(|policy| {
        let setup = Setup { partial: vec![3, 1], eval: vec![5, 2], ..setup("vgg-small", policy, parts(4)) };
        let mut trainer = trainer(&setup).unwrap();
        let mut losses = Vec::new();
        for (step, batch) in [8, 3, 1].into_iter().enumerate() {
            let (images, labels) = feed_pixels(&data, step as u64, batch);
            losses.push(trainer.step(Feed::new(&images, &labels), 0.01).unwrap().loss.to_bits());
        }
        let mut sum = EvaluationSum::default();
        for batch in [5, 2] {
            let (images, labels) = feed_pixels(&data, 3, batch);
            trainer.evaluate_batch(Feed::new(&images, &labels), &mut sum).unwrap();
        }
        (losses, sum.result().unwrap().loss.to_bits(), trainer.weights_sha256().unwrap())
    });
    assert!(results[0].0.iter().all(|&bits| f64::from_bits(bits).is_finite()));
    assert_eq!(results[0], results[1]);
}

fn refused(setup: &Setup<'_>) -> (Option<SplitError>, String) {
    match trainer(setup) {
        Err(error) => {
            let message = error.to_string();
            (if let TrainError::Split(split) = error { Some(split) } else { None }, message)
        }
        Ok(_) => panic!("expected a refusal"),
    }
}

#[test]
fn what_cannot_be_split_is_refused_by_name() {
    for wrong in [0, 9] {
        let (error, message) = refused(&setup("vgg-small", "none", parts(wrong)));
        assert_eq!(error, Some(SplitError::Parts { parts: wrong, batch: 8 }));
        assert!(message.contains("expected 1 to 8 parts of a batch of 8"), "{message}");
    }
    let (error, message) = refused(&setup("resnet-small", "none", parts(2)));
    assert!(matches!(error, Some(SplitError::NoGain { stop: Some(_), .. })), "{message}");
    assert!(message.contains("(batch_norm_stats), whose statistics are of the whole batch"), "{message}");
    let (error, message) = refused(&setup("vgg-small", "none", at(2, "feature.4")));
    assert!(matches!(error, Some(SplitError::UnknownValue { .. })), "{message}");
    assert!(message.contains("\"feature.4\"; the nearest are features.4"), "{message}");
    assert!(message.contains("features.9"), "{message}");
    let (_, message) = refused(&setup("vgg-small", "none", at(2, "loss")));
    assert!(message.contains("expected a value in front of "), "{message}");
}
