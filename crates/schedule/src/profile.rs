//! What is known of kernels' speed: choices for each node of a graph, and recorded profiles that fill them.

use serde::{Deserialize, Serialize};
use vdnn_graph::{Graph, Node, NodeId};
use vdnn_tensor::Bytes;

/// One way to run a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Name of the algorithm; what a schedule's launch carries.
    pub algorithm: String,
    /// Workspace it borrows.
    pub workspace: Bytes,
    /// Time of one run in seconds.
    pub seconds: f64,
    /// True when equal inputs always give equal bits.
    pub deterministic: bool,
}

/// The choices of every node of one graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelTable {
    /// By node id; never empty, fastest first.
    pub choices: Vec<Vec<Choice>>,
}

impl KernelTable {
    /// A node's choices, fastest first.
    pub fn of(&self, node: NodeId) -> &[Choice] {
        &self.choices[node.index()]
    }

    /// A node's choice of this name.
    pub fn find(&self, node: NodeId, algorithm: &str) -> Option<&Choice> {
        self.of(node).iter().find(|choice| choice.algorithm == algorithm)
    }
}

/// The choices of one kernel, under the key of [`kernel_key`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileEntry {
    /// See [`kernel_key`].
    pub key: String,
    /// Measured choices, fastest first.
    pub choices: Vec<Choice>,
}

/// Kernels measured on a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// File format, [`crate::FORMAT`].
    pub format: u32,
    /// Name of the device, for example `NVIDIA H200`.
    pub device: String,
    /// Library versions, day and command, for people.
    pub made: String,
    /// Device to host rate alone, bytes a second.
    pub d2h: f64,
    /// Host to device rate alone, bytes a second.
    pub h2d: f64,
    /// Rate of each direction while both run, bytes a second.
    pub duplex_each: f64,
    /// One entry a distinct kernel.
    pub kernels: Vec<ProfileEntry>,
}

/// What makes two nodes the same kernel: op with attributes, operand types and precision; never names.
pub fn kernel_key(graph: &Graph, node: &Node) -> String {
    let types: Vec<String> = node.inputs.iter().map(|&id| graph.value(id).ty.to_string().replace(", ", ",")).collect();
    let attributes = serde_json::to_string(&node.op).unwrap_or_default();
    let precision = if node.op.kind().starts_with("conv2d") || node.op.kind().starts_with("linear") {
        format!(" {:?}", graph.precision).to_lowercase()
    } else {
        String::new()
    };
    format!("{attributes} {}{precision}", types.join(" "))
}
