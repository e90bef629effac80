//! Why a network could not be built.

use thiserror::Error;
use vdnn_graph::GraphError;
use vdnn_tensor::{Bytes, TensorType};

/// A layer that does not fit where it was put.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum LayerError {
    /// The graph refused a node: shapes or names.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A setting out of its range.
    #[error("layer {layer}: expected {expected}, found {found}")]
    Setting {
        /// Name of the layer.
        layer: String,
        /// What is allowed.
        expected: &'static str,
        /// What was given.
        found: String,
    },
    /// A shared parameter used with another type.
    #[error(
        "{name} is shared as {expected} and used as {found}; layers that share parameters must have the same settings"
    )]
    SharedType {
        /// Name of the parameter.
        name: String,
        /// Type at its first use.
        expected: TensorType,
        /// Type at this use.
        found: TensorType,
    },
    /// The network's values exceed what 64-bit sizes can add up.
    #[error(
        "layer {layer}: the values of this network up to here take more than {limit} bytes; use a smaller batch or image"
    )]
    TooLarge {
        /// The layer that went over.
        layer: String,
        /// The largest allowed total.
        limit: Bytes,
    },
}
