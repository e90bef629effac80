//! Case B57: a run that stops and goes on in a new process is the run that never stopped, to the last bit: losses, weights,
//! shuffling, dropout, momentum, learning rates. Once inside an epoch, once at its end.

use crate::{Called, TINY, vdnn_in};
use std::path::Path;
use tempfile::TempDir;

fn run(folder: &Path, arguments: &str) -> Called {
    let called = vdnn_in(folder, arguments);
    assert_eq!(called.status, 0, "{arguments}: {}", called.document);
    called
}

/// Six steps at once, and as `first` and then the rest in a new process. An epoch has five steps.
fn same_as_uninterrupted(model: &str, samples: u64, first: u64, extra: &str) {
    let folder = TempDir::new().unwrap();
    let tiny = TINY.replace("--samples 80", &format!("--samples {samples}"));
    let base = format!("{tiny} --model {model} --epochs 2 --momentum 0.9 --dropout 0.3 {extra}");
    let straight = run(folder.path(), &format!("{base} --max-steps 6"));
    let before = run(folder.path(), &format!("{base} --max-steps {first} --output saved"));
    let after = run(folder.path(), &format!("{base} --max-steps {} --resume saved", 6 - first));
    let losses: Vec<_> = before.losses().into_iter().chain(after.losses()).collect();
    assert_eq!(losses, straight.losses(), "{base}, stopped after {first}");
    assert_eq!(after.text("weights_sha256"), straight.text("weights_sha256"));
    assert_ne!(before.text("weights_sha256"), straight.text("weights_sha256"));
    assert_eq!(
        after.document["epochs"].as_array().unwrap().last(),
        straight.document["epochs"].as_array().unwrap().last()
    );
}

#[test]
fn in_the_middle_of_an_epoch() {
    same_as_uninterrupted("vgg-small", 80, 3, "--seed 5");
    same_as_uninterrupted("resnet-small", 80, 3, "--seed 5 --sched cosine");
}

#[test]
fn at_the_end_of_an_epoch() {
    same_as_uninterrupted("vgg-small", 80, 5, "");
    // Three steps an epoch, the last of them a partial batch.
    same_as_uninterrupted("resnet-small", 40, 3, "--sched step --decay-epochs 1");
}

/// Under a policy that moves memory, and with Adam's states.
#[test]
fn under_other_policies_and_optimizers() {
    same_as_uninterrupted("vgg-small", 80, 4, "--policy all --min-offload 0 --opt adamw --lr 0.001");
    same_as_uninterrupted("vgg-small", 80, 4, "--policy all --min-offload 0 --state host");
}

/// A run may go on under another policy: with the algorithms of the first its bits are the same.
#[test]
fn going_on_under_another_policy() {
    let folder = TempDir::new().unwrap();
    let base = format!("{TINY} --model vgg-small --epochs 2 --dropout 0.3");
    let straight = run(folder.path(), &format!("{base} --max-steps 6 --policy none --out a.json"));
    run(folder.path(), &format!("{base} --max-steps 3 --policy none --output saved"));
    let other = "--policy conv --min-offload 0 --state host --algos-from a.json";
    let after = run(folder.path(), &format!("{base} --max-steps 3 --resume saved {other}"));
    assert_eq!(after.text("weights_sha256"), straight.text("weights_sha256"));
    assert!(after.number("offload_bytes_per_step") > 0.0);
}
