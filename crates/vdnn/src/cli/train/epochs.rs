//! Epochs: steps, each with the batch after it fetched and copied meanwhile, evaluations and checkpoints.
//!
//! ```text
//!   device   │ step 0 ──────────│ step 1 ──────────│         images/s are those of this row, waits included
//!   copies   │     batch 1 ──▶  │     batch 2 ──▶  │
//!   here     │ wait 1, pass it  │ wait 2, pass it  │ …       how long the loader makes wait is counted
//! ```

use super::super::data::Run;
use super::super::progress::{Progress, Shown};
use super::{TrainArgs, checkpoint_file, learning_rate};
use anyhow::Result;
use serde_json::{Value, json};
use std::time::Instant;
use vdnn_datasets::{Batch, Loader};
use vdnn_schedule::Timeline;
use vdnn_train::{
    Checkpoint, Evaluation, LearningRate, LoadedBatch, LossScale, RunState, StepResult, Trainer, WeightedMean,
};

/// What a run records.
#[derive(Default)]
pub struct Log {
    /// Losses of steps.
    pub steps: Vec<Value>,
    /// Results of epochs.
    pub epochs: Vec<Value>,
    /// The last evaluation.
    pub last: Option<Evaluation>,
    /// From the start of a step to where the next may start.
    step_seconds: Vec<f64>,
    /// Of that, spent on waiting for the loader; it costs nothing as long as the device is busy.
    wait_seconds: f64,
    images: u64,
    /// When the commands of the timed step ran, where one was to be timed.
    pub timeline: Option<Timeline>,
}

/// A step whose commands are timed is this one of a run, or the last one of a full batch where the first epoch has fewer.
const TIMED: u64 = 10;

/// A training batch on the device, and its size.
type Coming = (LoadedBatch, usize);

/// Trains all epochs.
pub fn train(args: &TrainArgs, run: &Run, trainer: &mut Trainer, log: &mut Log, seed: u64, quiet: bool) -> Result<()> {
    let loader = run.train_loader(args.epochs)?;
    let per_epoch = loader.sampler().batches_per_epoch() as u64;
    let rate = learning_rate(args, per_epoch);
    let mut left = args.max_steps.unwrap_or(u64::MAX);
    let full = (run.full_batches()? - loader.position().batch as u64).min(left);
    let timed = (args.report.is_some() && full > 0).then(|| trainer.iteration() + full.min(TIMED) - 1);
    let mut epochs = Epochs { args, run, trainer, log, loader, rate, timed };
    for epoch in run.start.epoch..args.epochs {
        let first = epochs.loader.position().batch as u64;
        let progress = Progress::start(epoch, per_epoch, first, quiet);
        let steps = (per_epoch - first).min(left);
        left -= steps;
        let loss = epochs.steps(first, steps, &progress)?;
        epochs.end(epoch, loss, progress)?;
        epochs.save(seed)?;
        if left == 0 {
            break;
        }
    }
    Ok(())
}

struct Epochs<'a> {
    args: &'a TrainArgs,
    run: &'a Run,
    trainer: &'a mut Trainer,
    log: &'a mut Log,
    loader: Loader,
    rate: LearningRate,
    /// The step whose commands are timed, counted over all of training.
    timed: Option<u64>,
}

