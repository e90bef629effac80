//! Every budget of every network, with other policies beside: `cargo run --release -p vdnn-memory --example sweep [NETWORK [BUDGETS]]`.
//! Slowdown against the oracle in per cent, and `hybrid`'s seconds of planning; fails when more bytes take longer.

#[allow(dead_code, unused_imports)]
#[path = "../tests/all/figures.rs"]
mod figures;
#[allow(dead_code)]
#[path = "../tests/all/iteration.rs"]
mod iteration;
#[allow(dead_code)]
#[path = "../tests/all/random.rs"]
mod random;
#[allow(dead_code, unused_imports)]
#[path = "../tests/all/sweep.rs"]
mod sweep;

use std::process::ExitCode;

fn main() -> ExitCode {
    let only = std::env::args().nth(1);
    let count = std::env::args().nth(2).and_then(|text| text.parse().ok()).unwrap_or(12);
    let mut all = Vec::new();
    for (model, batch_size) in sweep::NETWORKS {
        if only.as_ref().is_none_or(|name| name == model) {
            let (lines, points) = sweep::sweep(model, batch_size, count, &["hybrid", "dyn", "checkpoint"]);
            let rises = sweep::rises(&points);
            println!("{lines}{model}: {} rises {rises:?}", rises.len());
            all.extend(rises);
        }
    }
    if all.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
