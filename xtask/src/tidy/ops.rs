//! One op, one file name: `graph/src/op/conv2d.rs` is `conv2d.rs`, or a folder `conv2d`, wherever the op has a part.
//!
//! A kernel for channels innermost may have a file of its own, `relu_nhwc`. Every op runs on the CPU, so `runtime/src/cpu` has a file for each; the other folders have files for ops alone, save for
//! those named here.

use super::Complaint;
use super::source::Source;
use std::collections::BTreeSet;

/// Where the ops themselves are.
const OPS: Folder = Folder { path: "crates/graph/src/op/", shared: &["mod", "window"] };
/// Where every op must have a file.
const CPU: Folder = Folder {
    path: "crates/runtime/src/cpu/",
    shared: &["mod", "by_way_of_f32", "choices", "launch", "matrix", "operand", "order", "real", "reduce", "stretch"],
};
/// Where an op has a file if it has a part there.
const PARTS: [Folder; 3] = [
    // Split is the gradient of concat and shares its file in `graph`; its own gradient rule stands alone.
    Folder { path: "crates/autograd/src/rules/", shared: &["mod", "split"] },
    Folder { path: "crates/layers/src/", shared: &["lib", "error", "init", "net", "reuse", "sequential"] },
    Folder {
        path: "crates/cuda/src/kernels/",
        shared: &["mod", "common", "element", "elementwise", "error", "nhwc", "plan", "table", "tests", "window"],
    },
];

/// A folder with a file an op, and the files in it that belong to no op.
struct Folder {
    path: &'static str,
    shared: &'static [&'static str],
}

impl Folder {
    /// Names of files and folders directly inside, without their endings and the order of memory they are for.
    fn names<'a>(&self, sources: &'a [Source]) -> BTreeSet<&'a str> {
        let inside = sources.iter().filter_map(|source| source.path.strip_prefix(self.path));
        let stem = |rest: &'a str| rest.split(['/', '.']).next().unwrap_or(rest);
        inside.map(|rest| stem(rest).strip_suffix("_nhwc").unwrap_or(stem(rest))).collect()
    }
}

/// The rule.
pub fn check(sources: &[Source]) -> Vec<Complaint> {
    let mut ops = OPS.names(sources);
    ops.retain(|name| !OPS.shared.contains(name));
    let cpu = CPU.names(sources);
    let missing = ops.iter().filter(|op| !cpu.contains(*op));
    let mut complaints: Vec<Complaint> = missing
        .map(|op| Complaint::new(&format!("{}{op}.rs", OPS.path), 0, format!("expected {}{op}.rs beside it", CPU.path)))
        .collect();
    for folder in PARTS.iter().chain([&CPU]) {
        let stray =
            folder.names(sources).into_iter().filter(|name| !ops.contains(name) && !folder.shared.contains(name));
        complaints.extend(stray.map(|name| {
            let message = format!("no op has this name: expected one of {}, or a line in tidy/ops.rs", OPS.path);
            Complaint::new(&format!("{}{name}", folder.path), 0, message)
        }));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(paths: &[&str]) -> Vec<String> {
        let sources: Vec<Source> = paths.iter().map(|path| Source::new(path, "")).collect();
        check(&sources).into_iter().map(|complaint| complaint.path).collect()
    }

    #[test]
    fn an_op_without_a_cpu_kernel_is_caught() {
        assert_eq!(complaints(&["crates/graph/src/op/gelu.rs"]), ["crates/graph/src/op/gelu.rs"]);
        assert!(complaints(&["crates/graph/src/op/gelu.rs", "crates/runtime/src/cpu/gelu.rs"]).is_empty());
        assert!(complaints(&["crates/graph/src/op/gelu.rs", "crates/runtime/src/cpu/gelu/mod.rs"]).is_empty());
    }

    #[test]
    fn another_name_for_an_op_is_caught() {
        let op = ["crates/graph/src/op/relu.rs", "crates/runtime/src/cpu/relu.rs"];
        assert!(complaints(&[op[0], op[1], "crates/cuda/src/kernels/relu.cu"]).is_empty());
        assert!(complaints(&[op[0], op[1], "crates/cuda/src/kernels/relu_nhwc.cu"]).is_empty());
        let found =
            complaints(&[op[0], op[1], "crates/cuda/src/kernels/rectify.cu", "crates/layers/src/activation.rs"]);
        assert_eq!(found, ["crates/layers/src/activation", "crates/cuda/src/kernels/rectify"]);
    }
}
