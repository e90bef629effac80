//! Keys that scripts rely on.

use crate::{TINY, succeeds, vdnn, vdnn_in};
use serde_json::Value;
use tempfile::TempDir;

fn has_keys(document: &Value, keys: &str) {
    for key in keys.split_whitespace() {
        assert!(document.get(key).is_some(), "{key} is missing in {document}");
    }
}

#[test]
fn train_says_all_it_must() {
    for model in ["vgg-small", "resnet-small"] {
        let policy = "--policy all --min-offload 1KiB";
        let called = succeeds(&format!("{TINY} --model {model} --max-steps 7 --epochs 2 {policy}"));
        let document = &called.document;
        has_keys(
            document,
            "device model policy steps epochs test_accuracy images_per_second context_bytes step_ms_median data_wait_ms \
             planned_peak_bytes measured_peak_bytes host_peak_bytes offload_bytes_per_step prefetch_bytes_per_step \
             weights_sha256",
        );
        assert_eq!((called.text("device"), called.text("model"), called.text("policy")), ("cpu", model, "all"));
        assert_eq!(called.losses().iter().map(|&(step, _)| step).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6]);
        let epochs = document["epochs"].as_array().unwrap();
        assert_eq!(epochs.len(), 2, "five steps an epoch: seven end in the second");
        epochs.iter().for_each(|epoch| has_keys(epoch, "epoch train_loss test_loss test_accuracy"));
        assert!(called.number("measured_peak_bytes") <= called.number("planned_peak_bytes"));
        assert!(called.number("offload_bytes_per_step") > 0.0 && called.number("host_peak_bytes") > 0.0);
        assert_eq!(document["offload_bytes_per_step"], document["prefetch_bytes_per_step"]);
        assert_eq!(called.text("weights_sha256").len(), 64);
        assert!(called.number("images_per_second") > 0.0 && called.number("step_ms_median") > 0.0);
    }
}

#[test]
fn plan_says_all_it_must() {
    let called = succeeds("plan --model vgg16 -b 64 --machine titan-x --policy conv --budget 12GiB --momentum 0");
    let document = &called.document;
    has_keys(
        document,
        "model policy machine budget_bytes peak_bytes live_peak_bytes floor_bytes floor_bound_bytes host_peak_bytes \
         disk_peak_bytes offload_bytes prefetch_bytes recompute_ms encoded_nodes predicted_ms oracle_ms lower_bound_ms \
         feature_map_bytes parameter_bytes workspace_peak_bytes n_steps n_commands planning_seconds violations \
         extent_bytes",
    );
    let extent = |placement: &str| document["extent_bytes"][placement].as_f64().unwrap();
    let order = [called.number("live_peak_bytes"), extent("planned"), extent("first_fit"), extent("size_class")];
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(called.text("machine"), "titan-x");
    assert_eq!(document["violations"], Value::Array(vec![]));
    assert_eq!(called.number("budget_bytes"), 12.0 * f64::from(1 << 30));
    let order = ["floor_bound_bytes", "floor_bytes", "peak_bytes", "budget_bytes"].map(|key| called.number(key));
    assert!(order.is_sorted(), "{order:?}");
    assert!(called.number("live_peak_bytes") <= called.number("peak_bytes"));
    let order = ["oracle_ms", "lower_bound_ms", "predicted_ms"].map(|key| called.number(key));
    assert!(order.is_sorted(), "{order:?}");
    let gap = (order[2] / order[1] - 1.0) * 100.0;
    assert!((document["lower_bound"]["gap_percent"].as_f64().unwrap() - gap).abs() < 1e-9);
    assert_eq!(called.number("parameter_bytes"), 138_357_544.0 * 4.0);
    // The paper's table less the input and the last feature layer: 2.32 GB − 0.04 GB.
    assert!((called.number("offload_bytes") / 1e9 - 2.286).abs() < 0.001);
}

/// With a budget and no policy `hybrid` plans, without either nothing is moved.
#[test]
fn the_default_policy_follows_the_budget() {
    assert_eq!(succeeds("plan --model vgg-small").text("policy"), "none");
    assert_eq!(succeeds("plan --model vgg-small --budget 1GiB").text("policy"), "hybrid");
}

