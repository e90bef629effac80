//! A memory policy of your own: `spill.rs` beside this file, under sixty lines, outside the memory crate.
//!
//! It teaches what a policy is: a pure function from a problem (program, gaps, costs, budget) to a plan. Addresses, copies,
//! events, the proof that the result is safe and faithful, and the prediction of its time come from the crates. Here it
//! meets the paper's policies on VGG-16 with batch 192 on the paper's 12 GiB card, where keeping everything does not fit.
//!
//! ```text
//! cargo run --release -p vdnn-examples --example custom_policy
//! ```

mod spill;

use anyhow::{Context, Result};
use spill::Spill;
use vdnn::prelude::*;
use vdnn_examples::Case;

fn main() -> Result<()> {
    let case = Case::new("vgg16", 192, "titan-x")?;
    println!("vgg16, batch 192, titan-x; the fastest kernels alone take {:.1} ms", case.oracle_seconds() * 1e3);
    for budget in ["14GiB", "12GiB", "10GiB"] {
        println!("\nbudget {budget}\n{}", Case::header());
        let bytes = Some(parse_bytes(budget)?);
        for name in ["none", "conv", "all", "dyn"] {
            println!("{}", case.row(policies::find(name).context("no such policy")?, bytes));
        }
        println!("{}", case.row(Box::new(Spill), bytes));
    }
    Ok(())
}
