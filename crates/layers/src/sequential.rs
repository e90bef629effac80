//! Layers one after the other.

use crate::{Layer, LayerError, Net, join};
use vdnn_graph::ValueId;

/// A chain of named layers. Names are joined to the chain's own with a dot, as PyTorch does.
#[derive(Default)]
pub struct Sequential {
    layers: Vec<(String, Box<dyn Layer>)>,
}

impl Sequential {
    /// An empty chain, which is the identity.
    pub fn new() -> Self {
        Sequential::default()
    }

    /// Appends a layer under a name of its own.
    #[must_use]
    pub fn then(mut self, name: &str, layer: impl Layer + 'static) -> Self {
        self.layers.push((name.to_string(), Box::new(layer)));
        self
    }

    /// Appends a layer named by its position, as `torch.nn.Sequential` names them.
    #[must_use]
    pub fn next(self, layer: impl Layer + 'static) -> Self {
        let index = self.layers.len().to_string();
        self.then(&index, layer)
    }

    /// Number of layers.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// True for the identity.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }
}

impl Layer for Sequential {
    fn push(&self, net: &mut Net, name: &str, x: ValueId) -> Result<ValueId, LayerError> {
        self.layers.iter().try_fold(x, |x, (child, layer)| layer.push(net, &join(name, child), x))
    }
}
