//! Elementwise addition: the join of a residual branch.

use crate::{LayerError, Net};
use vdnn_graph::{Op, ValueId};

/// `a + b`, of one type.
///
/// # Errors
/// [`LayerError::Graph`] when the types differ.
pub fn add(net: &mut Net, name: &str, a: ValueId, b: ValueId) -> Result<ValueId, LayerError> {
    net.single(name, Op::Add, &[a, b])
}
