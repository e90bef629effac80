//! Data sets in memory and synthetic ones: reading, padding, refusals.

use vdnn_datasets::{Dataset, Error, Normalization, Source, Split, Synthetic};

use crate::small;

fn read(source: &dyn Source, index: usize) -> (Vec<u8>, i32) {
    // Filled in two ways first: whatever is not written shows.
    let [image, other] = [0x5a, 0xa5].map(|left| {
        let mut image = vec![left; source.n_elements()];
        (source.read(index, &mut image).unwrap(), image)
    });
    assert_eq!(image, other);
    (image.1, image.0)
}

/// As numbers.
fn normalised(source: &dyn Source, index: usize) -> Vec<f32> {
    let [_, height, width] = source.shape();
    source.normalization().apply(&read(source, index).0, height * width)
}

fn two_channels() -> Result<Dataset, Error> {
    let images = vec![0, 51, 102, 255, 255, 0, 0, 0]; // [1, 2, 2, 2]
    let normalization = Normalization { mean: vec![0.2, 0.5], std: vec![0.5, 0.25] };
    Dataset::new("two", Split::Test, images, vec![0], [2, 2, 2], vec!["only".into()], normalization)
}

#[test]
fn each_channel_has_its_own_normalisation() {
    let source = two_channels().unwrap();
    assert_eq!(read(&source, 0), (vec![0, 51, 102, 255, 255, 0, 0, 0], 0));
    let image = normalised(&source, 0);
    let expected = [-0.4, 0.0, 0.4, 1.6, 2.0, -2.0, -2.0, -2.0];
    image.iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-6, "{image:?}"));
    // Of a batch the channels come in turn.
    let two = [read(&source, 0).0, read(&source, 0).0].concat();
    assert_eq!(source.normalization().apply(&two, 4), [image.clone(), image].concat());
}

#[test]
fn measuring_takes_each_channel_by_itself() {
    let measured = two_channels().unwrap().measure();
    // Channel 0: 0, 51, 102, 255; channel 1: 255, 0, 0, 0.
    assert!((measured.mean[0] - 0.4).abs() < 1e-6 && (measured.mean[1] - 0.25).abs() < 1e-6, "{measured:?}");
    assert!((measured.std[0] - 0.14f32.sqrt()).abs() < 1e-6, "{measured:?}");
    assert!((measured.std[1] - 0.1875f32.sqrt()).abs() < 1e-6, "{measured:?}");
}

#[test]
fn padding_centres_and_fills_with_black() {
    let padded = small(8).with_image_size(5).unwrap(); // [2, 3] in [5, 5]
    assert_eq!(padded.shape(), [1, 5, 5]);
    let (image, label) = read(&padded, 7);
    assert_eq!(label, 1);
    let inside = |y: usize, x: usize| (1..3).contains(&y) && (1..4).contains(&x);
    for (i, value) in image.iter().enumerate() {
        let expected = if inside(i / 5, i % 5) { 7 } else { 0 };
        assert_eq!(*value, expected, "at {i}");
    }
    let image = normalised(&two_channels().unwrap().with_image_size(3).unwrap(), 0);
    assert_eq!((image[8], image[17]), (-0.4, -2.0)); // corners, one per channel
}

#[test]
fn a_smaller_image_size_is_refused() {
    let error = small(1).with_image_size(2).unwrap_err();
    assert!(matches!(error, Error::ImageSizeTooSmall { asked: 2, source_size: [2, 3], .. }), "{error}");
    assert!(small(1).with_image_size(3).is_ok());
}

#[test]
fn contradictions_are_refused() {
    let new = |images: Vec<u8>, labels: Vec<i32>, std: Vec<f32>| {
        let normalization = Normalization { mean: vec![0.0; std.len()], std };
        Dataset::new("bad", Split::Train, images, labels, [1, 2, 2], vec!["a".into()], normalization).unwrap_err()
    };
    assert!(matches!(new(vec![0; 7], vec![0], vec![1.0]), Error::Inconsistent { .. }));
    assert!(matches!(new(vec![], vec![], vec![1.0]), Error::Inconsistent { .. }));
    assert!(matches!(new(vec![0; 4], vec![0, 0], vec![1.0]), Error::CountMismatch { images: 1, labels: 2, .. }));
    assert!(matches!(new(vec![0; 4], vec![1], vec![1.0]), Error::LabelOutOfRange { label: 1, .. }));
    assert!(matches!(new(vec![0; 4], vec![-1], vec![1.0]), Error::LabelOutOfRange { label: -1, .. }));
    assert!(matches!(new(vec![0; 4], vec![0], vec![0.0]), Error::Inconsistent { .. }));
    assert!(matches!(new(vec![0; 4], vec![0], vec![1.0, 1.0]), Error::Inconsistent { .. }));
}

#[test]
fn synthetic_images_are_a_function_of_seed_and_index() {
    let make = |seed| Synthetic::new(50, [3, 9, 7], 10, seed).unwrap();
    let (a, b, other) = (make(1), make(1), make(2));
    assert_eq!(read(&a, 3), read(&b, 3));
    assert_eq!(read(&a, 3), read(&a, 3));
    assert_ne!(read(&a, 3).0, read(&a, 4).0);
    assert_ne!(read(&a, 3).0, read(&other, 3).0);
}

#[test]
fn synthetic_images_have_mean_0_and_variance_1_and_all_labels() {
    let source = Synthetic::new(200, [3, 32, 32], 10, 5).unwrap();
    let (mut sum, mut squares, mut seen) = (0.0, 0.0, [0; 10]);
    for index in 0..source.len() {
        let (image, label) = (normalised(&source, index), read(&source, index).1);
        seen[label as usize] += 1;
        sum += image.iter().map(|&x| f64::from(x)).sum::<f64>();
        squares += image.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
    }
    let n = (source.len() * source.n_elements()) as f64;
    assert!((sum / n).abs() < 0.01, "{}", sum / n); // 7 standard errors
    assert!((squares / n - 1.0).abs() < 0.01, "{}", squares / n);
    assert!(seen.iter().all(|&count| count > 5), "{seen:?}");
}

#[test]
fn synthetic_bits_stay_the_same() {
    let (image, label) = read(&Synthetic::new(8, [1, 2, 3], 1000, 42).unwrap(), 7);
    assert_eq!((image, label), (GOLDEN_IMAGE.to_vec(), GOLDEN_LABEL));
}

/// From the same arithmetic written in Python.
const GOLDEN_IMAGE: [u8; 6] = [166, 179, 240, 138, 185, 134];
const GOLDEN_LABEL: i32 = 578;

#[test]
fn synthetic_refuses_nothing_and_too_much() {
    for (len, shape, n_classes) in [
        (0, [1, 2, 2], 10),
        (1 << 40, [1, 2, 2], 10),
        (5, [1, 0, 2], 10),
        (5, [1, 2, 2], 0),
        (5, [usize::MAX, 2, 2], 10),
        (5, [1, 2, 2], 1 << 30),
    ] {
        let result = Synthetic::new(len, shape, n_classes, 0);
        assert!(matches!(result, Err(Error::BadOption { .. })), "{len} {shape:?} {n_classes}");
    }
}
