//! Different algorithms compute the same thing up to rounding. What training makes of rounding is another matter: a ReLU
//! or a maximum that turns on a last digit moves later losses, and plain f32 loops leave f64's losses as soon as any other
//! f32 algorithm does (docs/decisions/0013). So whole runs are compared in f64, where nothing turns, and f32 by steps from
//! equal weights.

use crate::setup::{Setup, feed_pixels, run, trainer};
use vdnn_datasets::fashion_mnist_sample;
use vdnn_tensor::DType;
use vdnn_train::Feed;
use vdnn_train::Trainer;

const ALGORITHMS: [&str; 5] = ["direct", "tiles", "im2col", "winograd2", "winograd4"];

/// A usual rate, and one at which rounding is magnified soon.
fn usual(model: &str) -> Setup<'_> {
    Setup { model, policy: "none-p", batch: 16, learning_rate: 0.02, ..Setup::default() }
}

fn worst(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs() / b.abs()).fold(0.0, f64::max)
}

/// Twenty steps on their own: the fastest algorithms, those without workspace (plain loops), and each other one alone.
#[test]
fn groups_of_algorithms_train_alike() {
    for model in ["vgg-small", "resnet-small"] {
        let setup = || Setup { dtype: DType::F64, ..usual(model) };
        let planned = trainer(&setup()).unwrap().planned().clone();
        let fastest = run(&setup());
        let mut curves = vec![("without workspace", run(&Setup { policy: "none-m", ..setup() }))];
        for name in &ALGORITHMS[1..] {
            let outcome = run(&Setup { algos_from: Some(planned.with_algorithm(name)), ..setup() });
            assert!(outcome.schedule.algorithms.iter().any(|used| used == name), "{model} has no use for {name}");
            curves.push((name, outcome));
        }
        for (name, outcome) in &curves {
            let difference = worst(&outcome.losses(), &fastest.losses());
            assert!(difference <= 1e-12, "{model}: {name} and the fastest differ by {difference:.1e}");
        }
        assert_ne!(curves[0].1.bits(), fastest.bits(), "{model}: the groups must differ in algorithms");
    }
}

/// Two steps of f32 from the same weights, at every fifth step of a run: the first loss shows the forward algorithms, the
/// second the gradients and the update.
#[test]
fn every_algorithm_takes_the_same_step() {
    let data = fashion_mnist_sample().unwrap().train;
    let step = |trainer: &mut Trainer, step: u64| {
        let (images, labels) = feed_pixels(&data, step, 16);
        trainer.step(Feed::new(&images, &labels), usual("").learning_rate).unwrap().loss
    };
    for model in ["vgg-small", "resnet-small"] {
        let mut leader = trainer(&usual(model)).unwrap();
        let (mut states, mut losses) = (Vec::new(), Vec::new());
        for at in 0..20 {
            if at % 5 == 0 {
                states.push((at, leader.tensors().unwrap()));
            }
            losses.push(step(&mut leader, at));
        }
        for name in ALGORITHMS {
            let algos_from = Some(leader.planned().with_algorithm(name));
            let mut other = trainer(&Setup { algos_from, ..usual(model) }).unwrap();
            assert!(
                other.planned().schedule.algorithms.iter().any(|used| used == name),
                "{model} has no use for {name}"
            );
            for (at, state) in &states {
                state.iter().for_each(|(name, _, tensor)| other.set_tensor(name, tensor).unwrap());
                other.set_iteration(*at);
                for (later, limit) in [(0, 1e-6), (1, 1e-4)] {
                    let loss = step(&mut other, at + later);
                    let difference = worst(&[loss], &[losses[(at + later) as usize]]);
                    assert!(difference <= limit, "{model}, {name}, {later} after step {at}: {difference:.1e}");
                }
            }
        }
    }
}
