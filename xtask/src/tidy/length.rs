//! Long files and long functions: none over the limit, save for those on a list that may only shrink.
//!
//! The list holds lines `LENGTH PATH` and `LENGTH PATH::FUNCTION`. What grows, or is new, is a complaint; so is what became
//! shorter or went away, until the list says so (`cargo xtask tidy --shrink`).

use super::Complaint;
use super::source::Source;
use anyhow::Context;
use std::collections::BTreeMap;

/// Lines of a file.
const FILE: usize = 500;
/// Lines of a function, from `fn` to its closing brace.
const FUNCTION: usize = 60;

/// A file or a function that is longer than the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Long {
    /// `PATH` or `PATH::FUNCTION`.
    pub name: String,
    /// Lines.
    pub lines: usize,
    /// Where it begins.
    pub at: usize,
}

/// Reads the list.
pub fn parse(text: &str) -> anyhow::Result<Vec<Long>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (lines, name) = line.split_once(' ').with_context(|| format!("expected LENGTH NAME, found {line}"))?;
            let lines = lines.parse().with_context(|| format!("expected a length, found {line}"))?;
            Ok(Long { name: name.to_string(), lines, at: 0 })
        })
        .collect()
}

/// Writes the list.
pub fn print(listed: &[Long]) -> String {
    let head = "# Longer than the house rules allow. This list may only shrink: cargo xtask tidy --shrink\n";
    listed.iter().fold(head.to_string(), |text, long| format!("{text}{} {}\n", long.lines, long.name))
}

/// What is left of the list when what became shorter is entered as it is now.
pub fn shrink(listed: &[Long], found: &[Long]) -> Vec<Long> {
    let now = |name: &str| found.iter().find(|long| long.name == name);
    let left = listed
        .iter()
        .filter_map(|old| now(&old.name).map(|new| Long { lines: old.lines.min(new.lines), ..old.clone() }));
    left.collect()
}

/// The rule.
pub fn check(sources: &[Source], listed: &[Long], list: &str) -> Vec<Complaint> {
    let known: BTreeMap<&str, usize> = listed.iter().map(|long| (long.name.as_str(), long.lines)).collect();
    let found = measure(sources);
    let mut complaints: Vec<Complaint> = found.iter().filter_map(|long| complain(long, &known, list)).collect();
    let gone = known.keys().filter(|name| !found.iter().any(|long| long.name == **name));
    complaints.extend(gone.map(|name| Complaint::new(list, 0, format!("{name} is short now: run tidy --shrink"))));
    complaints
}

fn complain(long: &Long, known: &BTreeMap<&str, usize>, list: &str) -> Option<Complaint> {
    let path = long.name.split("::").next().unwrap_or(&long.name);
    let limit = if path.len() < long.name.len() { FUNCTION } else { FILE };
    match known.get(long.name.as_str()) {
        Some(&was) if long.lines < was => {
            let message = format!("{} went from {was} to {} lines: run tidy --shrink", long.name, long.lines);
            Some(Complaint::new(list, 0, message))
        }
        Some(&was) if long.lines == was => None,
        Some(&was) => Some(Complaint::new(path, long.at, format!("grew from {was} to {} lines: cut it", long.lines))),
        None => {
            let message = format!("{} has {} lines, expected at most {limit}: cut it", long.name, long.lines);
            Some(Complaint::new(path, long.at, message))
        }
    }
}

/// Everything over a limit.
pub fn measure(sources: &[Source]) -> Vec<Long> {
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let lines = source.text.lines().count();
        if lines > FILE {
            found.push(Long { name: source.path.clone(), lines, at: 1 });
        }
        let long = functions(&source.code).into_iter().filter(|(_, _, lines)| *lines > FUNCTION);
        found.extend(long.map(|(name, at, lines)| Long { name: format!("{}::{name}", source.path), lines, at }));
    }
    found
}

/// (name, first line, number of lines) of every function with a body. `code` has no comments and no literals.
fn functions(code: &str) -> Vec<(&str, usize, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + 3..];
        let name = &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())];
        let Some(length) = body_end(rest).filter(|_| !name.is_empty()) else { continue };
        let first = code[..at].matches('\n').count() + 1;
        found.push((name, first, rest[..length].matches('\n').count() + 1));
    }
    found
}

/// Where the body after a function's name ends; `None` for a declaration without one.
fn body_end(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut nested = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => nested += 1,
            ')' | ']' => nested -= 1,
            ';' if depth == 0 && nested == 0 => return None,
            '{' => depth += 1,
            '}' if depth == 1 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, lines: usize) -> String {
        format!("fn {name}(x: [u8; 4]) {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    fn complaints(text: &str, list: &str) -> Vec<String> {
        let listed = parse(list).unwrap();
        check(&[Source::new("a.rs", text)], &listed, "long.txt").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_long_function_is_caught() {
        let text =
            format!("trait T {{\n    fn declared(&self);\n}}\n{}{}", function("short", 60), function("long", 61));
        assert_eq!(complaints(&text, ""), ["a.rs:64: a.rs::long has 61 lines, expected at most 60: cut it"]);
        assert!(complaints(&text, "# listed\n61 a.rs::long\n").is_empty());
    }

    #[test]
    fn a_long_file_is_caught() {
        assert_eq!(complaints(&"// x\n".repeat(501), ""), ["a.rs:1: a.rs has 501 lines, expected at most 500: cut it"]);
        assert!(complaints(&"// x\n".repeat(500), "").is_empty());
    }

    #[test]
    fn the_list_only_shrinks() {
        assert_eq!(complaints(&function("f", 70), "65 a.rs::f"), ["a.rs:1: grew from 65 to 70 lines: cut it"]);
        let shorter = complaints(&function("f", 62), "65 a.rs::f");
        assert_eq!(shorter, ["long.txt:0: a.rs::f went from 65 to 62 lines: run tidy --shrink"]);
        assert_eq!(
            complaints(&function("f", 9), "65 a.rs::f"),
            ["long.txt:0: a.rs::f is short now: run tidy --shrink"]
        );
        let listed = parse("65 a.rs::f\n65 a.rs::g\n65 a.rs::h\n").unwrap();
        let text = format!("{}{}{}", function("f", 62), function("g", 9), function("h", 90));
        let shrunk = shrink(&listed, &measure(&[Source::new("a.rs", &text)]));
        assert_eq!(print(&shrunk).lines().skip(1).collect::<Vec<_>>(), ["62 a.rs::f", "65 a.rs::h"]);
        assert_eq!(parse(&print(&shrunk)).unwrap(), shrunk);
    }
}
