//! Dropout.

use crate::{Layer, LayerError, Mode, Net, stable_hash};
use vdnn_graph::{Op, ValueId, op};

/// Sets each element to 0 with probability `p` and scales the others by 1 / (1 − p).
///
/// Pushes nothing in evaluation or at p = 0. The mask is a function of the network's seed, the layer's name and the
/// iteration, so a recomputed dropout drops the same elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout(pub f64);

impl Layer for Dropout {
    fn push(&self, net: &mut Net, name: &str, x: ValueId) -> Result<ValueId, LayerError> {
        if !(0.0..1.0).contains(&self.0) {
            let expected = "a probability of dropping in [0, 1)";
            return Err(LayerError::Setting { layer: name.to_string(), expected, found: self.0.to_string() });
        }
        if net.mode() == Mode::Eval || self.0 == 0.0 {
            return Ok(x);
        }
        let hash = stable_hash(name);
        let stream = (hash ^ (hash >> 32)) as u32;
        let dropout = op::Dropout { p: self.0, seed: net.options().seed, stream };
        let iteration = net.iteration();
        net.single(name, Op::Dropout(dropout), &[x, iteration])
    }
}
