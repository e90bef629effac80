//! `vdnn train`: epochs over a data set, with checkpoints.

use super::Report;
use super::args::{DataArgs, DeviceArgs, ModelArgs, OptimizerArgs, PlanArgs, number};
use super::progress::{Progress, in_words};
use super::resolve::{self, BuildError};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use vdnn::device::DeviceName;
use vdnn_datasets::registry::{self, OpenOptions};
use vdnn_datasets::{LastBatch, Loader, LoaderOptions, Order, Position, Sampler, Source, Splits};
use vdnn_layers::{Mode, Net};
use vdnn_runtime::Device;
use vdnn_schedule::{Direction, Space};
use vdnn_tensor::format_bytes;
use vdnn_train::{
    Checkpoint, Decay, Evaluation, EvaluationSum, Feed, LearningRate, LossScale, Recipe, RunState, StepResult, Trainer,
    WeightedMean,
};

/// More kernel threads than any processor has cores for.
const MAX_THREADS: usize = 1024;

/// Options of `vdnn train`.
#[derive(Args)]
pub struct TrainArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    optimizer: OptimizerArgs,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Passes over the data.
    #[arg(long, default_value_t = 5)]
    epochs: u64,
    /// End after this many steps.
    #[arg(long)]
    max_steps: Option<u64>,
    /// Learning rate after warm-up.
    #[arg(long, value_parser = number, default_value_t = 0.05)]
    lr: f64,
    /// How the learning rate falls.
    #[arg(long, value_enum, default_value_t = Sched::Cosine)]
    sched: Sched,
    /// Epochs of linear warm-up.
    #[arg(long, value_parser = number, default_value_t = 0.5)]
    warmup_epochs: f64,
    /// Epochs between drops of `--sched step`.
    #[arg(long, default_value_t = 30)]
    decay_epochs: u64,
    /// Factor of a drop of `--sched step`.
    #[arg(long, value_parser = number, default_value_t = 0.1)]
    decay_rate: f64,
    /// What becomes of a last batch that is not full.
    #[arg(long, value_enum, default_value_t = Last::Keep)]
    last_batch: Last,
    /// Folder for checkpoints.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Go on from this checkpoint (a file, or a folder given to `--output`).
    #[arg(long)]
    resume: Option<PathBuf>,
    /// Steps between lines and recorded losses.
    #[arg(long, default_value_t = 20)]
    log_interval: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sched {
    Constant,
    Step,
    Cosine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Last {
    /// A smaller batch with a schedule of its own.
    Keep,
    /// Left out.
    Drop,
}

/// Trains and reports.
pub fn run(args: &TrainArgs, quiet: bool) -> Result<Report> {
    let resumed = args.resume.as_deref().map(|path| load_resume(path, args)).transpose()?;
    let seed = resumed.as_ref().map_or(args.model.seed.unwrap_or(0), |(_, state, _)| state.seed);
    let splits = open_data(&args.data, &args.model, seed)?;
    let build = with_data_shape(&args.model, &splits, seed)?;
    let name = resolve::device(args.device.device, args.model.dtype)?;
    let mut device = open_device(name, &args.device)?;
    device.set_disk_folder(&resolve::disk_folder(&args.plan.method));
    let (samples, batch_size) = (splits.train.len(), args.model.batch_size);
    if batch_size > samples as u64 {
        bail!("--batch-size: expected at most the {samples} training images there are, found {batch_size}");
    }
    let mut run = Run::new(&splits, batch_size, seed, args.data.workers)?;
    run.last = if args.last_batch == Last::Keep { LastBatch::Keep } else { LastBatch::Drop };
    let recipe = recipe(args, &run, name, seed)?;
    let mut trainer = Trainer::new(&build, device, &recipe)?;
    if let Some(path) = &args.plan.out {
        resolve::write_schedule(path, &trainer.planned().schedule)?;
    }
    if let Some((checkpoint, state, path)) = &resumed {
        checkpoint.restore(&mut trainer, path)?;
        run.start = Position { epoch: state.epoch, batch: state.batch as usize };
    }
    if let Some(folder) = &args.output {
        probe_output(folder, &mut trainer)?;
    }
    let mut log = Log::default();
    train_epochs(args, &mut run, &mut trainer, &mut log, seed, quiet)?;
    report(args, &mut trainer, &log)
}

fn recipe(args: &TrainArgs, run: &Run, device: DeviceName, seed: u64) -> Result<Recipe> {
    let sampler = run.train_sampler()?;
    Ok(Recipe {
        batch_size: args.model.batch_size.min(sampler.batch_len(0) as u64),
        partial_batches: sampler.partial_len().map(|len| len as u64).into_iter().collect(),
        eval_batches: run.eval_sizes(),
        optimization: resolve::optimization(&args.optimizer)?,
        settings: resolve::settings(&args.plan, device.links(), false)?,
        deterministic: args.plan.deterministic,
        seed,
    })
}

/// What a run records.
#[derive(Default)]
struct Log {
    steps: Vec<Value>,
    epochs: Vec<Value>,
    step_seconds: Vec<f64>,
    images: u64,
    last: Option<Evaluation>,
}

fn train_epochs(
    args: &TrainArgs,
    run: &mut Run,
    trainer: &mut Trainer,
    log: &mut Log,
    seed: u64,
    quiet: bool,
) -> Result<()> {
    let sampler = run.train_sampler()?;
    let per_epoch = sampler.batches_per_epoch() as u64;
    let rate = learning_rate(args, per_epoch);
    let mut left = args.max_steps.unwrap_or(u64::MAX);
    let options =
        LoaderOptions { start: run.start, epochs: args.epochs, workers: run.workers, ..LoaderOptions::default() };
    let mut loader = Loader::new(Arc::clone(&run.splits.train), sampler, &options)?;
    for epoch in run.start.epoch..args.epochs {
        let first = loader.position().batch as u64;
        let progress = Progress::start(epoch, per_epoch, first, quiet);
        let mut mean = WeightedMean::default();
        for batch in first..per_epoch {
            if left == 0 {
                break;
            }
            left -= 1;
            let Some(next) = loader.next() else { break };
            let next = next?;
            let step = trainer.iteration();
            let started = Instant::now();
            let feed = Feed { images: &next.images, labels: &next.labels };
            let result = trainer.step(feed, rate.at(step))?;
            let seconds = started.elapsed().as_secs_f64();
            log.step(step, &result, seconds, next.len as u64, args.log_interval);
            mean.add(result.loss, result.samples);
            // A skipped step is shown whatever the interval.
            let line = result.skipped || args.log_interval > 0 && step.is_multiple_of(args.log_interval);
            progress.step(batch + 1, &result, next.len as f64 / seconds, line);
        }
        end_epoch(run, trainer, log, epoch, mean.mean(), progress)?;
        if let Some(folder) = &args.output {
            let at = loader.position();
            let state = RunState {
                model: args.model.model.clone(),
                iteration: trainer.iteration(),
                epoch: at.epoch,
                batch: at.batch as u64,
                seed,
            };
            Checkpoint::take(trainer, state)?.save(&checkpoint_file(folder))?;
        }
        if left == 0 {
            break;
        }
    }
    Ok(())
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
    fn step_ms_median(&self) -> f64 {
        let warm = if self.step_seconds.len() > 1 { &self.step_seconds[1..] } else { &self.step_seconds };
        let mut sorted = warm.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).map_or(0.0, |seconds| seconds * 1e3)
    }

    fn images_per_second(&self) -> f64 {
        let seconds: f64 = self.step_seconds.iter().sum();
        if seconds > 0.0 { self.images as f64 / seconds } else { 0.0 }
    }
}

