//! `--split-batch`: floors with and without it, what refusals say of it, and what it refuses.

use crate::{TINY, fails, succeeds, text_in, vdnn_in};
use std::path::Path;

const PLAN: &str = "plan --model vgg16 -b 256 --policy hybrid --machine titan-x";
const GIB: f64 = (1u64 << 30) as f64;

#[test]
fn floors_fall_with_the_number_of_parts() {
    let whole = succeeds(&format!("{PLAN} --budget 8GiB"));
    assert!(whole.document["split"].is_null());
    let mut before = whole.number("floor_bytes");
    for parts in [2, 4, 8] {
        let split = succeeds(&format!("{PLAN} --budget 8GiB --split-batch {parts}"));
        let about = &split.document["split"];
        assert_eq!(about["parts"], parts);
        assert_eq!(about["floor_bytes_whole"], whole.document["floor_bytes"]);
        assert_eq!(about["floor_bound_bytes_whole"], whole.document["floor_bound_bytes"]);
        assert!(split.number("floor_bytes") < before, "{parts} parts");
        assert!(split.number("floor_bytes") >= split.number("floor_bound_bytes"));
        before = split.number("floor_bytes");
    }
    assert!(before < 1.5 * GIB && whole.number("floor_bytes") > 6.0 * GIB);
    let text = text_in(Path::new("."), &format!("{PLAN} --budget 8GiB --split-batch 4"));
    assert!(
        text.contains("17 nodes up to features.16 run on 4 parts of the batch; on the whole the floor is 6.27 GiB"),
        "{text}"
    );
}

/// Below the floor of the whole batch there are plans, close to what no plan is below.
#[test]
fn plans_below_the_floor_of_the_whole_batch() {
    let split = succeeds(&format!("{PLAN} --budget 3GiB --split-batch 4"));
    assert!(split.number("peak_bytes") <= 3.0 * GIB);
    assert!(split.number("predicted_ms") < 1.03 * split.number("lower_bound_ms"), "{}", split.document);
}

#[test]
fn a_budget_below_the_floor_hears_of_it() {
    let refused =
        fails(1, &format!("{PLAN} --budget 2GiB"), &["or --split-batch 4, which lowers the floor to 1.87 GiB"]);
    assert_eq!(refused.number("split_batch"), 4.0);
    assert!(refused.number("floor_bytes") > 6.0 * GIB);
    // More parts than there are already, and the lowest where none suffices.
    let refused = fails(1, &format!("{PLAN} --budget 1 --split-batch 4"), &["or --split-batch"]);
    assert!(refused.number("split_batch") > 4.0);
    // Batch norm follows the first convolution.
    let refused = fails(1, "plan --model resnet50 -b 32 --policy hybrid --budget 1", &["a policy that keeps less"]);
    assert!(refused.document["split_batch"].is_null() && !refused.text("error").contains("--split-batch"));
    let training = fails(
        1,
        &format!("{TINY} --model vgg-small --budget 1MiB"),
        &["or --split-batch 2, with which the largest kernel needs"],
    );
    assert_eq!(training.number("split_batch"), 2.0);
}

#[test]
fn what_cannot_be_split_is_refused() {
    for (what, words) in [
        ("vgg16 -b 256 --split-batch 0", "expected 1 to 256 parts of a batch of 256, found 0"),
        ("vgg16 -b 256 --split-batch 257", "expected 1 to 256 parts of a batch of 256, found 257"),
        ("vgg16 --split-batch 2 --split-at feature.4", "is named \"feature.4\"; the nearest are features.4"),
        ("vgg16 --split-batch 2 --split-at image", "expected a value that a node makes of the images"),
        ("vgg16 --split-batch 2 --split-at loss", "in front of classifier.2 (dropout), whose mask is a function"),
        ("vgg16_bn --split-batch 2", "features.1.stats (batch_norm_stats), whose statistics are of the whole batch"),
        ("alexnet -b 128 --split-batch 2", "classifier.1.weight.update, needs 432 MiB either way"),
    ] {
        fails(1, &format!("plan --model {what}"), &[words]);
    }
    fails(2, &format!("{PLAN} --split-at features.4"), &["required arguments were not provided"]);
    fails(2, &format!("{PLAN} --split-batch many"), &["--split-batch"]);
    // Named all the same.
    let split = succeeds("plan --model vgg16_bn -b 64 --split-batch 2 --split-at features.0");
    assert_eq!(split.document["split"]["nodes"], 1);
}

#[test]
fn comparisons_and_training_take_it() {
    let floors = |more: &str| {
        let compare = format!("compare --models vgg16 -b 128 --policies hybrid --budgets 6GiB {more}");
        succeeds(&compare).document["cells"][0]["floor_bytes"].as_f64().unwrap()
    };
    assert!(floors("--split-batch 4") < 0.5 * floors(""));
    let folder = tempfile::TempDir::new().unwrap();
    let run = |arguments: &str| {
        let called =
            vdnn_in(folder.path(), &format!("{TINY} --max-steps 3 --model vgg-small --split-batch 4 {arguments}"));
        assert_eq!(called.status, 0, "{arguments}: {}", called.document);
        called
    };
    let none = run("--policy none --out none.json");
    let hybrid = run("--min-offload 0 --budget 2MiB --algos-from none.json");
    assert_eq!(none.text("weights_sha256"), hybrid.text("weights_sha256"));
    assert_eq!(none.losses(), hybrid.losses());
    assert!(hybrid.number("planned_peak_bytes") < none.number("planned_peak_bytes"));
}
