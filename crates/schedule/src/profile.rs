//! What is known of kernels' speed: choices for each node of a graph, and recorded profiles that fill them.

use crate::FORMAT;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use vdnn_graph::{Graph, Node, NodeId, Op, Precision, ValueId};
use vdnn_tensor::{Bytes, TensorType};

/// One way to run a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Name of the algorithm, and in how many pieces of the batch it runs ([`crate::split_pieces`]); what a schedule's
    /// launch carries.
    pub algorithm: String,
    /// Workspace it borrows.
    pub workspace: Bytes,
    /// Time of one run in seconds.
    pub seconds: f64,
    /// True when equal inputs always give equal bits.
    pub deterministic: bool,
}

/// The choices of every node of one graph. A plan counts through a node's choices of the whole batch, then through those in
/// pieces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelTable {
    /// By node id; never empty, fastest first.
    pub choices: Vec<Vec<Choice>>,
    /// By node id: the choices in pieces of the batch, fastest first, none faster than the fastest above. Nodes beyond the
    /// end have none. Only policies that ask for them take one.
    #[serde(default)]
    pub pieces: Vec<Vec<Choice>>,
}

impl KernelTable {
    /// A table of choices for the whole batch.
    pub fn new(choices: Vec<Vec<Choice>>) -> Self {
        KernelTable { choices, pieces: Vec::new() }
    }

    /// The table with the times of each node's choices multiplied by a number of its own, by node id.
    pub fn at_paces(mut self, paces: &[f64]) -> Self {
        for of_nodes in [&mut self.choices, &mut self.pieces] {
            for (choices, pace) in of_nodes.iter_mut().zip(paces) {
                choices.iter_mut().for_each(|choice| choice.seconds *= pace);
            }
        }
        self
    }

    /// A node's choices for the whole batch, fastest first.
    pub fn of(&self, node: NodeId) -> &[Choice] {
        &self.choices[node.index()]
    }

    /// A node's choices in pieces of the batch, fastest first.
    pub fn pieces_of(&self, node: NodeId) -> &[Choice] {
        self.pieces.get(node.index()).map_or(&[], Vec::as_slice)
    }

    /// All choices of a node, in the order in which plans count them.
    pub fn all(&self, node: NodeId) -> impl Iterator<Item = &Choice> {
        self.of(node).iter().chain(self.pieces_of(node))
    }

    /// The choice of a node with this number.
    pub fn get(&self, node: NodeId, number: usize) -> Option<&Choice> {
        let whole = self.of(node);
        whole.get(number).or_else(|| self.pieces_of(node).get(number.checked_sub(whole.len())?))
    }

    /// A node's choice of this name.
    pub fn find(&self, node: NodeId, algorithm: &str) -> Option<&Choice> {
        self.all(node).find(|choice| choice.algorithm == algorithm)
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

/// A profile's text that cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProfileError {
    /// Written by another version of the format.
    #[error("profile: expected format {expected}, found {found}; record it again with `vdnn profile`")]
    Format {
        /// The format this program reads.
        expected: u32,
        /// The format of the text.
        found: u64,
    },
    /// Not the JSON of a profile.
    #[error("profile: {reason}; expected the JSON that `vdnn profile` writes")]
    Json {
        /// What was found where.
        reason: String,
    },
}

/// Kernels measured on a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// How much later a launch begins while a copy to the host is under way, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_delay_d2h: Option<f64>,
    /// How much later a launch begins while a copy to the device is under way, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_delay_h2d: Option<f64>,
    /// Seconds by which a launch timed by itself took longer than in a chain, which the kernels' times are without. Absent in
    /// profiles whose times are of launches by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_overhead: Option<f64>,
    /// True when kernels were timed among each other, over numbers like a network's, until the device's clock was where it
    /// stays. Absent in profiles of kernels timed one at a time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rehearsed: bool,
    /// One entry a distinct kernel.
    pub kernels: Vec<ProfileEntry>,
}

impl Profile {
    /// A profile without kernels or rates (0 until they are measured).
    pub fn new(device: impl Into<String>, made: impl Into<String>) -> Self {
        Profile {
            format: FORMAT,
            device: device.into(),
            made: made.into(),
            d2h: 0.0,
            h2d: 0.0,
            duplex_each: 0.0,
            launch_delay_d2h: None,
            launch_delay_h2d: None,
            launch_overhead: None,
            rehearsed: false,
            kernels: Vec::new(),
        }
    }

    /// The choices recorded under a key, in the order they were recorded in.
    pub fn find(&self, key: &str) -> Option<&[Choice]> {
        self.kernels.iter().find(|entry| entry.key == key).map(|entry| entry.choices.as_slice())
    }

    /// Records a kernel's choices, in place of those recorded before.
    pub fn record(&mut self, key: String, choices: Vec<Choice>) {
        match self.kernels.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => entry.choices = choices,
            None => self.kernels.push(ProfileEntry { key, choices }),
        }
    }

    /// The profile as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Reads what [`Profile::to_json`] wrote.
    ///
    /// # Errors
    /// [`ProfileError`] for another format number, or for text that is not a profile.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        #[derive(Deserialize)]
        struct Head {
            format: u64,
        }
        let refuse = |error: serde_json::Error| ProfileError::Json { reason: error.to_string() };
        let Head { format: found } = serde_json::from_str(text).map_err(refuse)?;
        if found != u64::from(FORMAT) {
            return Err(ProfileError::Format { expected: FORMAT, found });
        }
        serde_json::from_str(text).map_err(refuse)
    }
}

/// What makes two nodes the same kernel: op with attributes, operand types and precision; never names.
pub fn kernel_key(graph: &Graph, node: &Node) -> String {
    kernel_key_of(&node.op, &types_of(graph, &node.inputs), graph.precision)
}

pub(crate) fn types_of(graph: &Graph, ids: &[ValueId]) -> Vec<TensorType> {
    ids.iter().map(|&id| graph.value(id).ty.clone()).collect()
}

/// [`kernel_key`] of a node that need not be in a graph.
pub fn kernel_key_of(op: &Op, inputs: &[TensorType], precision: Precision) -> String {
    let types: Vec<String> = inputs.iter().map(|ty| ty.to_string().replace(", ", ",")).collect();
    let attributes = serde_json::to_string(op).unwrap_or_default();
    let precision = if op.kind().starts_with("conv2d") || op.kind().starts_with("linear") {
        format!(" {precision:?}").to_lowercase()
    } else {
        String::new()
    };
    format!("{attributes} {}{precision}", types.join(" "))
}