fn end_epoch(
    run: &mut Run,
    trainer: &mut Trainer,
    log: &mut Log,
    epoch: u64,
    train_loss: Option<f64>,
    progress: Progress,
) -> Result<()> {
    let result = run.evaluate(trainer)?;
    log.last = Some(result);
    log.epochs.push(json!({
        "epoch": epoch, "train_loss": train_loss, "test_loss": result.loss, "test_accuracy": result.accuracy,
    }));
    progress.finish(&format!(
        "epoch {}  train loss {:.4}  test loss {:.4}  test accuracy {:.2} %  {:.0} images/s",
        epoch + 1,
        train_loss.unwrap_or(f64::NAN),
        result.loss,
        result.accuracy * 100.0,
        log.images_per_second(),
    ));
    Ok(())
}

fn learning_rate(args: &TrainArgs, per_epoch: u64) -> LearningRate {
    let decay = match args.sched {
        Sched::Constant => Decay::Constant,
        Sched::Step => Decay::Step { every: args.decay_epochs.saturating_mul(per_epoch), factor: args.decay_rate },
        Sched::Cosine => Decay::Cosine { least: 0.0 },
    };
    LearningRate {
        base: args.lr,
        warmup: (args.warmup_epochs * per_epoch as f64) as u64,
        total: args.epochs.saturating_mul(per_epoch),
        decay,
    }
}

