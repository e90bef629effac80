//! All policies on one network, batch, machine and budget, as a table. No GPU needed: machines are described by constants.
//!
//! It teaches the trade that the paper is about: peak device memory against host memory, bytes over the link and time.
//!
//! ```text
//! cargo run --release -p vdnn-examples --example compare_policies
//! cargo run --release -p vdnn-examples --example compare_policies -- --model vgg-116 --batch-size 32 --budget 12GiB
//! ```

use anyhow::{Context, Result};
use clap::Parser;
use vdnn::memory::policies::REGISTRY;
use vdnn::prelude::*;
use vdnn_examples::Case;

/// Compare the memory policies.
#[derive(Parser)]
struct Args {
    /// Network; `vdnn models` lists them.
    #[arg(long, default_value = "vgg16")]
    model: String,
    /// Samples in a batch.
    #[arg(long, default_value_t = 64)]
    batch_size: u64,
    /// Machine description; `vdnn machines` lists them.
    #[arg(long, default_value = "titan-x")]
    machine: String,
    /// Device memory, e.g. 12GiB; unlimited unless given.
    #[arg(long)]
    budget: Option<String>,
}

fn main() -> Result<()> {
    let Args { model, batch_size, machine, budget } = Args::parse();
    let bytes = budget.as_deref().map(parse_bytes).transpose()?;
    let case = Case::new(&model, batch_size, &machine)?;
    println!("{model}, batch {batch_size}, {machine}, budget {}", budget.as_deref().unwrap_or("none"));
    println!("the fastest kernels alone take {:.1} ms\n\n{}", case.oracle_seconds() * 1e3, Case::header());
    for entry in REGISTRY {
        println!("{}", case.row(policies::find(entry.name).context("a registered policy")?, bytes));
    }
    Ok(())
}
