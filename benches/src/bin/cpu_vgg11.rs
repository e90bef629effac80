//! A training step of VGG-11's convolutions on 32×32 images, batch 64, with one linear layer, on the CPU: the case that
//! `peers/torch_cpu.py` and `peers/candle` time too. SGD with momentum 0.9; prints one JSON line.

use anyhow::Result;
use clap::Parser;
use serde_json::json;
use std::time::Instant;
use vdnn::layers::{Conv2d, Flatten, LayerError, Linear, MaxPool2d, Relu};
use vdnn::prelude::*;
use vdnn::runtime::CpuDevice;

/// Channels of the convolutions; 0 is a max pool.
const PLAN: [u64; 13] = [64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0];

#[derive(Parser)]
struct Cli {
    /// Timed steps.
    #[arg(long, default_value_t = 20)]
    steps: usize,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Policy.
    #[arg(long, default_value = "none")]
    policy: String,
}

fn vgg11(batch_size: u64, mode: Mode) -> Result<Net, LayerError> {
    let mut net = Net::new("vgg11-32", &NetOptions { batch_size, image: [3, 32, 32], mode, ..NetOptions::default() })?;
    let (mut x, mut channels) = (net.image(), 3);
    for (i, &out) in PLAN.iter().enumerate() {
        if out == 0 {
            x = MaxPool2d::new(2, 2).push(&mut net, &format!("pool{i}"), x)?;
            continue;
        }
        x = Conv2d::new(channels, out, 3).padding(1).push(&mut net, &format!("conv{i}"), x)?;
        x = Relu.push(&mut net, &format!("relu{i}"), x)?;
        channels = out;
    }
    x = Flatten.push(&mut net, "flatten", x)?;
    x = Linear::new(512, 10).push(&mut net, "classifier", x)?;
    net.classify(x, 0.0)?;
    Ok(net)
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let build = |batch_size, mode| vgg11(batch_size, mode).map_err(Into::into);
    let policy = policies::find(&cli.policy).ok_or_else(|| anyhow::anyhow!("unknown policy {}", cli.policy))?;
    let recipe = Recipe {
        batch_size: 64,
        partial_batches: Vec::new(),
        eval_batches: Vec::new(),
        optimization: Optimization::sgd(0.9, 5e-4),
        settings: Settings::new(policy, DeviceName::Cpu.links()),
        staging: false,
        deterministic: true,
        seed: 0,
    };
    let mut trainer = Trainer::new(&build, Box::new(CpuDevice::with_threads(cli.threads)?), &recipe)?;
    let images: Vec<f32> = (0..64 * 3 * 32 * 32).map(|i| ((i * 7919 % 1000) as f32 - 500.0) / 250.0).collect();
    let labels: Vec<i32> = (0..64).map(|i| i % 10).collect();
    let mut times = Vec::new();
    for step in 0..cli.steps + 3 {
        let started = Instant::now();
        trainer.step(Feed::new(&images, &labels), 0.01)?;
        if step >= 3 {
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let line = json!({
        "program": "vdnn", "policy": cli.policy, "threads": cli.threads, "ms_median": at(0.5), "ms_min": at(0.0),
        "ms_p90": at(0.9), "planned_peak_bytes": trainer.peak_bytes(Space::Device),
    });
    println!("{line}");
    Ok(())
}
