//! Flatten: the same bytes as a matrix.

use crate::{Layer, LayerError, Net};
use vdnn_graph::{Op, ValueId};

/// `[N, C, H, W]` → `[N, C·H·W]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flatten;

impl Layer for Flatten {
    fn push(&self, net: &mut Net, name: &str, x: ValueId) -> Result<ValueId, LayerError> {
        net.single(name, Op::Flatten, &[x])
    }
}
