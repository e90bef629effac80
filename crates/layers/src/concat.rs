//! Concatenation along the channels.

use crate::{LayerError, Net};
use vdnn_graph::{Op, ValueId, op};

/// The channels of `parts` one after the other. Producers usually write their part in place.
///
/// # Errors
/// [`LayerError::Graph`] when the parts differ in more than their channels, or there are none.
pub fn concat(net: &mut Net, name: &str, parts: &[ValueId]) -> Result<ValueId, LayerError> {
    net.single(name, Op::Concat(op::Concat::default()), parts)
}
