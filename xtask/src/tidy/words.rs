//! Words that only some places may use.

use super::Complaint;
use super::source::Source;

/// Where `unsafe` may stand: libraries, the arena's memory, and the one call of the matrix product's crate.
const UNSAFE: [&str; 5] = [
    "crates/cuda/",
    "crates/cudnn-sys/",
    "crates/runtime/src/arena.rs",
    "crates/runtime/src/arena/",
    "crates/runtime/src/cpu/matrix.rs",
];
/// The library code below `train`: a function of its arguments.
const PURE: [&str; 10] = [
    "crates/tensor/src/",
    "crates/graph/src/",
    "crates/autograd/src/",
    "crates/layers/src/",
    "crates/schedule/src/",
    "crates/check/src/",
    "crates/sim/src/",
    "crates/memory/src/",
    "crates/runtime/src/",
    "models/src/",
];
/// The CPU device measures when commands run; that is its timeline.
const CLOCK: &str = "crates/runtime/src/cpu_device/";
/// The file for what rests on disk; its folder is an argument.
const DISK: &str = "crates/runtime/src/disk_file.rs";
/// What reads the environment, files or the network, and what reads the clock.
const OUTSIDE: [&str; 7] = ["env::var", "env::args", "fs::", "File::", "io::stdin", "std::net", "process::"];
const TIME: [&str; 2] = ["Instant", "SystemTime"];
/// Work left undone. Put together here so that this file does not contain them.
const UNFINISHED: [&str; 4] = [concat!("todo", "!"), concat!("unimplemented", "!"), concat!("#[igno", "re"), "dbg!"];
/// Paths that exist on one machine.
const MACHINE: [&str; 4] =
    [concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];
/// Where every package of the lock file comes from.
const INDEX: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

/// The rules.
pub fn check(sources: &[Source]) -> Vec<Complaint> {
    sources.iter().flat_map(check_source).collect()
}

fn check_source(source: &Source) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let path = source.path.as_str();
    if path == "Cargo.lock" {
        return lock_file(source);
    }
    if source.is_rust() {
        complaints.extend(find(source, &source.code, &UNFINISHED, "unfinished work"));
        if !UNSAFE.iter().any(|allowed| path.starts_with(allowed)) {
            complaints.extend(find(source, &source.code, &["unsafe"], "unsafe code outside its places"));
        }
    }
    if source.is_rust() && PURE.iter().any(|pure| path.starts_with(pure)) && !is_test(path) {
        let code = source.code_without_tests();
        if path != DISK {
            complaints.extend(find(source, code, &OUTSIDE, "a library below train reads nothing but its arguments"));
        }
        if !path.starts_with(CLOCK) {
            complaints.extend(find(source, code, &TIME, "a library below train does not read the clock"));
        }
    }
    complaints.extend(find(source, &source.text, &MACHINE, "a path of one machine"));
    complaints
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn lock_file(source: &Source) -> Vec<Complaint> {
    let lines = source.text.lines().enumerate();
    let strange = lines.filter(|(_, line)| line.starts_with("source = ") && *line != INDEX);
    strange.map(|(i, line)| Complaint::new(&source.path, i + 1, format!("expected {INDEX}, found {line}"))).collect()
}

/// Every line of `text` that holds one of `words` as a whole word.
fn find(source: &Source, text: &str, words: &[&str], why: &str) -> Vec<Complaint> {
    let lines = text.lines().enumerate();
    let hits = lines.filter_map(|(i, line)| Some((i + 1, words.iter().find(|word| holds(line, word))?)));
    hits.map(|(line, word)| Complaint::new(&source.path, line, format!("{why}: found {word}"))).collect()
}

fn holds(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(part);
        let after = line[at + word.len()..].chars().next().is_some_and(part);
        let inside = word.starts_with(part) && before || word == "unsafe" && after;
        !inside
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        check(&[Source::new(path, text)]).len()
    }

    #[test]
    fn unsafe_code_has_its_places() {
        let text = "fn f() { unsafe { g() } }";
        assert_eq!(complaints("crates/train/src/lib.rs", text), 1);
        assert_eq!(complaints("crates/runtime/src/cpu/relu.rs", text), 1);
        assert_eq!(complaints("crates/cuda/src/driver.rs", text), 0);
        assert_eq!(complaints("crates/runtime/src/arena.rs", text), 0);
        assert_eq!(complaints("crates/train/src/lib.rs", "#![forbid(unsafe_code)] // unsafe"), 0);
    }

    #[test]
    fn libraries_read_only_their_arguments() {
        for text in ["let x = std::env::var(\"A\");", "use std::fs::read;", "let f = File::open(p);", "fs::write(a, b)"]
        {
            assert_eq!(complaints("crates/memory/src/plan.rs", text), 1, "{text}");
            assert_eq!(complaints("crates/runtime/src/device.rs", text), 1, "{text}");
            assert_eq!(complaints("crates/runtime/src/disk_file.rs", text), 0, "{text}");
            assert_eq!(complaints("crates/cuda/src/library.rs", text), 0, "{text}");
            assert_eq!(complaints("crates/train/src/checkpoint.rs", text), 0, "{text}");
        }
        assert_eq!(complaints("crates/memory/src/plan.rs", "let t = Instant::now();"), 1);
        assert_eq!(complaints("crates/runtime/src/cpu_device/iteration.rs", "let t = Instant::now();"), 0);
        let test = "#[cfg(test)]\nmod tests {\n use std::fs::read;\n}\n";
        assert_eq!(complaints("crates/memory/src/plan.rs", test), 0);
    }

    #[test]
    fn unfinished_work_is_caught() {
        for word in UNFINISHED {
            assert_eq!(complaints("crates/vdnn/src/main.rs", &format!("{word}(\"later\")")), 1, "{word}");
        }
        assert_eq!(complaints("crates/vdnn/src/main.rs", "// a comment says todo!"), 0);
    }

    #[test]
    fn paths_of_one_machine_are_caught() {
        for word in MACHINE {
            assert_eq!(complaints("docs/decisions/0001-a.md", &format!("see https://{word}x")), 1, "{word}");
        }
    }

    #[test]
    fn packages_come_from_the_index() {
        assert_eq!(complaints("Cargo.lock", INDEX), 0);
        assert_eq!(complaints("Cargo.lock", "source = \"registry+https://mirror.example/index\""), 1);
    }
}
