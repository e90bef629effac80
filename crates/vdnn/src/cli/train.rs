//! `vdnn train`: epochs over a data set, with checkpoints.

mod epochs;
mod page;

use super::Report;
use super::args::{DataArgs, DeviceArgs, ModelArgs, OptimizerArgs, PlanArgs, number};
use super::data::{Run, open_data, with_data_shape};
use super::progress::in_words;
use super::{resolve, split};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use epochs::Log;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vdnn::device::DeviceName;
use vdnn_datasets::{LastBatch, Position};
use vdnn_runtime::Device;
use vdnn_schedule::{Direction, Space};
use vdnn_tensor::format_bytes;
use vdnn_train::{Checkpoint, Decay, LearningRate, Recipe, RunState, TrainError, Trainer};

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
    /// Copy each batch before its step, not the next one while a step runs. The device then holds one batch, not two.
    #[arg(long)]
    no_staging: bool,
    /// Folder for checkpoints.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Go on from this checkpoint (a file, or a folder given to `--output`).
    #[arg(long)]
    resume: Option<PathBuf>,
    /// Write one HTML page of this run to this file, as `vdnn report` does, with the times that commands took in one step: the
    /// tenth, or the last one of a full batch where the first epoch ends before.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
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
    args.report.as_deref().map_or(Ok(()), resolve::check_folder)?;
    let resumed = args.resume.as_deref().map(|path| load_resume(path, args)).transpose()?;
    let seed = resumed.as_ref().map_or(args.model.seed.unwrap_or(0), |(_, state, _)| state.seed);
    let splits = open_data(&args.data, &args.model, seed)?;
    let build = with_data_shape(&args.model, &splits, args.data.images, seed)?;
    let name = resolve::device(args.device.device, args.model.dtype)?;
    let mut device = open_device(name, &args.device)?;
    device.set_disk_folder(&resolve::disk_folder(&args.plan.method));
    let (samples, batch_size) = (splits.train.len(), args.model.batch_size);
    if batch_size > samples as u64 {
        bail!("--batch-size: expected at most the {samples} training images there are, found {batch_size}");
    }
    let mut run = Run::new(&splits, batch_size, seed, &args.data)?;
    run.last = if args.last_batch == Last::Keep { LastBatch::Keep } else { LastBatch::Drop };
    let recipe = recipe(args, &run, name, seed)?;
    let advise = |error: TrainError| {
        let build = |model: &ModelArgs| with_data_shape(model, &splits, args.data.images, seed);
        split::advise_training(error.into(), (&args.model, &args.optimizer), build)
    };
    let mut trainer = Trainer::new(&build, device, &recipe).map_err(advise)?;
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
    epochs::train(args, &run, &mut trainer, &mut log, seed, quiet)?;
    let report = report(args, &mut trainer, &log)?;
    if let Some(path) = &args.report {
        page::write(path, args, &recipe.settings, trainer.planned(), &log, &report.json)?;
    }
    Ok(report)
}

fn recipe(args: &TrainArgs, run: &Run, device: DeviceName, seed: u64) -> Result<Recipe> {
    let sampler = run.train_sampler()?;
    Ok(Recipe {
        batch_size: args.model.batch_size.min(sampler.batch_len(0) as u64),
        partial_batches: sampler.partial_len().map(|len| len as u64).into_iter().collect(),
        eval_batches: run.eval_sizes(),
        optimization: resolve::optimization(&args.optimizer)?,
        settings: resolve::settings(&args.plan, device.links(), false)?,
        staging: !args.no_staging,
        deterministic: args.plan.deterministic,
        seed,
    })
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
        "data_wait_ms": log.wait_ms(),
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
        "{} on {} under {}: test accuracy {accuracy}, {:.0} images/s, {:.1} ms a step, of which {:.1} waiting for data\n\
         device memory: planned {} ({planned} bytes), measured {}; offloaded {} a step\n\
         {scaled}weights sha256 {sha256}",
        args.model.model,
        description.name,
        schedule.policy,
        log.images_per_second(),
        log.step_ms_median(),
        log.wait_ms(),
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
