//! Links between our own documents lead somewhere.

use super::Complaint;
use super::source::Source;

/// The rule: every relative link of a Markdown file names a tracked file, or a folder of one.
pub fn check(sources: &[Source]) -> Vec<Complaint> {
    let exists =
        |path: &str| sources.iter().any(|source| source.path == path || source.path.starts_with(&format!("{path}/")));
    let documents = sources.iter().filter(|source| source.path.ends_with(".md"));
    documents.flat_map(|source| broken(source, &exists)).collect()
}

fn broken(source: &Source, exists: &dyn Fn(&str) -> bool) -> Vec<Complaint> {
    let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let lines = source.text.lines().enumerate();
    let links = lines.flat_map(|(i, line)| targets(line).map(move |target| (i + 1, target)));
    let ours = links.filter(|(_, target)| !target.contains("://") && !target.starts_with('#'));
    let lost = ours.filter(|(_, target)| !exists(&resolve(folder, target)));
    lost.map(|(line, target)| Complaint::new(&source.path, line, format!("no file at the end of the link {target}")))
        .collect()
}

/// What the links of a line point at.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// A path from the root of the repository: `target`, without its anchor, seen from `folder`.
fn resolve(folder: &str, target: &str) -> String {
    let target = target.split('#').next().unwrap_or(target);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let there = ["docs/decisions/0001-a.md", "crates/memory/src/lib.rs"].map(|path| Source::new(path, ""));
        let mut sources = vec![Source::new(path, text)];
        sources.extend(there);
        check(&sources).iter().map(|complaint| complaint.line).collect()
    }

    #[test]
    fn a_link_to_nowhere_is_caught() {
        assert_eq!(lines("README.md", "[a](docs/decisions/0001-a.md)\n[b](docs/decisions/0002-b.md) [c](crates)"), [2]);
        assert_eq!(
            lines("docs/decisions/README.md", "[a](0001-a.md#why)\n[b](../../crates/memory/src)\n[c](../b.md)"),
            [3]
        );
        assert_eq!(lines("README.md", "[a](https://example.org/a) [b](#figures)").len(), 0);
    }
}
