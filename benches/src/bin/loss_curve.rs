//! Trains from given weights on given batches and prints the losses as one JSON line.
//!
//! The batches file is safetensors with `images` `[B·N, C, H, W]` f32 and `labels` `[B·N]` i32; batches are taken in turn.

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::json;
use std::path::PathBuf;
use vdnn::prelude::*;
use vdnn_benches::Setup;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    setup: Setup,
    /// Initial weights, safetensors with torchvision's names.
    #[arg(long)]
    weights: PathBuf,
    /// The batches.
    #[arg(long)]
    batches: PathBuf,
    /// Steps.
    #[arg(long, default_value_t = 20)]
    steps: usize,
    /// Learning rate.
    #[arg(long, default_value_t = 0.01)]
    lr: f64,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let mut trainer = cli.setup.trainer()?;
    Checkpoint::load(&cli.weights)?.restore(&mut trainer, &cli.weights)?;
    let data = Checkpoint::load(&cli.batches)?;
    let tensor = |name: &str| {
        let found = data.tensors.iter().find(|(n, _)| n == name).map(|(_, tensor)| tensor);
        found.with_context(|| format!("{} holds no tensor named {name}", cli.batches.display()))
    };
    let (images, labels) = (tensor("images")?.to_vec::<f32>()?, tensor("labels")?.to_vec::<i32>()?);
    let batch = cli.setup.batch_size as usize;
    let sample = images.len() / labels.len();
    let n_batches = labels.len() / batch;
    let mut losses = Vec::new();
    for step in 0..cli.steps {
        let first = step % n_batches * batch;
        let feed = Feed::new(&images[first * sample..(first + batch) * sample], &labels[first..first + batch]);
        losses.push(trainer.step(feed, cli.lr)?.loss);
    }
    let scaled = trainer.loss_scale()?;
    let line = json!({
        "model": cli.setup.model, "batch": batch, "dtype": cli.setup.dtype, "policy": trainer.planned().schedule.policy,
        "budget": cli.setup.budget, "sync": cli.setup.sync, "deterministic": cli.setup.deterministic,
        "device": trainer.description().name, "losses": losses, "weights_sha256": trainer.weights_sha256()?,
        "loss_scale": scaled.map(|now| now.scale), "skipped_steps": scaled.map(|now| now.skipped_steps),
        "planned_peak_bytes": trainer.peak_bytes(Space::Device),
        "offload_bytes": trainer.planned().schedule.transfer_bytes(Direction::Offload),
    });
    println!("{line}");
    Ok(())
}
