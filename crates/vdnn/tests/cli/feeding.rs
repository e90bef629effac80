//! How batches reach the device: the same numbers in either form, ahead of their step or before it, from JPEGs as well.

use crate::{TINY, fails, succeeds, text_in};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

#[test]
fn bytes_and_numbers_ahead_or_not_train_to_the_same_weights() {
    let train = |options: &str| succeeds(&format!("{TINY} --epochs 2 --deterministic {options}"));
    let ahead = train("");
    let [before, numbers] = ["--no-staging", "--images numbers"].map(train);
    for other in [&before, &numbers] {
        assert_eq!(other.losses(), ahead.losses());
        assert_eq!(other.text("weights_sha256"), ahead.text("weights_sha256"));
    }
    // The second batch of 16 images and labels, on 256 bytes.
    let second = ahead.number("planned_peak_bytes") - before.number("planned_peak_bytes");
    let batch = f64::from(16 * 3 * 28 * 28);
    assert!((batch..batch + 768.0).contains(&second), "{second} bytes for a batch of {batch}");
    assert!(ahead.number("measured_peak_bytes") <= ahead.number("planned_peak_bytes"));
    assert!(ahead.number("data_wait_ms") >= 0.0);
}

/// One byte below the least budget is refused with it, the second batch counted.
#[test]
fn a_budget_holds_the_second_batch() {
    let floor = |options: &str| {
        let arguments = format!("{TINY} --epochs 1 --policy dyn --deterministic --budget 1KiB {options}");
        fails(1, &arguments, &["needs at least"]).number("floor_bytes")
    };
    let (ahead, before) = (floor(""), floor("--no-staging"));
    assert!(ahead - before >= f64::from(16 * 3 * 28 * 28), "{ahead} and {before}");
    let run = succeeds(&format!("{TINY} --epochs 1 --policy dyn --deterministic --budget {ahead}"));
    assert!(run.number("measured_peak_bytes") <= ahead);
}

/// Two classes of the JPEGs that the loader's own tests read.
fn jpegs() -> TempDir {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../datasets/tests/golden");
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str, to: &Path| {
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(golden.join(format!("{name}.jpg")), to).unwrap();
    };
    for (class, names) in [("flat", ["wide", "grey"]), ("tall", ["high", "small"])] {
        for (part, name) in [("train", names[0]), ("train", names[1]), ("val", names[1])] {
            copy(name, &folder.path().join(part).join(class).join(format!("{name}.jpg")));
        }
    }
    folder
}

#[test]
fn a_folder_of_jpegs_is_trained_on_and_evaluated() {
    let folder = jpegs();
    let data = format!("--data jpeg-folder --data-dir {} --image-size 28 --workers 2", folder.path().display());
    let out = tempfile::tempdir().unwrap();
    let train = format!("train --device cpu -b 3 --epochs 2 --log-interval 1 --output {} {data}", out.path().display());
    let run = succeeds(&train);
    assert_eq!(run.losses().len(), 4, "batches of three and of one, twice");
    let again = succeeds(&train.replace("--workers 2", "--workers 0"));
    assert_eq!(run.losses(), again.losses());
    let text = text_in(folder.path(), &format!("eval {} --device cpu -b 3 {data}", out.path().display()));
    assert!(text.contains("on 2 test images"), "{text}");
    std::fs::write(folder.path().join("train/flat/grey.jpg"), "not a picture").unwrap();
    fails(1, &train, &["grey.jpg", "JPEG"]);
}
