//! What a run in f16 shows of its loss scale, and when it cannot go on. The scale itself lives and moves on the device.

use crate::TrainError;
use vdnn_graph::op::LossScaleUpdate;

/// The scale that a run starts with, PyTorch's.
pub const INITIAL_LOSS_SCALE: f64 = 65_536.0;

/// The loss scale after a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScale {
    /// What the loss's gradient is multiplied with in the next step.
    pub scale: f64,
    /// Steps that changed no parameter, over the whole run, since gradients were not finite.
    pub skipped_steps: u64,
}

/// Follows the scale from step to step.
#[derive(Debug, Default)]
pub(crate) struct LossScaling {
    /// After the last step; `None` when it has to be read again.
    pub(crate) last: Option<LossScale>,
    in_a_row: u64,
}

impl LossScaling {
    /// Whether a step was skipped.
    ///
    /// # Errors
    /// [`TrainError::LossScale`] when it was although the scale could not be smaller: no later scale helps.
    pub(crate) fn follow(&mut self, step: u64, before: LossScale, after: LossScale) -> Result<bool, TrainError> {
        self.last = Some(after);
        let skipped = after.skipped_steps > before.skipped_steps;
        self.in_a_row = if skipped { self.in_a_row + 1 } else { 0 };
        if skipped && before.scale <= LossScaleUpdate::default().least {
            return Err(TrainError::LossScale { step, scale: before.scale, in_a_row: self.in_a_row });
        }
        Ok(skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_step_at_the_least_scale_ends_the_run() {
        let mut scaling = LossScaling::default();
        let at = |scale, skipped_steps| LossScale { scale, skipped_steps };
        assert!(!scaling.follow(0, at(1.0, 7), at(1.0, 7)).unwrap());
        assert!(scaling.follow(1, at(4.0, 7), at(2.0, 8)).unwrap());
        assert!(scaling.follow(2, at(2.0, 8), at(1.0, 9)).unwrap());
        let error = scaling.follow(3, at(1.0, 9), at(1.0, 10)).unwrap_err();
        assert!(matches!(error, TrainError::LossScale { step: 3, in_a_row: 3, .. }), "{error}");
        let words = error.to_string();
        assert!(["loss scale", "bf16", "smaller learning rate"].iter().all(|word| words.contains(word)), "{words}");
    }
}
