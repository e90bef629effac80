//! Why a graph could not be differentiated.

use thiserror::Error;
use vdnn_graph::GraphError;

/// A graph, root or request that has no gradient.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum AutogradError {
    /// A backward or update node was refused, usually because its name is taken.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// An op without a rule lies on the way of a gradient.
    #[error("no gradient passes through {node} ({op}): {reason}")]
    NotDifferentiable {
        /// Name of the node.
        node: String,
        /// Kind of the op.
        op: &'static str,
        /// Why, and what to do instead.
        reason: &'static str,
    },
    /// The graph already has backward or update nodes.
    #[error("{graph} already holds {node}; expected a graph of forward nodes only")]
    NotForward {
        /// Name of the graph.
        graph: String,
        /// The first node of another phase.
        node: String,
    },
    /// The root of [`crate::Root::Loss`] is no loss.
    #[error(
        "expected the root {value} to be made by softmax_cross_entropy, found {found}; seed other values with Root::Value"
    )]
    RootIsNoLoss {
        /// The value given.
        value: String,
        /// What makes it.
        found: String,
    },
    /// Nothing that the root depends on is trained or asked for.
    #[error("{root} depends on no parameter and on no value whose gradient is asked for")]
    NothingToDifferentiate {
        /// The root.
        root: String,
    },
    /// The gradient of a value was asked for that the root does not depend on.
    #[error("{value} has no gradient: {root} does not depend on it")]
    NoGradient {
        /// The value asked for.
        value: String,
        /// The root.
        root: String,
    },
    /// Loss scaling was asked for where the host gives the gradient.
    #[error(
        "loss scaling needs a loss as the root; the gradient of {root} is given by the host, which may scale it there"
    )]
    NoLossToScale {
        /// The root.
        root: String,
    },
}
