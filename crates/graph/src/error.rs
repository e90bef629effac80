//! Why a graph could not be built.

use thiserror::Error;

/// A node or graph that breaks a rule. Every message names the node and says what was expected and found.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GraphError {
    /// The op's shape rule refused its inputs.
    #[error("layer {node} ({op}): {reason}")]
    Shape {
        /// Name of the node.
        node: String,
        /// Kind of the op.
        op: &'static str,
        /// What was expected and found.
        reason: String,
    },
    /// Two nodes, parameters or inputs with one name.
    #[error("the name {name} is used twice; names identify values in schedules and checkpoints and must be unique")]
    DuplicateName {
        /// The repeated name.
        name: String,
    },
    /// A name that would not survive the text form.
    #[error("the name {name:?} must be non-empty and free of spaces and of the characters ( ) [ ] , ; | @ %")]
    BadName {
        /// The refused name.
        name: String,
    },
    /// A persistent value is read after the node that overwrites it.
    #[error("{value} is read by {reader} after {writer} has updated it in place; updates must come after the last use")]
    ReadAfterUpdate {
        /// The persistent value.
        value: String,
        /// The late reader.
        reader: String,
        /// The updating node.
        writer: String,
    },
    /// An order that is not a topological order of the graph.
    #[error("the order runs {node} before its input {value} exists")]
    Order {
        /// The node that comes too early.
        node: String,
        /// The missing input.
        value: String,
    },
    /// A graph that a pass cannot take.
    #[error("the pass {pass} cannot take {place} of {graph}: {reason}")]
    Pass {
        /// Name of the pass.
        pass: &'static str,
        /// Name of the graph.
        graph: String,
        /// The node, value or setting.
        place: String,
        /// What was expected and found.
        reason: String,
    },
}
