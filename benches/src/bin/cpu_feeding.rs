//! What feeding costs a step on the CPU: images as bytes or as numbers, the next batch copied while a step runs or before it.
//!
//! Four trainers of vgg-small on the embedded sample take turns, a step each, so that whatever else the machine does falls on all
//! of them alike. One JSON line a way to feed: milliseconds of a step by the clock and of all threads together, and the median
//! of what the step took more than the first trainer's in the same turn.

use anyhow::{Context, Result};
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use vdnn::datasets::{Batch, Normalization};
use vdnn::prelude::*;
use vdnn::runtime::CpuDevice;
use vdnn::train::LoadedBatch;

const BATCH: u64 = 64;
/// Steps that warm up and do not count.
const WARM: usize = 3;
const LEARNING_RATE: f64 = 0.01;

#[derive(Parser)]
struct Cli {
    /// Turns that are timed.
    #[arg(long, default_value_t = 100)]
    turns: usize,
    /// Threads of each device, of which one works at a time; 0 for as many as cores.
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

/// How batches reach the device.
#[derive(Clone, Copy)]
struct Way {
    /// The network normalises.
    bytes: bool,
    /// While a step runs.
    staged: bool,
}

/// The first is what `vdnn train` does.
const WAYS: [Way; 4] = [
    Way { bytes: true, staged: true },
    Way { bytes: true, staged: false },
    Way { bytes: false, staged: true },
    Way { bytes: false, staged: false },
];

struct Run {
    way: Way,
    trainer: Trainer,
    loader: Loader,
    form: Form,
    coming: Option<LoadedBatch>,
    /// Milliseconds of each turn by the clock, and of a processor.
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

/// Whether the host makes numbers of images, by channels of so many pixels.
struct Form {
    normalise: Option<Normalization>,
    pixels: usize,
}

impl Form {
    fn fed<T>(&self, batch: &Batch, act: impl FnOnce(Feed<'_>) -> T) -> T {
        match &self.normalise {
            Some(normalise) => act(Feed::new(&normalise.apply(&batch.images, self.pixels), &batch.labels)),
            None => act(Feed::new(&batch.images, &batch.labels)),
        }
    }
}

impl Run {
    fn new(way: Way, source: &Arc<dyn Source>, threads: usize) -> Result<Self> {
        let normalization = source.normalization().clone();
        let [channels, height, width] = source.shape();
        let Normalization { mean, std } = normalization.clone();
        let options = ModelOptions {
            image_size: Some(height as u64),
            channels: Some(channels as u64),
            bytes: way.bytes.then_some(Normalise { mean, std, dtype: DType::F32 }),
            ..ModelOptions::default()
        };
        let build = |batch_size, mode| {
            vdnn::models::build("vgg-small", &ModelOptions { batch_size, mode, ..options.clone() }).map_err(Into::into)
        };
        let policy = policies::find("none").context("no such policy")?;
        let recipe = Recipe {
            batch_size: BATCH,
            partial_batches: Vec::new(),
            eval_batches: Vec::new(),
            optimization: Optimization::sgd(0.9, 5e-4),
            settings: Settings::new(policy, DeviceName::Cpu.links()),
            staging: way.staged,
            deterministic: true,
            seed: 0,
        };
        let trainer = Trainer::new(&build, Box::new(CpuDevice::with_threads(threads)?), &recipe)?;
        let sampler = Sampler::new(source.len(), BATCH as usize, Order::Shuffled { seed: 0 }, LastBatch::Drop)?;
        let options = LoaderOptions { epochs: u64::MAX, ..LoaderOptions::default() };
        let loader = Loader::new(Arc::clone(source), sampler, &options)?;
        let form = Form { normalise: (!way.bytes).then_some(normalization), pixels: height * width };
        Ok(Run { way, trainer, loader, form, coming: None, wall: Vec::new(), cpu: Vec::new() })
    }

    /// A step, and the next batch to where the next step reads it.
    fn step(&mut self) -> Result<()> {
        let coming = match self.coming {
            Some(coming) => coming,
            None => self.load()?,
        };
        if !self.way.staged {
            self.trainer.step_loaded(coming, LEARNING_RATE)?;
            self.coming = Some(self.load()?);
            return Ok(());
        }
        let mut running = self.trainer.begin_step(coming, LEARNING_RATE)?;
        let next = self.loader.next().context("the loader has ended")??;
        let staged = self.form.fed(&next, |feed| running.stage(feed))?;
        running.finish()?;
        self.coming = Some(self.trainer.load_staged(staged)?);
        Ok(())
    }

    fn load(&mut self) -> Result<LoadedBatch> {
        let next = self.loader.next().context("the loader has ended")??;
        Ok(self.form.fed(&next, |feed| self.trainer.load(feed))?)
    }

    fn timed(&mut self) -> Result<()> {
        let (started, before) = (Instant::now(), processor_ms());
        self.step()?;
        self.wall.push(started.elapsed().as_secs_f64() * 1e3);
        self.cpu.push(processor_ms() - before);
        Ok(())
    }
}

/// Of all threads of this process so far.
fn processor_ms() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
}

/// The value so far from least to most.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let source = datasets::open("fashion-mnist-sample", &OpenOptions::default())?.train;
    let mut runs = WAYS.iter().map(|&way| Run::new(way, &source, cli.threads)).collect::<Result<Vec<_>>>()?;
    for run in &mut runs {
        (0..WARM).try_for_each(|_| run.step())?;
    }
    for turn in 0..cli.turns.max(1) {
        // Each of the four is the first of a turn as often.
        for place in 0..runs.len() {
            runs[(turn + place) % WAYS.len()].timed()?;
        }
    }
    for run in &runs {
        println!("{}", row(run, &runs[0]));
    }
    Ok(())
}

fn row(run: &Run, first: &Run) -> Value {
    let more = |ours: &[f64], first: &[f64]| -> Vec<f64> { ours.iter().zip(first).map(|(a, b)| a - b).collect() };
    json!({
        "images": if run.way.bytes { "bytes" } else { "numbers" }, "staged": run.way.staged, "turns": run.wall.len(),
        "ms_min": quantile(&run.wall, 0.0), "ms_median": quantile(&run.wall, 0.5),
        "processor_ms_min": quantile(&run.cpu, 0.0), "processor_ms_median": quantile(&run.cpu, 0.5),
        "ms_more": quantile(&more(&run.wall, &first.wall), 0.5),
        "processor_ms_more": quantile(&more(&run.cpu, &first.cpu), 0.5),
    })
}
