//! Local response normalisation across channels, as in the original AlexNet.

use crate::{Layer, LayerError, Net};
use vdnn_graph::{Op, ValueId, op};

/// Local response normalisation; see [`op::LocalResponseNorm`] for the formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalResponseNorm(op::LocalResponseNorm);

impl LocalResponseNorm {
    /// A window of `size` channels with AlexNet's constants: alpha 1e-4, beta 0.75, k 2.
    pub fn new(size: u64) -> Self {
        LocalResponseNorm(op::LocalResponseNorm { size, alpha: 1e-4, beta: 0.75, k: 2.0 })
    }

    /// Any constants.
    pub fn with(norm: op::LocalResponseNorm) -> Self {
        LocalResponseNorm(norm)
    }
}

impl Layer for LocalResponseNorm {
    fn push(&self, net: &mut Net, name: &str, x: ValueId) -> Result<ValueId, LayerError> {
        net.single(name, Op::LocalResponseNorm(self.0), &[x])
    }
}
