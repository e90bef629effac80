//! Dropout. The mask is a function of (seed, stream, iteration, element), never stored, so a second run sees it again.
//!
//! Element e of the tensor (logical order) uses word e mod 4 of the Philox block with counter
//! (e/4 low, e/4 high, iteration low, iteration high) and key (seed low ⊕ stream, seed high); it is dropped when
//! word < ⌊p · 2³²⌋, else scaled by 1 / (1 − p).

use super::{Inferred, arity, iteration_counter};
use serde::{Deserialize, Serialize};
use vdnn_tensor::TensorType;

/// Attributes of dropout.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dropout {
    /// Probability of dropping an element, in [0, 1).
    pub p: f64,
    /// Seed of the run.
    pub seed: u64,
    /// Tells this layer's mask from other layers'.
    pub stream: u32,
}

impl Dropout {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 2..=2)?;
        if !(0.0..1.0).contains(&self.p) {
            return Err(format!("expected a probability in [0, 1), found {}", self.p));
        }
        iteration_counter(inputs[1])?;
        Ok(vec![inputs[0].clone()])
    }

    /// Elements whose random word lies below this are dropped.
    pub fn threshold(&self) -> u32 {
        (self.p * 4_294_967_296.0) as u32
    }

    /// The Philox key of this layer.
    pub fn key(&self) -> [u32; 2] {
        [self.seed as u32 ^ self.stream, (self.seed >> 32) as u32]
    }

    /// What kept elements are multiplied by.
    pub fn scale(&self) -> f64 {
        1.0 / (1.0 - self.p)
    }
}
