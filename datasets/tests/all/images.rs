//! A folder of JPEGs: read as Pillow reads them, by any number of threads, and refused by name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jpeg_encoder::{ColorType, Encoder};
use tempfile::TempDir;
use vdnn_datasets::registry::{self, OpenOptions};
use vdnn_datasets::{Error, ImageFolder, LastBatch, Loader, LoaderOptions, Order, Sampler, Source};

/// A JPEG of one colour.
fn jpeg(path: &Path, [height, width]: [u16; 2], colour: [u8; 3]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let pixels = colour.repeat(usize::from(height) * usize::from(width));
    Encoder::new_file(path, 95).unwrap().encode(&pixels, width, height, ColorType::Rgb).unwrap();
}

/// Two classes of five train images each and three test images, each of a colour and a size of its own.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (part, count) in [("train", 5), ("val", 3)] {
        for (class, red) in [("apple", 200), ("brick", 90)] {
            for n in 0..count {
                let path = folder.path().join(part).join(class).join(format!("{n}.jpg"));
                jpeg(&path, [30 + 7 * n, 64 - 5 * n], [red, 20 * n as u8, 128]);
            }
        }
    }
    folder
}

fn read(source: &dyn Source, index: usize) -> (Vec<u8>, i32) {
    let mut image = vec![0x5a; source.n_elements()];
    let label = source.read(index, &mut image).unwrap();
    (image, label)
}

#[test]
fn pictures_are_pillows() {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, size) in [("wide", 28), ("high", 56), ("grey", 32), ("small", 28)] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("class")).unwrap();
        let file = format!("{name}.jpg");
        std::fs::copy(golden.join(&file), folder.path().join("class").join(&file)).unwrap();
        let source = ImageFolder::open(folder.path(), size).unwrap();
        let (found, label) = read(&source, 0);
        let expected = std::fs::read(golden.join(format!("{name}.{size}.rgb"))).unwrap();
        assert_eq!((found.len(), label), (expected.len(), 0));
        let difference: Vec<u8> = found.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).collect();
        let mean = difference.iter().map(|&d| f64::from(d)).sum::<f64>() / difference.len() as f64;
        // Decoders round differently, most where colours are stored at half the resolution.
        assert!(mean < 0.5 && difference.iter().all(|&d| d <= 6), "{name}: mean {mean}, {:?}", difference.iter().max());
    }
}

#[test]
fn labels_follow_the_alphabet_and_files_their_names() {
    let folder = folder();
    std::fs::write(folder.path().join("train/apple/notes.txt"), "no picture").unwrap();
    let splits = ImageFolder::open_splits(folder.path(), 32).unwrap();
    assert_eq!((splits.train.len(), splits.test.len()), (10, 6));
    assert_eq!(splits.train.classes(), ["apple", "brick"]);
    assert_eq!(splits.train.shape(), [3, 32, 32]);
    for index in 0..10 {
        let (image, label) = read(&splits.train, index);
        assert_eq!(label, (index / 5) as i32);
        let colour = [[200, 90][index / 5], 20 * (index % 5) as u8, 128];
        for (plane, byte) in image.chunks(32 * 32).zip(colour) {
            assert!(plane.iter().all(|found| found.abs_diff(byte) <= 3), "image {index}: {} for {byte}", plane[0]);
        }
    }
}

#[test]
fn loaders_decode_in_any_number_of_threads() {
    let folder = folder();
    let options = OpenOptions { folder: Some(folder.path()), image_size: Some(24), ..OpenOptions::default() };
    let train = registry::open("jpeg-folder", &options).unwrap().train;
    let batches = |workers| {
        let sampler = Sampler::new(train.len(), 4, Order::Shuffled { seed: 5 }, LastBatch::Keep).unwrap();
        let options = LoaderOptions { workers, epochs: 2, ..LoaderOptions::default() };
        let loader = Loader::new(Arc::clone(&train), sampler, &options).unwrap();
        loader.map(|batch| batch.map(|b| (b.images.clone(), b.labels.clone())).unwrap()).collect::<Vec<_>>()
    };
    let one = batches(1);
    assert_eq!(one.iter().map(|(_, labels)| labels.len()).collect::<Vec<_>>(), [4, 4, 2, 4, 4, 2]);
    assert!([0, 3].into_iter().all(|workers| batches(workers) == one));
}

#[test]
fn a_file_that_is_no_jpeg_is_named_when_it_is_read() {
    let folder = folder();
    let bad = folder.path().join("train/apple/2.jpg");
    let whole = std::fs::read(&bad).unwrap();
    for bytes in [b"a page that says 404".to_vec(), Vec::new(), whole[..whole.len() / 2].to_vec()] {
        std::fs::write(&bad, &bytes).unwrap();
        let source = ImageFolder::open(&folder.path().join("train"), 24).unwrap();
        let mut image = vec![0; source.n_elements()];
        // A decoder may fill in what is missing at the end, but it never writes elsewhere.
        match source.read(2, &mut image) {
            Err(Error::Sample { index: 2, reason }) => {
                assert!(reason.contains("2.jpg") && reason.contains("JPEG"), "{reason}")
            }
            Err(other) => panic!("{other}"),
            Ok(label) => assert!(label == 0 && !bytes.is_empty() && bytes[0] == 0xff),
        }
        assert_eq!(read(&source, 3).1, 0, "the others are read as before");
    }
}

#[test]
fn folders_without_images_are_named() {
    let folder = folder();
    let open = || ImageFolder::open_splits(folder.path(), 24).unwrap_err().to_string();
    std::fs::create_dir(folder.path().join("val/crate")).unwrap();
    assert!(open().contains("val/crate") && open().contains("ending in .jpg"), "{}", open());
    jpeg(&folder.path().join("val/crate/0.jpg"), [20, 20], [1, 2, 3]);
    assert!(open().contains("only one of them has crate"), "{}", open());
    std::fs::remove_dir_all(folder.path().join("val")).unwrap();
    assert!(open().contains("no JPEGs at") && open().contains("/test"), "{}", open());
    let nowhere = registry::open("jpeg-folder", &OpenOptions::default()).map(|_| ()).unwrap_err();
    assert!(nowhere.to_string().contains("--data-dir"), "{nowhere}");
    assert!(matches!(ImageFolder::open(folder.path(), 0), Err(Error::BadOption { .. })));
}
