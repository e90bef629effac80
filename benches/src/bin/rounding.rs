//! What training makes of rounding: losses of the CPU's convolution algorithms, each alone, against those of f64.
//!
//! Prints one JSON line a network and setting: for each algorithm the largest relative difference of a loss from f64's, in
//! f32 and in f64, and the largest between any two of the algorithms. The command line's optimizer and, with `--warmup`, its learning rate.

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::{Map, json};
use vdnn::datasets::fashion_mnist_sample;
use vdnn::prelude::*;
use vdnn::runtime::CpuDevice;
use vdnn::schedule::Schedule;
use vdnn::tensor::DType;

#[derive(Parser)]
struct Cli {
    /// Networks.
    #[arg(long, value_delimiter = ',', default_value = "vgg-small,resnet-small")]
    models: Vec<String>,
    /// Convolution algorithms; `fastest` is what the planner takes.
    #[arg(long, value_delimiter = ',', default_value = "fastest,direct,tiles,im2col,winograd2,winograd4")]
    algorithms: Vec<String>,
    /// Samples in a batch.
    #[arg(long, default_value_t = 16)]
    batch_size: u64,
    /// Learning rate after warm-up.
    #[arg(long, default_value_t = 0.02)]
    lr: f64,
    /// Steps of linear warm-up.
    #[arg(long, default_value_t = 0)]
    warmup: u64,
    /// Steps.
    #[arg(long, default_value_t = 20)]
    steps: u64,
    /// Seed of the weights.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    for model in &cli.models {
        let exact = cli.losses(model, DType::F64, "im2col")?;
        let (mut table, mut between) = (Map::new(), Map::new());
        for dtype in [DType::F32, DType::F64] {
            let curve = |name: &String| cli.losses(model, dtype, name);
            let curves: Vec<Vec<f64>> = cli.algorithms.iter().map(curve).collect::<Result<_>>()?;
            for (name, losses) in cli.algorithms.iter().zip(&curves) {
                table.insert(format!("{name} {dtype}"), json!(largest_difference(losses, &exact)));
            }
            let pairs = curves.iter().flat_map(|a| curves.iter().map(|b| largest_difference(a, b)));
            between.insert(dtype.to_string(), json!(pairs.fold(0.0, f64::max)));
        }
        let line = json!({
            "model": model, "batch": cli.batch_size, "lr": cli.lr, "warmup_steps": cli.warmup, "steps": cli.steps,
            "first_loss": exact.first(), "last_loss": exact.last(), "largest_difference_from_f64": table,
            "largest_difference_between_two": between, "seed": cli.seed,
        });
        println!("{line}");
    }
    Ok(())
}

/// Of the losses of a step, relative to the second curve's.
fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs() / b.abs()).fold(0.0, f64::max)
}

impl Cli {
    fn losses(&self, model: &str, dtype: DType, algorithm: &str) -> Result<Vec<f64>> {
        let mut trainer = self.trainer(model, dtype, None)?;
        if algorithm != "fastest" {
            let mut choices = trainer.planned().kernels.choices.iter().flatten();
            if !choices.any(|choice| choice.algorithm == algorithm) {
                bail!("no convolution offers {algorithm}");
            }
            trainer = self.trainer(model, dtype, Some(trainer.planned().with_algorithm(algorithm)))?;
        }
        let data = fashion_mnist_sample()?.train;
        let batch = self.batch_size as usize;
        let mut losses = Vec::new();
        for step in 0..self.steps {
            let first = step as usize * batch;
            let range = first..first + batch;
            let pixels = data.images().get(range.start * 784..range.end * 784).context("too few images")?;
            let images: Vec<f32> = pixels.iter().map(|&p| (f32::from(p) / 255.0 - 0.286) / 0.353).collect();
            let share = if step < self.warmup { (step + 1) as f64 / self.warmup as f64 } else { 1.0 };
            let feed = Feed::new(&images, &data.labels()[range]);
            losses.push(trainer.step(feed, self.lr * share)?.loss);
        }
        Ok(losses)
    }

    fn trainer(&self, model: &str, dtype: DType, algos_from: Option<Schedule>) -> Result<Trainer> {
        let build = |batch_size: u64, mode: Mode| {
            let options = ModelOptions {
                batch_size,
                mode,
                image_size: Some(28),
                channels: Some(1),
                classes: Some(10),
                dtype,
                ..ModelOptions::default()
            };
            vdnn::models::build(model, &options).map_err(Into::into)
        };
        let policy = policies::find("none").context("no policy none")?;
        let settings = Settings { algos_from, ..Settings::new(policy, DeviceName::Cpu.links()) };
        let recipe = Recipe {
            batch_size: self.batch_size,
            partial_batches: Vec::new(),
            eval_batches: Vec::new(),
            optimization: Optimization::sgd(0.9, 5e-4),
            settings,
            staging: false,
            deterministic: true,
            seed: self.seed,
        };
        Ok(Trainer::new(&build, Box::new(CpuDevice::with_threads(2)?), &recipe)?)
    }
}
