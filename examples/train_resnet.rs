//! A small ResNet trained twice, with everything kept and with feature maps offloaded: the same numbers to the last bit.
//!
//! It teaches the promise that makes policies safe to choose: a policy changes time and memory, never numbers. Both runs
//! see the same batches and use the same algorithms; afterwards losses and the hash of all weights are compared.
//!
//! ```text
//! cargo run --release -p vdnn-examples --example train_resnet          # the best device present
//! cargo run --release -p vdnn-examples --example train_resnet -- cpu
//! ```

use anyhow::{Context, Result, ensure};
use vdnn::prelude::*;

const BATCH: u64 = 64;
const STEPS: usize = 40;

/// What a run leaves behind.
struct Run {
    losses: Vec<f64>,
    correct: u64,
    weights: String,
    peak: u64,
    measured: Option<u64>,
    moved: u64,
}

fn main() -> Result<()> {
    let asked = std::env::args().nth(1).map(|name| name.parse()).transpose().map_err(anyhow::Error::msg)?;
    let device = asked.unwrap_or_else(DeviceName::best);
    let kept = run(device, "none")?;
    let moved = run(device, "all")?;
    for (name, run) in [("none", &kept), ("all", &moved)] {
        let accuracy = run.correct as f64 / (STEPS as f64 * BATCH as f64) * 100.0;
        println!(
            "{name:5} loss {:.6} → {:.6}, {accuracy:.1} % right on the way; planned {}, measured {}, offloaded {} a step",
            run.losses[0],
            run.losses[STEPS - 1],
            format_bytes(run.peak),
            run.measured.map_or("nothing".to_string(), format_bytes),
            format_bytes(run.moved),
        );
    }
    ensure!(kept.losses == moved.losses, "expected equal losses under both policies, found different ones");
    ensure!(kept.weights == moved.weights, "expected {} under both policies, found {}", kept.weights, moved.weights);
    println!("same losses, same weights: sha256 {}", kept.weights);
    Ok(())
}

/// Trains for some steps under a policy, from the same start on the same batches.
fn run(device: DeviceName, policy: &str) -> Result<Run> {
    let network = |batch_size, mode| {
        let options = ModelOptions { batch_size, mode, ..ModelOptions::default() };
        vdnn::models::build("resnet-small", &options).map_err(Into::into)
    };
    let recipe = Recipe {
        batch_size: BATCH,
        partial_batches: vec![],
        eval_batches: vec![],
        optimization: Optimization::sgd(0.9, 5e-4),
        settings: Settings::new(policies::find(policy).context("no such policy")?, device.links()),
        staging: false,
        deterministic: true,
        seed: 0,
    };
    let mut trainer = Trainer::new(&network, open_device(device)?, &recipe)?;
    let data = datasets::open("fashion-mnist-sample", &OpenOptions::default())?;
    let sampler = Sampler::new(data.train.len(), BATCH as usize, Order::Shuffled { seed: 0 }, LastBatch::Drop)?;
    let normalization = data.train.normalization().clone();
    let (mut losses, mut correct) = (Vec::new(), 0);
    for batch in Loader::new(data.train, sampler, &LoaderOptions::default())?.take(STEPS) {
        let batch = batch?;
        let numbers = normalization.apply(&batch.images, 28 * 28);
        let result = trainer.step(Feed::new(&numbers, &batch.labels), 0.05)?;
        losses.push(result.loss);
        correct += result.correct;
    }
    Ok(Run {
        losses,
        correct,
        weights: trainer.weights_sha256()?,
        peak: trainer.peak_bytes(Space::Device),
        measured: trainer.measured_peak(),
        moved: trainer.planned().schedule.transfer_bytes(Direction::Offload),
    })
}
