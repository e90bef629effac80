//! The learning rate of each step: linear warm-up, then constant, stepwise or cosine decay.

/// How the rate falls after warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decay {
    /// It stays.
    Constant,
    /// It is multiplied by `factor` every `every` steps.
    Step {
        /// Steps between drops.
        every: u64,
        /// What it is multiplied by.
        factor: f64,
    },
    /// Half a cosine from the base rate to `least` at the last step (Loshchilov & Hutter 2017).
    Cosine {
        /// The rate at the end.
        least: f64,
    },
}

/// A schedule of learning rates over a whole run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearningRate {
    /// The rate after warm-up.
    pub base: f64,
    /// Steps of linear warm-up; step 0 already has `base / warmup`.
    pub warmup: u64,
    /// Steps of the whole run.
    pub total: u64,
    /// How it falls.
    pub decay: Decay,
}

impl LearningRate {
    /// The rate of a step.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.base * (step + 1) as f64 / self.warmup as f64;
        }
        let past = step - self.warmup;
        match self.decay {
            Decay::Constant => self.base,
            Decay::Step { every, factor } => self.base * factor.powf((past / every.max(1)) as f64),
            Decay::Cosine { least } => {
                let span = self.total.saturating_sub(self.warmup).max(1);
                let turn = std::f64::consts::PI * (past.min(span) as f64 / span as f64);
                least + (self.base - least) * 0.5 * (1.0 + turn.cos())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warms_up_then_falls() {
        let rate = LearningRate { base: 0.4, warmup: 4, total: 104, decay: Decay::Cosine { least: 0.0 } };
        assert!((rate.at(0) - 0.1).abs() < 1e-12);
        assert!((rate.at(3) - 0.4).abs() < 1e-12);
        assert!((rate.at(54) - 0.2).abs() < 1e-12);
        assert!(rate.at(104).abs() < 1e-12 && rate.at(1000).abs() < 1e-12);
        let steps = LearningRate { decay: Decay::Step { every: 10, factor: 0.5 }, warmup: 0, ..rate };
        assert_eq!((steps.at(9), steps.at(10), steps.at(25)), (0.4, 0.2, 0.1));
    }
}
