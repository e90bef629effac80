//! Cases from the field: mistakes that others made with GPUs, memory and streams, each a test under its number in our list.
//!
//! What needs no GPU is tested elsewhere: the rules of B33, B34 and B36 by `check/tests/all/rules.rs` and, command by command, by
//! `runtime/tests/executor/chaos.rs`. Here the card itself does what a schedule says, and what is left out shows.

mod careless;
mod copies;
mod images;
mod memory;
mod norms;
mod pinned;
mod replays;
mod same_bits;
mod streams;
mod workspaces;

use crate::feeds::Run;
use crate::{Outcome, Report};
use serde_json::json;
use std::hash::{DefaultHasher, Hasher};
use vdnn_graph::ValueId;
use vdnn_layers::{
    BatchNorm2d, Conv2d, Dropout, Flatten, Layer, LayerError, Linear, MaxPool2d, Net, Relu, Sequential, concat,
};
use vdnn_train::{Feed, Trainer};

/// Of [`wide`].
const IMAGE: [u64; 3] = [3, 64, 64];
const BATCH: u64 = 64;

type Part = fn(&mut Report) -> Outcome;

pub fn run(report: &mut Report) -> Outcome {
    let parts: [(&str, Part); 9] = [
        ("B14", norms::run),
        ("B28", same_bits::run),
        ("B33 B34 B36", copies::run),
        ("B35", streams::run),
        ("B37 B45", memory::run),
        ("B39 B40", pinned::run),
        ("B43", workspaces::run),
        ("B48", replays::run),
        ("B51", images::run),
    ];
    for (name, part) in parts {
        if let Err(error) = part(report) {
            report.case(name, false, json!({"error": error.to_string()}));
        }
    }
    Ok(())
}

/// The bits of each step's loss, and a hash of all parameters and states after it.
type Trace = Vec<[u64; 2]>;

/// So many steps, each with a batch of its own. Weights are read at once after every step.
fn trace(run: &Run<'_>, trainer: &mut Trainer, steps: u64) -> Outcome<Trace> {
    let one = |step: u64| -> Outcome<[u64; 2]> {
        let (images, labels) = run.batch(step);
        let loss = trainer.step(Feed::new(&images, &labels), 0.02)?.loss;
        Ok([loss.to_bits(), hash(trainer)?])
    };
    (0..steps).map(one).collect()
}

fn hash(trainer: &mut Trainer) -> Outcome<u64> {
    let mut hasher = DefaultHasher::new();
    for (name, _, tensor) in trainer.tensors()? {
        hasher.write(name.as_bytes());
        hasher.write(tensor.as_bytes());
    }
    Ok(hasher.finish())
}

/// Short kernels over maps of 32 MiB, which a link takes some twenty times as long to copy: two of them slices of one value, and
/// small convolutions and a product by the libraries in between.
fn wide(net: &mut Net, x: ValueId) -> Result<ValueId, LayerError> {
    let x = Conv2d::new(3, 16, 1).no_bias().push(net, "stem", x)?;
    let mut halves = Vec::new();
    for half in ["left", "right"] {
        let chain = Sequential::new().then("bn", BatchNorm2d::new(16)).then("relu", Relu);
        halves.push(chain.push(net, half, x)?);
    }
    let x = concat(net, "both", &halves)?;
    let mut chain = Sequential::new();
    for block in ["1", "2", "3", "4"] {
        chain = chain
            .then(&format!("bn{block}"), BatchNorm2d::new(32))
            .then(&format!("relu{block}"), Relu)
            .then(&format!("conv{block}"), Conv2d::new(32, 32, 1).no_bias());
    }
    chain = chain
        .then("pool", MaxPool2d::new(2, 2))
        .then("flatten", Flatten)
        .then("dropout", Dropout(0.5))
        .then("fc", Linear::new(32 * 32 * 32, 10));
    chain.push(net, "", x)
}