fn report(args: &TrainArgs, trainer: &mut Trainer, log: &Log) -> Result<Report> {
    let description = trainer.description();
    let (planned, measured) = (trainer.peak_bytes(Space::Device), trainer.measured_peak());
    let schedule = Arc::clone(&trainer.planned().schedule);
    let sha256 = trainer.weights_sha256()?;
    let scaled = trainer.loss_scale()?;
    let (offload, prefetch) =
        (schedule.transfer_bytes(Direction::Offload), schedule.transfer_bytes(Direction::Prefetch));
    let document = json!({
        "device": description.name,
        "device_details": description.details,
        "model": args.model.model,
        "policy": schedule.policy,
        "steps": log.steps,
        "epochs": log.epochs,
        "test_accuracy": log.last.map(|result| result.accuracy),
        "images_per_second": log.images_per_second(),
        "context_bytes": description.context_bytes,
        "step_ms_median": log.step_ms_median(),
        "planned_peak_bytes": planned,
        "measured_peak_bytes": measured,
        "host_peak_bytes": trainer.peak_bytes(Space::Host),
        "measured_host_peak_bytes": trainer.measured_host_peak(),
        "disk_peak_bytes": trainer.peak_bytes(Space::Disk),
        "offload_bytes_per_step": offload,
        "prefetch_bytes_per_step": prefetch,
        "disk_write_bytes_per_step": schedule.disk_bytes(Direction::Offload),
        "disk_read_bytes_per_step": schedule.disk_bytes(Direction::Prefetch),
        "loss_scale": scaled.map(|now| now.scale),
        "skipped_steps": scaled.map(|now| now.skipped_steps),
        "weights_sha256": sha256,
    });
    let scaled = scaled.map_or(String::new(), |now| format!("{}\n", in_words(now)));
    let accuracy = log.last.map_or("not measured".to_string(), |r| format!("{:.2} %", r.accuracy * 100.0));
    let text = format!(
        "{} on {} under {}: test accuracy {accuracy}, {:.0} images/s, {:.1} ms a step\n\
         device memory: planned {} ({planned} bytes), measured {}; offloaded {} a step\n\
         {scaled}weights sha256 {sha256}",
        args.model.model,
        description.name,
        schedule.policy,
        log.images_per_second(),
        log.step_ms_median(),
        format_bytes(planned),
        measured.map_or("not measured".to_string(), |bytes| format!("{} ({bytes} bytes)", format_bytes(bytes))),
        format_bytes(offload),
    );
    Ok(Report::new(document, text))
}

/// Opens a device, as its arguments say.
pub fn open_device(name: DeviceName, args: &DeviceArgs) -> Result<Box<dyn Device>> {
    let mut device: Box<dyn Device> = match (name, args.threads) {
        (_, Some(found)) if !(1..=MAX_THREADS).contains(&found) => {
            bail!("--threads: expected 1 to {MAX_THREADS}, found {found}")
        }
        (DeviceName::Cpu, Some(threads)) => Box::new(vdnn_runtime::CpuDevice::with_threads(threads)?),
        _ => vdnn::device::open_device(name)?,
    };
    device.set_replay(!args.no_replay);
    Ok(device)
}

/// Opens the data set, with the images as large as asked for, or of the network's own size where the data can be made so.
pub fn open_data(data: &DataArgs, model: &ModelArgs, seed: u64) -> Result<Splits<Arc<dyn Source>>> {
    let synthetic = data.data == "synthetic";
    let spec = vdnn_models::find(&model.model)?;
    let own = synthetic.then_some(spec.image_size);
    let options = OpenOptions {
        folder: data.data_dir.as_deref(),
        image_size: model.image_size.or(own).map(|size| size as usize),
        n_classes: if synthetic { Some(model.classes.unwrap_or(spec.classes) as usize) } else { None },
        n_samples: data.samples,
        seed,
    };
    Ok(registry::open(&data.data, &options)?)
}

