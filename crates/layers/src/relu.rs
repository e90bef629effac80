//! ReLU.

use crate::{Layer, LayerError, Net};
use vdnn_graph::{Op, ValueId};

/// `max(x, 0)`. It may overwrite its input; its gradient reads Y.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relu;

impl Layer for Relu {
    fn push(&self, net: &mut Net, name: &str, x: ValueId) -> Result<ValueId, LayerError> {
        net.single(name, Op::Relu, &[x])
    }
}
