//! The embedded sample is what its README says, and the normalisation constants fit it.

use vdnn_datasets::registry::{FASHION_MNIST_SAMPLE, verify};
use vdnn_datasets::{Dataset, Source, fashion_mnist_sample};

fn per_class(dataset: &Dataset) -> Vec<usize> {
    let mut counts = vec![0; dataset.classes().len()];
    dataset.labels().iter().for_each(|&label| counts[label as usize] += 1);
    counts
}

#[test]
fn it_is_balanced() {
    let sample = fashion_mnist_sample().unwrap();
    assert_eq!(sample.train.shape(), [1, 28, 28]);
    assert_eq!(per_class(&sample.train), [1000; 10]);
    assert_eq!(per_class(&sample.test), [200; 10]);
    assert_eq!([sample.train.len(), sample.test.len()], FASHION_MNIST_SAMPLE.n_samples);
}

#[test]
fn its_bytes_are_the_documented_ones() {
    let checks = verify(&FASHION_MNIST_SAMPLE, None).unwrap();
    assert_eq!(checks.len(), 4);
    let readme = include_str!("../../data/README.md");
    for check in checks {
        assert_eq!(check.matches(), Some(true), "{check:?}");
        assert!(readme.contains(&check.found), "data/README.md lacks the sum of {}", check.file);
    }
}

#[test]
fn the_normalisation_fits() {
    let sample = fashion_mnist_sample().unwrap();
    let measured = sample.train.measure();
    // What data/make_sample.py printed for the sample …
    assert!((measured.mean[0] - 0.286_682).abs() < 1e-6, "{measured:?}");
    assert!((measured.std[0] - 0.354_013).abs() < 1e-6, "{measured:?}");
    // … and the constants in use, those of the full train part, are near.
    let used = sample.train.normalization();
    assert!((measured.mean[0] - used.mean[0]).abs() < 1e-3);
    assert!((measured.std[0] - used.std[0]).abs() < 1e-3);
}

#[test]
fn what_is_read_has_mean_0_and_deviation_1() {
    let train = fashion_mnist_sample().unwrap().train;
    let mut image = vec![0; train.n_elements()];
    let (mut sum, mut squares) = (0.0, 0.0);
    for index in 0..train.len() {
        train.read(index, &mut image).unwrap();
        let image = train.normalization().apply(&image, image.len());
        sum += image.iter().map(|&x| f64::from(x)).sum::<f64>();
        squares += image.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
    }
    let n = (train.len() * train.n_elements()) as f64;
    assert!((sum / n).abs() < 3e-3, "{}", sum / n);
    assert!((squares / n - 1.0).abs() < 8e-3, "{}", squares / n);
}

#[test]
fn the_licence_is_there() {
    assert!(include_str!("../../data/LICENSE-FASHION-MNIST").contains("Zalando SE"));
}
