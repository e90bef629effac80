//! Checkpoints that are damaged, of another model, or cannot be written (case B56).

use crate::{Called, TINY, called, check_failure, vdnn_in};
use assert_cmd::Command;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const FILE: &str = "saved/checkpoint.safetensors";

fn small(extra: &str) -> String {
    format!("{TINY} --model vgg-small --max-steps 1 {extra}")
}

/// A folder with a checkpoint after one step.
fn saved() -> TempDir {
    let folder = TempDir::new().unwrap();
    let first = vdnn_in(folder.path(), &small("--output saved"));
    assert_eq!(first.status, 0, "{}", first.document);
    assert!(folder.path().join(FILE).is_file());
    folder
}

fn refused(folder: &Path, arguments: &str, words: &[&str]) {
    check_failure(vdnn_in(folder, arguments), 1, arguments, words);
}

#[test]
fn damaged_or_of_another_model() {
    let folder = saved();
    let path = |name: &str| folder.path().join(name);
    let whole = fs::read(path(FILE)).unwrap();
    let other = TINY.to_string() + " --model resnet-small --max-steps 1 --resume saved";
    refused(folder.path(), &other, &["expected a checkpoint of resnet-small", "vgg-small"]);
    refused(folder.path(), &small("--seed 77 --resume saved"), &["seed 0", "--seed 77"]);
    refused(folder.path(), &small("--resume nowhere"), &["nowhere", "cannot read"]);
    for (name, bytes) in [
        ("empty.safetensors", &whole[..0]),
        ("header.safetensors", &whole[..500]),
        ("half.safetensors", &whole[..whole.len() / 2]),
        ("short.safetensors", &whole[..whole.len() - 1]),
    ] {
        fs::write(path(name), bytes).unwrap();
        refused(folder.path(), &small(&format!("--resume {name}")), &[name, "not a whole safetensors file"]);
    }
    let mut garbled = whole.clone();
    garbled[20..60].fill(0xff);
    fs::write(path("garbled.safetensors"), garbled).unwrap();
    refused(folder.path(), &small("--resume garbled.safetensors"), &["garbled.safetensors"]);
    let format = b"vdnn-checkpoint-1";
    let at = whole.windows(format.len()).position(|bytes| bytes == format).unwrap();
    let mut newer = whole.clone();
    newer[at + format.len() - 1] = b'9';
    fs::write(path("newer.safetensors"), newer).unwrap();
    refused(folder.path(), &small("--resume newer.safetensors"), &["vdnn-checkpoint-1", "vdnn-checkpoint-9"]);
    let evaluated =
        vdnn_in(folder.path(), "eval saved --device cpu --data synthetic --samples 80 --classes 10 --image-size 28");
    assert_eq!(evaluated.status, 0, "{}", evaluated.document);
    for key in ["test_loss", "test_accuracy", "samples", "weights_sha256"] {
        assert!(evaluated.document.get(key).is_some(), "{key}");
    }
}

#[test]
fn a_folder_that_cannot_be_written() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("file"), "in the way").unwrap();
    refused(folder.path(), &small("--output file/inside"), &["file/inside"]);
    refused(folder.path(), &small("--output /proc/nowhere"), &["/proc/nowhere"]);
    // Found out before the first step, not after the epoch.
    let started = std::time::Instant::now();
    refused(
        folder.path(),
        &small("--epochs 1000").replace("--max-steps 1", "--output /proc/nowhere"),
        &["/proc/nowhere"],
    );
    assert!(started.elapsed().as_secs() < 60);
}

/// The program with files limited to `blocks` of 512 bytes, as on a disk that is full. With `ignore` the limit is an error of
/// the write, without it the system ends the program.
fn limited(folder: &Path, blocks: u32, ignore: bool, arguments: &str) -> Command {
    let trap = if ignore { "trap '' XFSZ;" } else { "" };
    let script = format!("{trap} ulimit -f {blocks}; exec \"$0\" --json \"$@\"");
    let mut command = Command::new("sh");
    command.current_dir(folder).args(["-c", &script, env!("CARGO_BIN_EXE_vdnn")]).args(arguments.split_whitespace());
    command
}

/// What the folder of checkpoints holds.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("saved")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Case B56: a disk that fills up leaves the previous checkpoint whole, nothing beside it, and says so.
#[test]
fn a_full_disk_leaves_the_previous_checkpoint_whole() {
    let folder = saved();
    let before = fs::read(folder.path().join(FILE)).unwrap();
    let go_on = small("--epochs 9 --resume saved --output saved");
    let full: Called = called(limited(folder.path(), 100, true, &go_on), &go_on);
    check_failure(full, 1, &go_on, &["cannot be written to saved", "previous one, if any, is intact"]);
    assert_eq!(fs::read(folder.path().join(FILE)).unwrap(), before);
    assert_eq!(names(folder.path()), ["checkpoint.safetensors"]);
    // Ended from outside in the middle of a write: what it left behind is not taken for a checkpoint.
    let killed = limited(folder.path(), 100, false, &go_on).output().unwrap();
    assert!(!killed.status.success() && killed.stdout.is_empty());
    assert_eq!(fs::read(folder.path().join(FILE)).unwrap(), before);
    let resumed = vdnn_in(folder.path(), &go_on);
    assert_eq!(resumed.status, 0, "{}", resumed.document);
    assert_ne!(fs::read(folder.path().join(FILE)).unwrap(), before);
    assert_eq!(names(folder.path()), ["checkpoint.safetensors"], "what was left behind is gone");
}
