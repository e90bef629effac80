//! House rules that no compiler checks, read off the tracked files: `cargo xtask tidy`.
//!
//! | rule | file |
//! | --- | --- |
//! | arrows between crates point as the architecture says | `tidy/arrows.rs` |
//! | one op, one file name in every crate that has a part in it | `tidy/ops.rs` |
//! | words that only some folders may use: `unsafe`, the environment, the clock, files; unfinished work; machine paths | `tidy/words.rs` |
//! | links between documents lead somewhere | `tidy/links.rs` |
//! | long files and functions, a list that may only shrink | `tidy/length.rs` |
//!
//! Left to others: formatting (rustfmt), missing documentation and style (clippy, CI).

mod arrows;
mod length;
mod links;
mod ops;
mod source;
mod words;

use anyhow::{Context, bail};
use source::Source;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The committed list of files and functions that are longer than the rules allow.
const RATCHET: &str = "xtask/src/tidy/long.txt";

/// A place that breaks a rule, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// File, from the root of the repository.
    pub path: String,
    /// Line, counting from 1; 0 for the whole file.
    pub line: usize,
    /// Expected, found, what to try.
    pub message: String,
}

impl Complaint {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Complaint { path: path.to_string(), line, message: message.into() }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Runs the chore. `--shrink` rewrites the list of long functions where they became shorter, and never lengthens it.
pub fn run(args: &[String]) -> anyhow::Result<()> {
    let sources = tracked()?;
    let listed = length::parse(&read(RATCHET)?)?;
    match args {
        [] => {}
        [flag] if flag == "--shrink" => {
            let shrunk = length::shrink(&listed, &length::measure(&sources));
            return std::fs::write(root().join(RATCHET), length::print(&shrunk)).context(RATCHET);
        }
        _ => bail!("expected no arguments or --shrink, found {args:?}"),
    }
    let complaints = check(&sources, &listed);
    for complaint in &complaints {
        println!("{complaint}");
    }
    if !complaints.is_empty() {
        bail!("{} places break a house rule", complaints.len());
    }
    println!("tidy: {} files, {} on the list of long ones", sources.len(), listed.len());
    Ok(())
}

fn check(sources: &[Source], listed: &[length::Long]) -> Vec<Complaint> {
    let mut complaints = arrows::check(sources);
    complaints.extend(ops::check(sources));
    complaints.extend(words::check(sources));
    complaints.extend(links::check(sources));
    complaints.extend(length::check(sources, listed, RATCHET));
    complaints
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))
}

/// Every tracked text file that is there; binary ones are passed over.
fn tracked() -> anyhow::Result<Vec<Source>> {
    let output = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output().context("git ls-files")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let paths = String::from_utf8(output.stdout).context("a tracked file's name is not UTF-8")?;
    let paths = paths.split('\0').filter(|path| !path.is_empty());
    Ok(paths.filter_map(|path| Some(Source::new(path, &read(path).ok()?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let listed = length::parse(&read(RATCHET).unwrap()).unwrap();
        assert_eq!(check(&tracked().unwrap(), &listed), []);
    }
}
