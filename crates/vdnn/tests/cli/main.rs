//! The command line as a contract: keys of documents, exit statuses, one document on standard output and nothing else, every
//! failure a sentence. (What training and planning compute is tested where it is computed.)

mod checkpoints;
mod compare;
mod disk;
mod documents;
mod encodings;
mod explain;
mod failures;
mod feeding;
mod floors;
mod markup;
mod mixed;
mod report;
mod reproduce;
mod resume;
mod split_batch;

use assert_cmd::Command;
use serde_json::Value;
use std::path::Path;
use tempfile::TempDir;

/// What one call of the program left behind.
pub struct Called {
    /// Exit status.
    pub status: i32,
    /// The one document on standard output.
    pub document: Value,
    /// Standard error.
    pub errors: String,
}

impl Called {
    /// A number of the document.
    pub fn number(&self, key: &str) -> f64 {
        self.document[key].as_f64().unwrap_or_else(|| panic!("{key} is no number in {}", self.document))
    }

    /// A string of the document.
    pub fn text(&self, key: &str) -> &str {
        self.document[key].as_str().unwrap_or_else(|| panic!("{key} is no string in {}", self.document))
    }

    /// The losses of the steps, as bits.
    pub fn losses(&self) -> Vec<(u64, u64)> {
        let steps = self.document["steps"].as_array().unwrap();
        let step = |step: &Value| (step["step"].as_u64().unwrap(), step["loss"].as_f64().unwrap().to_bits());
        steps.iter().map(step).collect()
    }
}

/// The program with `--json`, in an empty folder of its own unless one is given.
pub fn vdnn(arguments: &str) -> Called {
    vdnn_in(TempDir::new().unwrap().path(), arguments)
}

/// The program with `--json`, in a folder. Arguments are cut at spaces.
pub fn vdnn_in(folder: &Path, arguments: &str) -> Called {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vdnn"));
    command.current_dir(folder).arg("--json").args(arguments.split_whitespace());
    called(command, arguments)
}

/// Standard output of a call without `--json`, in a folder; it must succeed.
pub fn text_in(folder: &Path, arguments: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vdnn"));
    command.current_dir(folder).args(arguments.split_whitespace());
    let output = command.timeout(std::time::Duration::from_secs(120)).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a prepared command and takes its output apart.
pub fn called(mut command: Command, what: &str) -> Called {
    let output = command.timeout(std::time::Duration::from_secs(120)).output().unwrap();
    let (stdout, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let document = serde_json::from_str(&stdout).unwrap_or_else(|error| {
        panic!("{what}: standard output is not one JSON document: {error}\n{stdout}\n{errors}")
    });
    assert!(!errors.contains("panicked"), "{what}: {errors}");
    let status = output.status.code().unwrap_or_else(|| panic!("{what}: ended by a signal"));
    Called { status, document, errors }
}

/// A call that must succeed.
pub fn succeeds(arguments: &str) -> Called {
    let called = vdnn(arguments);
    assert_eq!(called.status, 0, "{arguments}: {}", called.document);
    called
}

/// A call that must fail with a status, an `error` in the document, the same sentence on standard error, and these words.
pub fn fails(status: i32, arguments: &str, words: &[&str]) -> Called {
    check_failure(vdnn(arguments), status, arguments, words)
}

/// As [`fails`], of a call already made.
pub fn check_failure(called: Called, status: i32, what: &str, words: &[&str]) -> Called {
    assert_eq!(called.status, status, "{what}: {} {}", called.document, called.errors);
    let error = called.text("error");
    for word in words {
        assert!(error.contains(word), "{what}: expected {word:?} in: {error}");
    }
    assert!(called.errors.contains(error), "{what}: standard error lacks the sentence: {}", called.errors);
    called
}

/// Training at its smallest: a few steps on random images.
pub const TINY: &str =
    "train --device cpu --data synthetic --samples 80 --classes 10 --image-size 28 -b 16 --log-interval 1";
