//! Arrows between crates: what each may depend on. A crate may also use what lies below what it depends on.
//!
//! Only `[dependencies]` count: tests may look at anything.

use super::Complaint;
use super::source::Source;

/// (crate, what it depends on), lowest first. The same table stands in ARCHITECTURE.md.
const ARROWS: [(&str, &[&str]); 14] = [
    ("vdnn-tensor", &[]),
    ("vdnn-graph", &["vdnn-tensor"]),
    ("vdnn-autograd", &["vdnn-graph"]),
    ("vdnn-layers", &["vdnn-graph"]),
    ("vdnn-schedule", &["vdnn-graph"]),
    ("vdnn-check", &["vdnn-schedule"]),
    ("vdnn-sim", &["vdnn-schedule"]),
    ("vdnn-memory", &["vdnn-schedule", "vdnn-sim"]),
    ("vdnn-cudnn-sys", &[]),
    ("vdnn-runtime", &["vdnn-schedule"]),
    ("vdnn-cuda", &["vdnn-runtime", "vdnn-cudnn-sys"]),
    ("vdnn-train", &["vdnn-layers", "vdnn-autograd", "vdnn-memory", "vdnn-check", "vdnn-runtime"]),
    ("vdnn-models", &["vdnn-layers"]),
    ("vdnn-datasets", &[]),
];

/// Programs and the front door: they may use everything.
const TOPS: [&str; 4] = ["vdnn", "vdnn-examples", "vdnn-benches", "xtask"];

/// Other frameworks, measured beside ours: workspaces of their own that know nothing of this one.
const PEERS: &str = "benches/peers/";

/// The rule.
pub fn check(sources: &[Source]) -> Vec<Complaint> {
    let manifests = sources.iter().filter(|source| source.path.ends_with("/Cargo.toml"));
    let manifests = manifests.filter(|source| !source.path.starts_with(PEERS));
    manifests.flat_map(check_manifest).collect()
}

fn check_manifest(source: &Source) -> Vec<Complaint> {
    let Some(name) = package_name(&source.text) else { return Vec::new() };
    if TOPS.contains(&name) {
        return Vec::new();
    }
    let Some(allowed) = below(name) else {
        let message = format!("{name} is in no table: say in tidy/arrows.rs and ARCHITECTURE.md what it depends on");
        return vec![Complaint::new(&source.path, 1, message)];
    };
    let ours = dependencies(&source.text).into_iter().filter(|(_, to)| is_ours(to) && !allowed.contains(to));
    ours.map(|(line, to)| {
        let message = format!("{name} must not depend on {to}: expected none but {}", allowed.join(", "));
        Complaint::new(&source.path, line, message)
    })
    .collect()
}

fn is_ours(name: &str) -> bool {
    TOPS.contains(&name) || name.starts_with("vdnn-")
}

/// What a crate depends on, directly or through others.
fn below(name: &str) -> Option<Vec<&'static str>> {
    let (_, direct) = ARROWS.iter().find(|(from, _)| *from == name)?;
    let mut all: Vec<&'static str> = direct.to_vec();
    for to in *direct {
        all.extend(below(to)?);
    }
    all.sort_unstable();
    all.dedup();
    Some(all)
}

fn package_name(manifest: &str) -> Option<&str> {
    manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
}

/// (line, package) of everything under `[dependencies]`, also of one target only.
fn dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut found = Vec::new();
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(section) = line.strip_prefix('[') {
            inside = section == "dependencies]" || section.ends_with(".dependencies]");
            if let Some(rest) = section.strip_prefix("dependencies.") {
                found.push((index + 1, rest.trim_end_matches(']')));
            }
        } else if inside && let Some(end) = line.find(['.', ' ', '=']) {
            found.push((index + 1, &line[..end]));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn complaints(name: &str, rest: &str) -> Vec<usize> {
        let text = format!("[package]\nname = \"{name}\"\n{rest}");
        check(&[Source::new("crates/x/Cargo.toml", &text)]).iter().map(|complaint| complaint.line).collect()
    }

    #[test]
    fn an_arrow_that_points_up_is_caught() {
        assert_eq!(complaints("vdnn-check", "[dependencies]\nvdnn-schedule.workspace = true\n"), NONE);
        assert_eq!(complaints("vdnn-check", "[dependencies]\nvdnn-tensor.workspace = true\n"), NONE, "below schedule");
        assert_eq!(complaints("vdnn-check", "[dependencies]\nserde = \"1\"\nvdnn-memory.workspace = true\n"), [5]);
        assert_eq!(complaints("vdnn-train", "[dependencies]\nvdnn-cuda = { path = \"../cuda\" }\n"), [4]);
        assert_eq!(complaints("vdnn-sim", "[target.'cfg(unix)'.dependencies]\nvdnn = \"0.1\"\n"), [4]);
        assert_eq!(complaints("vdnn-sim", "[dependencies.vdnn-memory]\nworkspace = true\n"), [3]);
    }

    #[test]
    fn tests_may_look_at_anything() {
        assert_eq!(complaints("vdnn-check", "[dev-dependencies]\nvdnn-memory.workspace = true\n"), NONE);
    }

    #[test]
    fn a_new_crate_is_put_into_the_table() {
        assert_eq!(complaints("vdnn-extra", ""), [1]);
        assert!(check(&[Source::new("benches/peers/x/Cargo.toml", "[package]\nname = \"vdnn-peer-x\"\n")]).is_empty());
    }

    #[test]
    fn the_table_has_no_circle() {
        for (index, (_, direct)) in ARROWS.iter().enumerate() {
            assert!(direct.iter().all(|to| ARROWS[..index].iter().any(|(from, _)| from == to)));
        }
    }
}
