//! A module called again: new nodes, the same parameters.

use crate::{Layer, LayerError, Net};
use vdnn_graph::ValueId;

/// Pushes `layer` with the parameters and states of the layer already pushed under `of`.
///
/// Sharing is asked for by name and never happens by accident: two layers of one name are an error.
#[derive(Clone, Debug, PartialEq)]
pub struct Reuse<L> {
    /// The layer, with the settings of its first use.
    pub layer: L,
    /// Name of the first use.
    pub of: String,
}

impl<L: Layer> Reuse<L> {
    /// `layer` with the parameters of `of`.
    pub fn new(layer: L, of: &str) -> Self {
        Reuse { layer, of: of.to_string() }
    }
}

impl<L: Layer> Layer for Reuse<L> {
    fn push(&self, net: &mut Net, name: &str, x: ValueId) -> Result<ValueId, LayerError> {
        net.sharing(name, &self.of, |net| self.layer.push(net, name, x))
    }
}
