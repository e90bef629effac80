//! Folders and IDX files that are not what they should be, one test per error.

use std::path::Path;

use tempfile::{TempDir, tempdir};
use vdnn_datasets::registry::MNIST;
use vdnn_datasets::{Dataset, Error, Source, Split, Splits, load_folder};

use crate::{gzip, idx, images, labels, write, write_all};

/// A sound folder in which one file is then replaced.
fn folder_with(name: &str, bytes: &[u8]) -> TempDir {
    let folder = tempdir().unwrap();
    write_all(folder.path());
    write(folder.path(), name, bytes);
    folder
}

fn load(folder: &Path) -> Result<Splits<Dataset>, Error> {
    load_folder(&MNIST, folder)
}

/// The error of a sound folder in which one file is replaced; its message must name that file.
fn error_with(name: &str, bytes: &[u8]) -> (Error, String) {
    let folder = folder_with(name, bytes);
    let error = load(folder.path()).unwrap_err();
    let message = error.to_string();
    assert!(message.contains(name), "{message}");
    (error, message)
}

#[test]
fn plain_and_packed_files_load_alike() {
    let plain = tempdir().unwrap();
    write_all(plain.path());
    let packed = tempdir().unwrap();
    for entry in std::fs::read_dir(plain.path()).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{}.gz", entry.file_name().to_str().unwrap());
        write(packed.path(), &name, &gzip(&std::fs::read(entry.path()).unwrap()));
    }
    let (plain, packed) = (load(plain.path()).unwrap(), load(packed.path()).unwrap());
    for (a, b) in [(&plain.train, &packed.train), (&plain.test, &packed.test)] {
        assert_eq!(a.images(), b.images());
        assert_eq!(a.labels(), b.labels());
    }
    assert_eq!(plain.train.len(), 20);
    assert_eq!(plain.test.len(), 10);
    assert_eq!(plain.train.shape(), [1, 3, 2]);
    assert_eq!(plain.train.images()[..7], [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!((plain.train.split(), plain.test.split()), (Split::Train, Split::Test));
}

#[test]
fn content_tells_whether_a_file_is_packed() {
    // Some archives keep the .gz in the name of an unpacked file, and the other way round.
    let folder = folder_with("train-images-idx3-ubyte", &gzip(&images(20)));
    std::fs::remove_file(folder.path().join("t10k-images-idx3-ubyte")).unwrap();
    write(folder.path(), "t10k-images-idx3-ubyte.gz", &images(10));
    assert_eq!(load(folder.path()).unwrap().train.len(), 20);
}

#[test]
fn missing_folder_says_which_files_it_should_hold() {
    let folder = tempdir().unwrap();
    let error = load(&folder.path().join("nowhere")).unwrap_err();
    assert!(matches!(error, Error::FolderMissing { .. }));
    let message = error.to_string();
    for part in ["nowhere", "train-images-idx3-ubyte", "t10k-labels-idx1-ubyte", ".gz", "torchvision"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_file_in_place_of_the_folder() {
    let folder = folder_with("data", b"");
    assert!(matches!(load(&folder.path().join("data")), Err(Error::FolderMissing { .. })));
}

#[test]
fn missing_files_are_named() {
    let folder = tempdir().unwrap();
    write_all(folder.path());
    std::fs::remove_file(folder.path().join("t10k-labels-idx1-ubyte")).unwrap();
    match load(folder.path()).unwrap_err() {
        Error::FilesMissing { missing, looked_for, .. } => {
            assert_eq!(missing, ["t10k-labels-idx1-ubyte"]);
            assert_eq!(looked_for.len(), 4);
        }
        other => panic!("{other}"),
    }
}

#[test]
fn cut_in_the_content() {
    let whole = images(20);
    let (error, _) = error_with("train-images-idx3-ubyte", &whole[..whole.len() - 5]);
    assert!(matches!(error, Error::Truncated { expected: 136, found: 131, .. }), "{error}");
}

#[test]
fn cut_in_the_header_and_empty() {
    let (error, _) = error_with("train-images-idx3-ubyte", &images(20)[..10]);
    assert!(matches!(error, Error::Truncated { expected: 16, found: 10, .. }), "{error}");
    let (error, _) = error_with("train-labels-idx1-ubyte", b"");
    assert!(matches!(error, Error::Truncated { expected: 8, found: 0, .. }), "{error}");
}

#[test]
fn packed_file_cut_anywhere_is_an_error() {
    let packed = gzip(&images(20));
    for len in 2..packed.len() {
        let (error, _) = error_with("train-images-idx3-ubyte", &packed[..len]);
        assert!(matches!(error, Error::Truncated { .. } | Error::Corrupt { .. }), "{len}: {error}");
    }
}

#[test]
fn packed_file_with_a_flipped_bit_is_never_taken_for_other_content() {
    let packed = gzip(&images(20));
    let mut n_harmless = 0;
    for byte in 10..packed.len() {
        let mut damaged = packed.clone();
        damaged[byte] ^= 0x10;
        let folder = folder_with("train-images-idx3-ubyte", &damaged);
        if let Ok(splits) = load(folder.path()) {
            // A bit that only fills a byte up: the content is whole.
            assert_eq!(splits.train.images(), &images(20)[16..], "byte {byte}");
            n_harmless += 1;
        }
    }
    assert!(n_harmless <= 1, "{n_harmless} of {}", packed.len() - 10);
}

#[test]
fn swapped_files_are_mislabelled() {
    let (error, message) = error_with("train-images-idx3-ubyte", &labels(20));
    assert!(matches!(error, Error::Mislabelled { .. }));
    assert!(message.contains("expected images") && message.contains("found labels"), "{message}");
    let (_, message) = error_with("t10k-labels-idx1-ubyte", &images(10));
    assert!(message.contains("expected labels") && message.contains("found images"), "{message}");
}

#[test]
fn no_idx_file_at_all() {
    let (error, message) = error_with("train-images-idx3-ubyte", b"\xff\xd8\xff\xe0 a JPEG, or a page that says 404");
    assert!(matches!(error, Error::WrongMagic { expected: 0x803, found: 0xffd8_ffe0, .. }));
    assert!(message.contains("0x00000803") && message.contains("0xffd8ffe0"), "{message}");
}

#[test]
fn trailing_bytes() {
    let mut file = images(20);
    file.push(0);
    let (error, _) = error_with("train-images-idx3-ubyte", &file);
    assert!(matches!(error, Error::TrailingBytes { expected: 136, .. }));
    let (error, _) = error_with("train-images-idx3-ubyte", &gzip(&file));
    assert!(matches!(error, Error::TrailingBytes { expected: 136, .. }));
    let rubbish_behind_gzip = [gzip(&images(20)), vec![7; 9]].concat();
    let folder = folder_with("train-images-idx3-ubyte", &rubbish_behind_gzip);
    assert!(load(folder.path()).is_err());
}

#[test]
fn empty_and_huge_dimensions() {
    let (error, _) = error_with("train-images-idx3-ubyte", &idx(0x803, &[20, 0, 2], &[]));
    assert!(matches!(error, Error::BadDimensions { ref dims, .. } if dims == &[20, 0, 2]), "{error}");
    let (error, _) = error_with("train-images-idx3-ubyte", &idx(0x803, &[u32::MAX; 3], &[1, 2]));
    assert!(matches!(error, Error::BadDimensions { .. }), "{error}");
    // 2^62 bytes can be announced; they are not allocated on the header's word.
    let (error, _) = error_with("train-images-idx3-ubyte", &idx(0x803, &[1 << 31, 1 << 30, 2], &[1, 2]));
    assert!(matches!(error, Error::Truncated { expected, found: 18, .. } if expected == (1 << 62) + 16), "{error}");
}

#[test]
fn images_and_labels_of_different_number() {
    let (error, _) = error_with("train-labels-idx1-ubyte", &labels(19));
    assert!(matches!(error, Error::CountMismatch { images: 20, labels: 19, .. }), "{error}");
}

#[test]
fn label_out_of_range() {
    let (error, message) = error_with("t10k-labels-idx1-ubyte", &idx(0x801, &[10], &[0, 1, 2, 9, 10, 3, 3, 3, 255, 3]));
    assert!(matches!(error, Error::LabelOutOfRange { index: 4, label: 10, n_classes: 10, .. }), "{error}");
    assert!(message.contains("0 to 9"), "{message}");
}

#[test]
fn parts_of_different_image_size() {
    let folder = folder_with("t10k-images-idx3-ubyte", &idx(0x803, &[10, 2, 3], &[0; 60]));
    let error = load(folder.path()).unwrap_err();
    assert!(matches!(error, Error::ShapeMismatch { train: [1, 3, 2], test: [1, 2, 3], .. }), "{error}");
}

#[test]
fn unreadable_file_is_named() {
    let folder = tempdir().unwrap();
    let error = vdnn_datasets::idx::read(&folder.path().join("gone"), vdnn_datasets::idx::Content::Labels).unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }) && error.to_string().contains("gone"), "{error}");
}
