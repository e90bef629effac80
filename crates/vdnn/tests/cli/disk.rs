//! `--disk-budget` and `--disk-dir`: what rests on disk, what is said of it, and what is refused.

use crate::{TINY, called, check_failure, fails, succeeds, text_in, vdnn_in};
use assert_cmd::Command;
use std::path::Path;
use tempfile::TempDir;

const PLAN: &str = "plan --model vgg16 -b 256 --machine titan-x --policy all --momentum 0";
/// Feature maps of the tiny network leave; a file is there for half of them.
const MOVES: &str = "--policy all --min-offload 0 --max-steps 3 --epochs 1 --seed 3";

#[test]
fn a_plan_says_what_rests_on_disk() {
    let host = succeeds(PLAN);
    assert_eq!((host.number("disk_peak_bytes"), host.number("disk_write_bytes")), (0.0, 0.0));
    let needed = host.number("host_peak_bytes");
    let called = succeeds(&format!("{PLAN} --host-budget 8GiB --disk-budget 64GiB"));
    assert!(needed > 8.0 * f64::from(1 << 30) && called.number("host_peak_bytes") <= 8.0 * f64::from(1 << 30));
    assert!(called.number("disk_peak_bytes") > 0.0);
    assert_eq!(called.document["disk_write_bytes"], called.document["disk_read_bytes"]);
    for key in ["peak_bytes", "offload_bytes", "prefetch_bytes", "lower_bound_ms"] {
        assert_eq!(called.document[key], host.document[key], "{key} is the device's and its link's");
    }
    let order = [called.number("lower_bound_ms"), host.number("predicted_ms"), called.number("predicted_ms")];
    assert!(order.is_sorted(), "{order:?}");
    let text = text_in(Path::new("."), &format!("{PLAN} --host-budget 8GiB --disk-budget 64GiB"));
    assert!(text.contains("on disk               ") && text.contains(" written, "), "{text}");
    let told = text_in(Path::new("."), &format!("{PLAN} --host-budget 8GiB --disk-budget 64GiB --explain features.0"));
    assert!(told.contains("offload to disk, released at step ") && told.contains("; written before step "), "{told}");
    assert!(told.contains("of them by the disk") && told.contains("disk[0x"), "{told}");
}

#[test]
fn a_schedule_with_a_disk_reads_back() {
    let folder = TempDir::new().unwrap();
    for ending in ["txt", "json"] {
        let out = format!("{PLAN} --host-budget 8GiB --disk-budget 64GiB --out plan.{ending}");
        assert_eq!(vdnn_in(folder.path(), &out).status, 0);
        let text = std::fs::read_to_string(folder.path().join(format!("plan.{ending}"))).unwrap();
        let schedule = vdnn_schedule::read_schedule(&text).unwrap();
        assert!(schedule.disk_bytes(vdnn_schedule::Direction::Offload) > 0);
        assert_eq!(if ending == "txt" { schedule.to_text() } else { schedule.to_json() }, text);
    }
}

#[test]
fn budgets_that_hold_nothing_are_refused_with_both() {
    let words = ["of host memory and", "on disk, the budgets are 3.00 GiB", "passes through host memory whole"];
    fails(1, &format!("{PLAN} --host-budget 3GiB --disk-budget 64GiB"), &words);
    fails(1, &format!("{PLAN} --host-budget 8GiB --disk-budget 1GiB"), &["and 1.00 GiB", "raise the one"]);
    fails(1, &format!("{PLAN} --host-budget 8GiB"), &["the host budget is 8.00 GiB", "disk budget"]);
    // Nothing needs it.
    assert_eq!(succeeds(&format!("{PLAN} --disk-budget 1GiB")).number("disk_peak_bytes"), 0.0);
    fails(2, &format!("{PLAN} --disk-budget much"), &["--disk-budget"]);
}

#[test]
fn a_machine_without_a_disk_is_told_so() {
    let folder = TempDir::new().unwrap();
    let machine = vdnn_sim::Machine { disk: None, ..vdnn_sim::Machine::named("titan-x").unwrap() };
    std::fs::write(folder.path().join("mine.json"), machine.to_json()).unwrap();
    let arguments = format!("{} --host-budget 8GiB --disk-budget 64GiB", PLAN.replace("titan-x", "./mine.json"));
    check_failure(vdnn_in(folder.path(), &arguments), 1, &arguments, &["no rate of a disk", "machine", "`disk`"]);
}

#[test]
fn training_rests_on_disk_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let host = succeeds(&format!("{TINY} {MOVES}"));
    let budget = host.number("host_peak_bytes") as u64 * 2 / 3;
    let arguments = format!("{TINY} {MOVES} --host-budget {budget} --disk-budget 1GiB --disk-dir .");
    let called = vdnn_in(folder.path(), &arguments);
    assert_eq!(called.status, 0, "{}", called.document);
    assert_eq!((called.text("weights_sha256"), called.losses()), (host.text("weights_sha256"), host.losses()));
    assert!(called.number("disk_peak_bytes") > 0.0 && called.number("disk_write_bytes_per_step") > 0.0);
    let order = [called.number("measured_host_peak_bytes"), called.number("host_peak_bytes"), budget as f64];
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_that_cannot_hold_the_file_is_refused_before_the_first_step() {
    let folder = TempDir::new().unwrap();
    let host = succeeds(&format!("{TINY} {MOVES}"));
    let budget = host.number("host_peak_bytes") as u64 * 2 / 3;
    let with = |rest: &str| format!("{TINY} {MOVES} --host-budget {budget} --disk-budget 1GiB {rest}");
    fails(1, &with("--disk-dir /nowhere/at/all"), &["/nowhere/at/all", "os error 2", "--disk-dir"]);
    fails(1, &with("--disk-dir /proc"), &["/proc", "rest on disk"]);
    // Files of at most 512 bytes.
    let arguments = with("--disk-dir .");
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$0\" --json \"$@\"";
    let mut command = Command::new("sh");
    command.current_dir(folder.path()).args(["-c", script, env!("CARGO_BIN_EXE_vdnn")]);
    command.args(arguments.split_whitespace());
    let words = ["bytes in the folder .", "os error 27", "raise --host-budget"];
    check_failure(called(command, &arguments), 1, &arguments, &words);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // Without need of it the folder is not looked at.
    succeeds(&format!("{TINY} --max-steps 1 --epochs 1 --disk-budget 1GiB --disk-dir /nowhere"));
}

#[test]
fn compare_takes_a_disk_too() {
    let small =
        "compare --models vgg-small --batch-sizes 64 --machines toy --policies all --budgets none --min-offload 0";
    let cell = |called: &crate::Called| called.document["cells"][0].clone();
    let host = cell(&succeeds(small));
    let budget = host["host_peak_bytes"].as_u64().unwrap() * 2 / 3;
    let disk = cell(&succeeds(&format!("{small} --host-budget {budget} --disk-budget 1GiB")));
    assert!(disk["disk_peak_bytes"].as_u64().unwrap() > 0 && disk["host_peak_bytes"].as_u64().unwrap() <= budget);
    let refused = cell(&succeeds(&format!("{small} --host-budget {budget} --disk-budget 1KiB")));
    assert!(refused["refusal"].as_str().unwrap().contains("on disk"), "{refused}");
}