/// A network builder for images and classes as the data set has them.
pub fn with_data_shape(
    model: &ModelArgs,
    splits: &Splits<Arc<dyn Source>>,
    seed: u64,
) -> Result<impl Fn(u64, Mode) -> Result<Net, BuildError> + use<>> {
    let [channels, height, _] = splits.train.shape();
    let classes = splits.train.classes().len() as u64;
    if model.classes.is_some_and(|asked| asked < classes) {
        bail!("--classes: the data set has {classes} classes, found {}", model.classes.unwrap_or(0));
    }
    resolve::network(model, Some(height as u64), Some(channels as u64), Some(classes), seed)
}

/// The data of a run and how it is walked through.
pub struct Run {
    splits: Splits<Arc<dyn Source>>,
    batch_size: usize,
    seed: u64,
    workers: usize,
    last: LastBatch,
    start: Position,
}

impl Run {
    /// A run over a data set from its start.
    pub fn new(splits: &Splits<Arc<dyn Source>>, batch_size: u64, seed: u64, workers: usize) -> Result<Self> {
        let batch_size = usize::try_from(batch_size).context("--batch-size")?;
        let splits = Splits { train: Arc::clone(&splits.train), test: Arc::clone(&splits.test) };
        let start = Position { epoch: 0, batch: 0 };
        Ok(Run { splits, batch_size, seed, workers, last: LastBatch::Keep, start })
    }

    fn train_sampler(&self) -> Result<Sampler> {
        Ok(Sampler::new(self.splits.train.len(), self.batch_size, Order::Shuffled { seed: self.seed }, self.last)?)
    }

    fn eval_sampler(&self) -> Result<Sampler> {
        let batch = self.batch_size.min(self.splits.test.len().max(1));
        Ok(Sampler::new(self.splits.test.len(), batch, Order::Sequential, LastBatch::Keep)?)
    }

    /// Sizes of evaluation batches: the full one and the last.
    pub fn eval_sizes(&self) -> Vec<u64> {
        let Ok(sampler) = self.eval_sampler() else { return Vec::new() };
        let full = (sampler.batches_per_epoch() > 0).then(|| sampler.batch_len(0) as u64);
        full.into_iter().chain(sampler.partial_len().map(|len| len as u64)).collect()
    }

    /// Loss and accuracy over the test part.
    pub fn evaluate(&mut self, trainer: &mut Trainer) -> Result<Evaluation> {
        let options = LoaderOptions { epochs: 1, workers: self.workers, ..LoaderOptions::default() };
        let mut sum = EvaluationSum::default();
        for batch in Loader::new(Arc::clone(&self.splits.test), self.eval_sampler()?, &options)? {
            let batch = batch?;
            trainer.evaluate_batch(Feed { images: &batch.images, labels: &batch.labels }, &mut sum)?;
        }
        sum.result().context("the data set has no test images")
    }
}

/// The checkpoint file for a path that may be a folder.
pub fn checkpoint_file(path: &Path) -> PathBuf {
    let is_file = path.extension().is_some_and(|ending| ending == "safetensors");
    if is_file { path.to_path_buf() } else { path.join("checkpoint.safetensors") }
}

fn load_resume(path: &Path, args: &TrainArgs) -> Result<(Checkpoint, RunState, PathBuf)> {
    let file = checkpoint_file(path);
    let checkpoint = Checkpoint::load(&file)?;
    let Some(state) = checkpoint.state.clone() else {
        bail!("{} holds weights but no run to go on with", file.display());
    };
    if state.model != args.model.model {
        bail!("{}: expected a checkpoint of {}, found one of {}", file.display(), args.model.model, state.model);
    }
    if let Some(seed) = args.model.seed.filter(|&seed| seed != state.seed) {
        bail!("{} was made with seed {}, found --seed {seed}; leave --seed out to go on", file.display(), state.seed);
    }
    Ok((checkpoint, state, file))
}

/// Finds out before the first step whether checkpoints can be written: as many bytes as one needs, then removed.
fn probe_output(folder: &Path, trainer: &mut Trainer) -> Result<()> {
    let file = checkpoint_file(folder);
    let parent = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).with_context(|| format!("cannot make the folder {}", parent.display()))?;
    let probe = file.with_extension("probe");
    let tensors = trainer.tensors()?.into_iter().map(|(name, _, tensor)| (name, tensor)).collect();
    let saved = Checkpoint { state: None, tensors }.save(&probe);
    let _ = std::fs::remove_file(&probe);
    saved.with_context(|| format!("checkpoints cannot be written to {}", parent.display()))
}
