//! The layer graph: values, ops with their shape rules, linear order and aliasing. It runs nothing.
//!
//! [`passes`] turn a finished graph into another before it is differentiated.
//!
//! A [`Graph`] grows by [`Graph::push`], which applies the op's shape rule, so a graph that exists is well typed.
//! Nodes may only read values that exist already: push order is a topological order, and no traversal here recurses.

mod alias;
mod error;
mod graph;
pub mod op;
pub mod passes;
mod plain;
mod program;
mod text;

pub use alias::{Aliases, InPlace, Location};
pub use error::GraphError;
pub use graph::{Graph, Layer, LayerId, Node, NodeId, Persistent, Phase, Precision, Role, Value, ValueId};
pub use op::Op;
pub use program::{Program, Step, Use};