/// Here or on a machine with a GPU: a list of checks, each with a status of three, and a status that agrees.
#[test]
fn doctor_says_all_it_must() {
    let called = vdnn("doctor");
    let document = &called.document;
    let ok = document["ok"].as_bool().unwrap();
    assert_eq!(called.status, if ok { 0 } else { 1 });
    let checks = document["checks"].as_array().unwrap();
    assert!(checks.len() >= 4);
    let mut missing = false;
    for check in checks {
        has_keys(check, "name status found looked_in advice");
        let status = check["status"].as_str().unwrap();
        assert!(["ok", "missing", "warn"].contains(&status), "{check}");
        missing |= status == "missing";
        assert!(status != "missing" || !check["advice"].as_str().unwrap().is_empty(), "{check}");
    }
    assert_eq!(ok, !missing);
}

#[test]
fn lists_are_lists() {
    for (list, known) in [("models", "resnet50"), ("policies", "dyn"), ("machines", "titan-x"), ("data", "synthetic")] {
        let called = succeeds(list);
        let entries = called.document.as_array().unwrap();
        assert!(entries.iter().any(|entry| entry["name"] == known), "{list}: {}", called.document);
    }
}

/// Every machine says where its figures come from, and plans.
#[test]
fn machines_are_there_to_plan_for() {
    let listed = succeeds("machines");
    let machines = listed.document.as_array().unwrap();
    let names: Vec<&str> = machines.iter().map(|machine| machine["name"].as_str().unwrap()).collect();
    for name in "titan-x v100-16 a100-40 a100-80 h100 h200 gh200 rtx-3060-12 rtx-4090 toy".split(' ') {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    assert!(machines.iter().all(|machine| machine["source"].as_str().unwrap().len() > 20));
    let compared =
        succeeds(&format!("compare --models vgg-small --policies none --budgets none --machines {}", names.join(",")));
    let cells = compared.document["cells"].as_array().unwrap();
    let time = |name: &str| {
        let cell = cells.iter().find(|cell| cell["machine"] == name).unwrap();
        cell["predicted_ms"].as_f64().unwrap()
    };
    let ages = ["toy", "titan-x", "v100-16", "a100-40", "h100"].map(time);
    assert!(ages.is_sorted_by(|older, newer| older > newer), "{ages:?}");
    assert!(time("rtx-4090") < time("rtx-3060-12") && time("a100-80") <= time("a100-40"));
}

/// A schedule written by `plan` or `train` is read back: its algorithms are another run's.
#[test]
fn schedules_are_files() {
    let folder = tempfile::TempDir::new().unwrap();
    let run = |arguments: &str| {
        let called = crate::vdnn_in(folder.path(), arguments);
        assert_eq!(called.status, 0, "{arguments}: {}", called.document);
        called
    };
    let base = format!("{TINY} --max-steps 2 --model vgg-small");
    let small = run(&format!("{base} --policy none-m --out a.json"));
    let text = run(&format!("{base} --policy none-m --out a.txt"));
    let from = run(&format!("{base} --policy all --min-offload 0 --algos-from a.json"));
    let again = run(&format!("{base} --policy conv --min-offload 0 --algos-from a.txt"));
    assert_eq!(small.text("weights_sha256"), text.text("weights_sha256"));
    assert_eq!(small.text("weights_sha256"), from.text("weights_sha256"));
    assert_eq!(small.text("weights_sha256"), again.text("weights_sha256"));
    run("plan --model alexnet --out plan.json");
    run("plan --model alexnet --algos-from plan.json");
}

/// A schedule whose kernels run in pieces of the batch reads back, and its algorithms serve another policy; the paper's policies
/// take none by themselves.
#[test]
fn schedules_carry_pieces_of_the_batch() {
    let folder = TempDir::new().unwrap();
    let plan = "plan --model alexnet -b 512 --machine titan-x --momentum 0 --encodings never --state device";
    for file in ["x.txt", "x.json"] {
        let tight = vdnn_in(folder.path(), &format!("{plan} --policy hybrid --budget 1537MB --out {file}"));
        assert_eq!(tight.status, 0, "{}", tight.errors);
        assert!(std::fs::read_to_string(folder.path().join(file)).unwrap().contains("fft_tiling/"), "{file}");
        let kept = vdnn_in(folder.path(), &format!("{plan} --policy none --algos-from {file}"));
        assert_eq!(kept.status, 0, "{}", kept.errors);
        assert_eq!(kept.number("workspace_peak_bytes"), tight.number("workspace_peak_bytes"));
    }
    let dynamic = vdnn_in(folder.path(), &format!("{plan} --policy dyn --budget 1700MB --out dyn.txt"));
    assert_eq!(dynamic.status, 0, "{}", dynamic.errors);
    assert!(!std::fs::read_to_string(folder.path().join("dyn.txt")).unwrap().contains("fft_tiling/"));
}
