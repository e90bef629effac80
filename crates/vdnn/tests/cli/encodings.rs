//! `--encodings`: what `plan` says of masks and indices, who takes them, and who never does.

use crate::{TINY, fails, succeeds, text_in};
use std::path::Path;

const PLAN: &str = "plan --model vgg16 -b 64 --machine titan-x";

#[test]
fn hybrid_takes_masks_where_memory_is_short_unless_told_not_to() {
    let auto = succeeds(&format!("{PLAN} --budget 3GiB"));
    let never = succeeds(&format!("{PLAN} --budget 3GiB --encodings never"));
    // Five pools, the ReLU before each of them, and two in the classifier.
    assert_eq!((auto.number("encoded_nodes"), never.number("encoded_nodes")), (12.0, 0.0));
    for key in ["floor_bytes", "floor_bound_bytes", "lower_bound_ms", "predicted_ms"] {
        assert!(auto.number(key) < never.number(key), "{key}: {} and {}", auto.document, never.document);
    }
    assert_eq!(auto.number("oracle_ms"), never.number("oracle_ms"));
    let text = text_in(Path::new("."), &format!("{PLAN} --budget 3GiB"));
    assert!(text.contains("7 ReLU by masks (46.8 MiB), 5 max pools by indices (93.4 MiB)"), "{text}");
    fails(2, &format!("{PLAN} --encodings always"), &["--encodings"]);
}

#[test]
fn other_policies_and_plans_without_a_budget_do_without() {
    for more in ["--policy all", "--policy dyn --budget 4GiB", "--policy checkpoint --budget 4GiB", "--policy hybrid"] {
        let called = succeeds(&format!("{PLAN} {more}"));
        assert_eq!(called.number("encoded_nodes"), 0.0, "{more}");
        let never = succeeds(&format!("{PLAN} {more} --encodings never"));
        for key in ["peak_bytes", "predicted_ms", "n_commands"] {
            assert_eq!(called.number(key), never.number(key), "{more}: {key}");
        }
    }
}

/// Where everything fits, `hybrid` keeps everything of the program whose kernels take less time.
#[test]
fn plans_with_room_take_the_quicker_program() {
    let auto = succeeds(&format!("{PLAN} --budget 12GiB"));
    let never = succeeds(&format!("{PLAN} --budget 12GiB --encodings never"));
    assert_eq!((auto.number("encoded_nodes"), never.number("encoded_nodes")), (12.0, 0.0));
    assert_eq!((auto.number("offload_bytes"), auto.number("recompute_ms")), (0.0, 0.0));
    assert!(auto.number("predicted_ms") < never.number("predicted_ms"));
    assert_eq!(never.number("predicted_ms"), never.number("oracle_ms"));
}

/// A mask is a value like any other where it is, and is said not to be there where it is not.
#[test]
fn masks_are_explained() {
    let called = succeeds(&format!("{PLAN} --budget 3GiB --explain features.3.mask"));
    assert_eq!((called.text("producer"), called.text("ty")), ("features.3", "u8[64, 401408]"));
    let reads = |used: &serde_json::Value| used["reads"].as_array().unwrap().len();
    let uses = called.document["uses"].as_array().unwrap();
    assert_eq!((reads(uses.first().unwrap()), reads(uses.last().unwrap())), (0, 1));
    assert_eq!(uses.last().unwrap()["node"], "features.3.data_grad");
    // What ReLU's gradient does not read any more is not said to be read by it.
    let map = succeeds(&format!("{PLAN} --budget 3GiB --explain features.3"));
    let uses = map.document["uses"].as_array().unwrap();
    assert!(uses.iter().all(|used| used["run"] != 0 || used["phase"] == "forward"), "{uses:?}");
    fails(1, &format!("{PLAN} --policy hybrid --explain features.3.mask"), &["only where gradients read masks"]);
    fails(1, &format!("{PLAN} --policy all --explain features.3.mask"), &["unknown value", "features.3"]);
}

#[test]
fn cells_of_a_comparison_say_what_was_encoded() {
    let compare = "compare --models vgg16 -b 64 --policies hybrid,dyn --budgets 3500MiB";
    let encoded = |arguments: &str| -> Vec<u64> {
        let called = succeeds(arguments);
        let cells = called.document["cells"].as_array().unwrap();
        cells.iter().map(|cell| cell["encoded_nodes"].as_u64().unwrap()).collect()
    };
    assert_eq!(encoded(compare), [12, 0]);
    assert_eq!(encoded(&format!("{compare} --encodings never")), [0, 0]);
}

/// Algorithms go from an encoded schedule to `none` and back; the weights are the same.
#[test]
fn training_gives_the_same_weights() {
    let folder = tempfile::TempDir::new().unwrap();
    let run = |arguments: &str| {
        let called = crate::vdnn_in(folder.path(), &format!("{TINY} --max-steps 3 --model vgg-small {arguments}"));
        assert_eq!(called.status, 0, "{arguments}: {}", called.document);
        called
    };
    let refused = crate::vdnn_in(folder.path(), &format!("{TINY} --model vgg-small --min-offload 0 --budget 1"));
    let floor = refused.number("floor_bytes");
    let encoded = run(&format!("--min-offload 0 --budget {floor} --out encoded.json"));
    let none = run("--policy none --algos-from encoded.json --out none.json");
    let back = run(&format!("--min-offload 0 --budget {floor} --algos-from none.json"));
    assert_eq!(encoded.text("weights_sha256"), none.text("weights_sha256"));
    assert_eq!(encoded.text("weights_sha256"), back.text("weights_sha256"));
    let never = format!("{TINY} --model vgg-small --min-offload 0 --budget {floor} --encodings never");
    assert_eq!(crate::vdnn_in(folder.path(), &never).status, 1, "the floor is lower with masks");
}
