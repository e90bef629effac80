//! Data sets by name.

use tempfile::tempdir;
use vdnn_datasets::Error;
use vdnn_datasets::registry::{FASHION_MNIST, MNIST, OpenOptions, Origin, SYNTHETIC, entries, find, open, verify};

use crate::write_all;

#[test]
fn every_entry_is_found_by_its_name_and_says_something() {
    for entry in entries() {
        assert_eq!(find(entry.name).unwrap().name, entry.name);
        assert!(!entry.description.is_empty() && !entry.advice.is_empty() && !entry.licence.is_empty());
    }
    assert_eq!(find("Fashion_MNIST").unwrap().name, "fashion-mnist");
    assert_eq!(entries()[0].origin, Origin::Embedded, "the default needs no folder");
}

#[test]
fn a_wrong_name_gets_the_nearest_and_all() {
    let message = find("fasion-mnist").unwrap_err().to_string();
    assert!(message.contains("did you mean 'fashion-mnist'?") && message.contains("synthetic"), "{message}");
    let message = find("minst").unwrap_err().to_string();
    assert!(message.contains("did you mean 'mnist'?"), "{message}");
    let error = find("imagenet21k").unwrap_err();
    assert!(matches!(error, Error::UnknownDataset { nearest: None, .. }), "{error}");
}

#[test]
fn the_default_opens_and_pads() {
    let options = OpenOptions { image_size: Some(32), ..OpenOptions::default() };
    let splits = open("fashion-mnist-sample", &options).unwrap();
    assert_eq!(splits.train.shape(), [1, 32, 32]);
    assert_eq!((splits.train.len(), splits.test.len()), (10_000, 2_000));
    assert_eq!(splits.test.classes()[9], "Ankle boot");
    let options = OpenOptions { image_size: Some(24), ..OpenOptions::default() };
    assert!(matches!(open("fashion-mnist-sample", &options).err(), Some(Error::ImageSizeTooSmall { .. })));
}

#[test]
fn a_folder_is_needed_and_read() {
    let error = open("mnist", &OpenOptions::default()).err().unwrap();
    assert!(matches!(error, Error::FolderNeeded { .. }) && error.to_string().contains("--data-dir"), "{error}");
    let folder = tempdir().unwrap();
    write_all(folder.path());
    let options = OpenOptions { folder: Some(folder.path()), ..OpenOptions::default() };
    assert_eq!(open("mnist", &options).unwrap().train.len(), 20);
}

#[test]
fn synthetic_follows_its_options() {
    let splits = open("synthetic", &OpenOptions::default()).unwrap();
    assert_eq!(splits.train.shape(), SYNTHETIC.shape);
    assert_eq!([splits.train.len(), splits.test.len()], SYNTHETIC.n_samples);
    let options = OpenOptions { image_size: Some(64), n_classes: Some(7), n_samples: Some(5), ..Default::default() };
    let splits = open("synthetic", &options).unwrap();
    assert_eq!((splits.train.shape(), splits.train.classes().len()), ([3, 64, 64], 7));
    assert_eq!((splits.train.len(), splits.test.len()), (5, 1));
}

#[test]
fn verifying_compares_with_the_published_sums() {
    let folder = tempdir().unwrap();
    write_all(folder.path());
    let checks = verify(&FASHION_MNIST, Some(folder.path())).unwrap();
    assert_eq!(checks.iter().map(|c| c.matches()).collect::<Vec<_>>(), [Some(false); 4]);
    assert_eq!(checks[0].bytes, 136);
    let checks = verify(&MNIST, Some(folder.path())).unwrap();
    assert_eq!(checks.iter().map(|c| c.matches()).collect::<Vec<_>>(), [None; 4]);
    // printf of the 18 bytes of labels(10) through sha256sum.
    assert_eq!(checks[3].found, LABELS_SHA256);
    assert!(verify(&SYNTHETIC, None).unwrap().is_empty());
    assert!(matches!(verify(&MNIST, None), Err(Error::FolderNeeded { .. })));
}

const LABELS_SHA256: &str = "7fb941263a85687d080a3ba53d246dc51e2cd63316f98fbb8ecdbb54ef081e6c";
