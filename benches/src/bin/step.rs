//! Times a training step on synthetic data that stays on the device, and prints one JSON line.

use anyhow::Result;
use clap::Parser;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;
use vdnn::datasets::{Source, Synthetic};
use vdnn::prelude::*;
use vdnn_benches::Setup;
use vdnn_benches::kernels::kernel_table;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    setup: Setup,
    /// Timed steps.
    #[arg(long, default_value_t = 20)]
    steps: usize,
    /// Steps before. A device that finds out in the first ones how to launch an iteration with copies wants eight.
    #[arg(long, default_value_t = 10)]
    warmup: usize,
    /// Learning rate.
    #[arg(long, default_value_t = 0.01)]
    lr: f64,
    /// Write a Chrome trace of one timed step here.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Add tables of the launches by op: of one timed step, and of the prediction.
    #[arg(long)]
    kernels: bool,
    /// Write the schedule here, as JSON.
    #[arg(long)]
    schedule: Option<PathBuf>,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let started = Instant::now();
    let mut trainer = cli.setup.trainer()?;
    let ready = started.elapsed().as_secs_f64();
    let batch = Batch::new(&trainer, cli.setup.batch_size as usize)?;
    let feed = batch.feed(cli.setup.bytes);
    let mut loaded = trainer.load(feed)?;
    let mut losses = Vec::new();
    let mut times = Vec::new();
    for step in 0..cli.warmup + cli.steps {
        let started = Instant::now();
        let mut running = trainer.begin_step(loaded, cli.lr)?;
        let next = if cli.setup.stage { Some(running.stage(feed)?) } else { None };
        losses.push(running.finish()?.loss);
        if let Some(next) = next {
            loaded = trainer.load_staged(next)?;
        }
        if step >= cli.warmup {
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
    }
    let in_order: Vec<f64> = times.iter().map(|ms| (ms * 1e3).round() / 1e3).collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let measured = trainer.measured_peak();
    let timed = timed_step(&mut trainer, loaded, &cli)?;
    let planned = trainer.planned().clone();
    let predicted = simulate(&planned.schedule, &planned.kernels, &cli.setup.device.links())?;
    let predicted_kernels = cli.kernels.then(|| kernel_table(&planned.program, &planned.schedule, &predicted));
    if let Some(path) = &cli.schedule {
        std::fs::write(path, planned.schedule.to_json())?;
    }
    let (description, scaled) = (trainer.description(), trainer.loss_scale()?);
    let line = json!({
        "model": cli.setup.model, "batch": cli.setup.batch_size, "dtype": cli.setup.dtype,
        "policy": planned.schedule.policy, "budget": cli.setup.budget, "host_budget": cli.setup.host_budget, "sync": cli.setup.sync,
        "deterministic": cli.setup.deterministic, "replay": !cli.setup.no_replay, "bytes": cli.setup.bytes, "staged": cli.setup.stage, "device": description.name, "details": description.details,
        "steps": cli.steps, "ms_median": at(0.5), "ms_min": at(0.0), "ms_p90": at(0.9), "ms": in_order,
        "images_per_second": cli.setup.batch_size as f64 / at(0.5) * 1e3,
        "predicted_ms": predicted.seconds * 1e3, "predicted_kernels": predicted_kernels, "timed": timed,
        "planned_peak_bytes": trainer.peak_bytes(Space::Device), "measured_peak_bytes": measured,
        "context_bytes": description.context_bytes, "host_peak_bytes": trainer.peak_bytes(Space::Host),
        "offload_bytes": planned.schedule.transfer_bytes(Direction::Offload),
        "prefetch_bytes": planned.schedule.transfer_bytes(Direction::Prefetch),
        "streamed_bytes": planned.streamed_bytes(), "ready_seconds": ready, "first_loss": losses[0], "last_loss": losses.last(),
        "loss_scale": scaled.map(|now| now.scale), "skipped_steps": scaled.map(|now| now.skipped_steps),
        "weights_sha256": trainer.weights_sha256()?,
    });
    println!("{line}");
    Ok(())
}

/// One step with every command timed: where the time goes and how much of the copies is hidden.
fn timed_step(trainer: &mut Trainer, loaded: vdnn::train::LoadedBatch, cli: &Cli) -> Result<serde_json::Value> {
    trainer.set_timing(true);
    trainer.step_loaded(loaded, cli.lr)?;
    trainer.step_loaded(loaded, cli.lr)?;
    let timeline = trainer.timeline();
    trainer.set_timing(false);
    let schedule = trainer.planned().schedule.clone();
    let Some(timeline) = timeline else { return Ok(json!(null)) };
    if let Some(path) = &cli.trace {
        std::fs::write(path, timeline.chrome_trace(&schedule))?;
    }
    let program = &trainer.planned().program;
    Ok(json!({
        "ms": timeline.seconds * 1e3, "compute_busy_ms": timeline.compute_busy(&schedule) * 1e3,
        "hidden_copy_share": timeline.hidden_copy_share(&schedule),
        "kernels": cli.kernels.then(|| kernel_table(program, &schedule, &timeline)),
    }))
}

/// A batch of random images, as bytes and as numbers.
struct Batch {
    bytes: Vec<u8>,
    numbers: Vec<f32>,
    labels: Vec<i32>,
}

impl Batch {
    fn new(trainer: &Trainer, batch: usize) -> Result<Self> {
        let graph = &trainer.planned().program.graph;
        let image = graph.find_value("image").map(|id| graph.value(id).ty.shape.clone()).unwrap_or_default();
        let shape = [image.dim(1) as usize, image.dim(2) as usize, image.dim(3) as usize];
        let classes = graph
            .nodes()
            .iter()
            .find(|n| n.op.kind() == "softmax_cross_entropy")
            .map_or(10, |node| graph.value(node.inputs[0]).ty.shape.dim(1) as usize);
        let source = Synthetic::new(batch, shape, classes, 0)?;
        let mut bytes = vec![0; batch * source.n_elements()];
        let mut labels = Vec::with_capacity(batch);
        for (index, image) in bytes.chunks_mut(source.n_elements()).enumerate() {
            labels.push(source.read(index, image)?);
        }
        let numbers = source.normalization().apply(&bytes, shape[1] * shape[2]);
        Ok(Batch { bytes, numbers, labels })
    }

    fn feed(&self, bytes: bool) -> Feed<'_> {
        if bytes { Feed::new(&self.bytes, &self.labels) } else { Feed::new(&self.numbers, &self.labels) }
    }
}
