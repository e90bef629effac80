//! One step, one evaluation, and the loss scale that follows from a step.

use super::Trainer;
use super::feeding::{LoadedBatch, StagedBatch, counted, in_dtype};
use crate::loss_scale::LossScaling;
use crate::{Feed, LossScale, TrainError, WeightedMean};
use vdnn_autograd::{LOSS_SCALE, SKIPPED_STEPS};
use vdnn_runtime::ScheduleId;
use vdnn_tensor::DType;

/// What a training step gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// Mean loss of the batch, before the update.
    pub loss: f64,
    /// Right answers in the batch.
    pub correct: u64,
    /// Labels that count.
    pub samples: u64,
    /// True when the update was left out because gradients were not finite, which only happens in f16.
    pub skipped: bool,
    /// The loss scale from here on, where there is one.
    pub loss_scale: Option<LossScale>,
}

/// What an evaluation gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean loss over all samples.
    pub loss: f64,
    /// Share of right answers, in [0, 1].
    pub accuracy: f64,
    /// Number of samples.
    pub samples: u64,
}

/// An evaluation under way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EvaluationSum {
    loss: WeightedMean,
    correct: u64,
}

impl EvaluationSum {
    /// The result over all samples; `None` without any.
    pub fn result(&self) -> Option<Evaluation> {
        let loss = self.loss.mean()?;
        let samples = self.loss.count();
        Some(Evaluation { loss, accuracy: self.correct as f64 / samples as f64, samples })
    }
}

/// A step that the device is working on. All that can be done meanwhile is to [stage](RunningStep::stage) the next batch.
/// Dropped, it waits for the device: the step counts, and what came of it is not told.
#[must_use = "RunningStep::finish says what became of it"]
pub struct RunningStep<'a> {
    trainer: &'a mut Trainer,
    batch: LoadedBatch,
    before: Option<LossScale>,
    joined: bool,
}

impl RunningStep<'_> {
    /// As [`Trainer::stage`].
    ///
    /// # Errors
    /// As [`Trainer::stage`].
    pub fn stage(&mut self, feed: Feed<'_>) -> Result<StagedBatch, TrainError> {
        self.trainer.stage(feed)
    }

    /// Waits for the step.
    ///
    /// # Errors
    /// As [`Trainer::step_loaded`].
    pub fn finish(mut self) -> Result<StepResult, TrainError> {
        self.end()
    }

    fn end(&mut self) -> Result<StepResult, TrainError> {
        self.joined = true;
        self.trainer.executor.finish()?;
        self.trainer.outcome(self.batch, self.before)
    }
}

impl Drop for RunningStep<'_> {
    fn drop(&mut self) {
        if !self.joined {
            // Nobody is left to hear of a failure; the device reports one that lasts to the next call.
            let _ = self.end();
        }
    }
}

impl Trainer {
    /// Runs one iteration on a batch.
    ///
    /// # Errors
    /// As [`Trainer::load`] and [`Trainer::step_loaded`].
    pub fn step(&mut self, feed: Feed<'_>, learning_rate: f64) -> Result<StepResult, TrainError> {
        let batch = self.load(feed)?;
        self.step_loaded(batch, learning_rate)
    }

    /// Runs one iteration on the batch loaded last.
    ///
    /// # Errors
    /// [`TrainError::NotFinite`] when the loss is no number, [`TrainError::LossScale`] when gradients overflow f16 whatever the
    /// scale (the parameters are then as before the step), or a device failure.
    pub fn step_loaded(&mut self, batch: LoadedBatch, learning_rate: f64) -> Result<StepResult, TrainError> {
        self.begin_step(batch, learning_rate)?.finish()
    }

    /// Starts an iteration on the batch loaded last and does not wait for it.
    ///
    /// # Errors
    /// A device failure.
    pub fn begin_step(&mut self, batch: LoadedBatch, learning_rate: f64) -> Result<RunningStep<'_>, TrainError> {
        let LoadedBatch { id, .. } = batch;
        self.executor.write(id, "iteration", &self.iteration.to_le_bytes())?;
        self.executor.write(id, "learning_rate", &in_dtype(&[learning_rate as f32], self.dtype))?;
        let before = self.loss_scale()?;
        self.executor.start(id)?;
        Ok(RunningStep { trainer: self, batch, before, joined: false })
    }

    /// What came of an iteration that has ended.
    fn outcome(&mut self, batch: LoadedBatch, before: Option<LossScale>) -> Result<StepResult, TrainError> {
        let (LoadedBatch { id, samples }, step) = (batch, self.iteration);
        let loss = self.metric(id, "loss")?;
        // Where the device counts skipped steps, a step that ends the run is one.
        self.iteration += u64::from(loss.is_finite() || before.is_some());
        let skipped = before.map_or(Ok(false), |before| self.follow_loss_scale(step, before));
        if !loss.is_finite() {
            return Err(TrainError::NotFinite { step, loss });
        }
        let (correct, skipped, loss_scale) = (self.metric(id, "accuracy")? as u64, skipped?, self.loss_scale()?);
        Ok(StepResult { loss, correct, samples, skipped, loss_scale })
    }

    /// Where training scales the loss (in f16): the scale, and how many steps were skipped.
    ///
    /// # Errors
    /// A device failure.
    pub fn loss_scale(&mut self) -> Result<Option<LossScale>, TrainError> {
        match &self.scaling {
            Some(LossScaling { last: None, .. }) => Ok(Some(self.read_loss_scale()?)),
            Some(scaling) => Ok(scaling.last),
            None => Ok(None),
        }
    }

    fn read_loss_scale(&mut self) -> Result<LossScale, TrainError> {
        let id = self.full().id;
        let skipped = self.executor.read(id, SKIPPED_STEPS)?;
        let skipped = skipped.first_chunk().map_or(0, |&word| i32::from_le_bytes(word));
        let read = LossScale { scale: self.metric(id, LOSS_SCALE)?, skipped_steps: skipped.max(0) as u64 };
        if let Some(scaling) = &mut self.scaling {
            scaling.last = Some(read);
        }
        Ok(read)
    }

    fn follow_loss_scale(&mut self, step: u64, before: LossScale) -> Result<bool, TrainError> {
        let after = self.read_loss_scale()?;
        self.scaling.as_mut().map_or(Ok(false), |scaling| scaling.follow(step, before, after))
    }

    /// Evaluates batches, one feed at a time.
    ///
    /// # Errors
    /// [`TrainError::BatchSize`] for a size without a schedule, [`TrainError::Images`] as for [`Trainer::load`], or a device
    /// failure.
    pub fn evaluate_batch(&mut self, feed: Feed<'_>, into: &mut EvaluationSum) -> Result<(), TrainError> {
        let id = self.accept_for_evaluation(feed)?;
        self.feed(id, feed)?;
        self.executor.run(id)?;
        let samples = counted(feed.labels);
        into.loss.add(self.metric(id, "loss")?, samples);
        into.correct += self.metric(id, "accuracy")? as u64;
        Ok(())
    }

    fn metric(&mut self, id: ScheduleId, name: &str) -> Result<f64, TrainError> {
        let bytes = self.executor.read(id, name)?;
        let number = match self.dtype {
            DType::F64 => bytes.first_chunk().map(|&word| f64::from_le_bytes(word)),
            _ => bytes.first_chunk().map(|&word| f64::from(f32::from_le_bytes(word))),
        };
        Ok(number.unwrap_or(f64::NAN))
    }
}
