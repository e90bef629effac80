//! Dynamic loss scaling (Micikevicius et al. 2018), by the rule of PyTorch's `GradScaler`.
//!
//! A guard that is not finite: the scale falls by `backoff`, the count of good steps starts again, and one more step counts as
//! skipped. Else the count goes up by one, and when that makes `interval` the scale grows by `growth` and the count starts again.
//! The scale stays within `least` and `most`.
//!
//! The last output is the number of steps that optimizers have taken, the iteration less the skipped ones: momentum starts, and
//! Adam corrects its bias, at the first step that is taken.

use super::{Inferred, arity, iteration_counter, same_type, vector};
use serde::{Deserialize, Serialize};
use vdnn_tensor::{DType, TensorType};

/// How the scale moves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScaleUpdate {
    /// Factor after `interval` good steps in a row.
    pub growth: f64,
    /// Factor after a step whose gradients are not finite.
    pub backoff: f64,
    /// Good steps in a row before the scale grows.
    pub interval: u32,
    /// The scale never falls below this.
    pub least: f64,
    /// The scale never grows beyond this.
    pub most: f64,
}

impl Default for LossScaleUpdate {
    fn default() -> Self {
        LossScaleUpdate { growth: 2.0, backoff: 0.5, interval: 2000, least: 1.0, most: 16_777_216.0 }
    }
}

impl LossScaleUpdate {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 5..=5)?;
        let (scale, count) = (inputs[0], TensorType::new([1], DType::I32));
        vector("the scale", 1, scale, scale)?;
        same_type("good steps", &count, inputs[1])?;
        same_type("skipped steps", &count, inputs[2])?;
        same_type("the guard", scale, inputs[3])?;
        iteration_counter(inputs[4])?;
        let ordered = self.growth >= 1.0 && 0.0 < self.backoff && self.backoff <= 1.0;
        let bounded = 0.0 < self.least && self.least <= self.most && self.most.is_finite();
        if !ordered || !bounded || self.interval == 0 {
            return Err(format!(
                "expected growth ≥ 1, backoff in (0, 1], interval ≥ 1 and 0 < least ≤ most, found {self:?}"
            ));
        }
        Ok([0, 1, 2, 4].map(|input: usize| inputs[input].clone()).to_vec())
    }
}