impl Epochs<'_> {
    /// So many steps from a batch of the epoch on; the mean loss. No batch beyond them is taken from the loader, whose position a
    /// checkpoint keeps.
    fn steps(&mut self, first: u64, steps: u64, progress: &Progress) -> Result<Option<f64>> {
        let mut mean = WeightedMean::default();
        let mut started = Instant::now();
        let mut coming = match steps {
            0 => None,
            _ => self.load_next()?,
        };
        for done in 1..=steps {
            let Some((batch, len)) = coming else { break };
            let (step, waited) = (self.trainer.iteration(), self.log.wait_seconds);
            let (result, next) = self.timed_step(batch, self.rate.at(step), done < steps)?;
            let seconds = started.elapsed().as_secs_f64();
            started = Instant::now();
            self.log.step(step, &result, seconds, len as u64, self.args.log_interval);
            mean.add(result.loss, result.samples);
            // A skipped step is shown whatever the interval.
            let interval = self.args.log_interval;
            let line = result.skipped || interval > 0 && step.is_multiple_of(interval);
            let waited = self.log.wait_seconds - waited;
            progress.step(first + done, &result, Shown { images_per_second: len as f64 / seconds, waited }, line);
            coming = next;
        }
        Ok(mean.mean())
    }

    /// One step, with its commands timed if it is the one for that, or the one before, in which a device gets used to it.
    fn timed_step(&mut self, batch: LoadedBatch, rate: f64, more: bool) -> Result<(StepResult, Option<Coming>)> {
        let step = self.trainer.iteration();
        let timed = self.timed.is_some_and(|timed| step == timed || step + 1 == timed);
        self.trainer.set_timing(timed);
        let done = self.step(batch, rate, more)?;
        if timed {
            self.log.timeline = self.trainer.timeline();
        }
        Ok(done)
    }

    /// One step, and the next batch if there is to be one: copied meanwhile where there is room for it.
    fn step(&mut self, batch: LoadedBatch, rate: f64, more: bool) -> Result<(StepResult, Option<Coming>)> {
        if !more || !self.trainer.can_stage() {
            let result = self.trainer.step_loaded(batch, rate)?;
            let next = if more { self.load_next()? } else { None };
            return Ok((result, next));
        }
        let mut running = self.trainer.begin_step(batch, rate)?;
        let next = fetch(&mut self.loader, self.log)?;
        let staged = next.map(|next| (self.run.fed(&next, |feed| running.stage(feed)), next.len));
        let result = running.finish()?;
        let next = match staged {
            Some((staged, len)) => Some((self.trainer.load_staged(staged?)?, len)),
            None => None,
        };
        Ok((result, next))
    }

    fn load_next(&mut self) -> Result<Option<Coming>> {
        let Some(next) = fetch(&mut self.loader, self.log)? else { return Ok(None) };
        let loaded = self.run.fed(&next, |feed| self.trainer.load(feed))?;
        Ok(Some((loaded, next.len)))
    }

    fn end(&mut self, epoch: u64, train_loss: Option<f64>, progress: Progress) -> Result<()> {
        let result = self.run.evaluate(self.trainer)?;
        self.log.last = Some(result);
        self.log.epochs.push(json!({
            "epoch": epoch, "train_loss": train_loss, "test_loss": result.loss, "test_accuracy": result.accuracy,
        }));
        progress.finish(&format!(
            "epoch {}  train loss {:.4}  test loss {:.4}  test accuracy {:.2} %  {:.0} images/s",
            epoch + 1,
            train_loss.unwrap_or(f64::NAN),
            result.loss,
            result.accuracy * 100.0,
            self.log.images_per_second(),
        ));
        Ok(())
    }

    fn save(&mut self, seed: u64) -> Result<()> {
        let Some(folder) = &self.args.output else { return Ok(()) };
        let at = self.loader.position();
        let state = RunState {
            model: self.args.model.model.clone(),
            iteration: self.trainer.iteration(),
            epoch: at.epoch,
            batch: at.batch as u64,
            seed,
        };
        Ok(Checkpoint::take(self.trainer, state)?.save(&checkpoint_file(folder))?)
    }
}

/// The loader's next batch, and how long that took.
fn fetch(loader: &mut Loader, log: &mut Log) -> Result<Option<Batch>> {
    let started = Instant::now();
    let next = loader.next().transpose()?;
    log.wait_seconds += started.elapsed().as_secs_f64();
    Ok(next)
}

impl Log {
    fn step(&mut self, step: u64, result: &StepResult, seconds: f64, images: u64, interval: u64) {
        if result.skipped || interval > 0 && step.is_multiple_of(interval) {
            let mut entry = json!({ "step": step, "loss": result.loss });
            if let Some(LossScale { scale, .. }) = result.loss_scale {
                (entry["loss_scale"], entry["skipped"]) = (json!(scale), json!(result.skipped));
            }
            self.steps.push(entry);
        }
        self.step_seconds.push(seconds);
        self.images += images;
    }

    /// Median step in milliseconds; the first step, which warms caches up, counts only when it is alone.
    pub fn step_ms_median(&self) -> f64 {
        let warm = if self.step_seconds.len() > 1 { &self.step_seconds[1..] } else { &self.step_seconds };
        let mut sorted = warm.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).map_or(0.0, |seconds| seconds * 1e3)
    }

    /// Mean time of a step that was spent on waiting for the loader, in milliseconds.
    pub fn wait_ms(&self) -> f64 {
        self.wait_seconds * 1e3 / self.step_seconds.len().max(1) as f64
    }

    /// Training images a second, waits included.
    pub fn images_per_second(&self) -> f64 {
        let seconds: f64 = self.step_seconds.iter().sum();
        if seconds > 0.0 { self.images as f64 / seconds } else { 0.0 }
    }
}
