//! What the paper states in numbers, beside what comes out here.

use super::Figure;
use super::cells::{Cells, NETWORKS, Network, Wanted};
use super::figures::{average, name, saving, slowdown};
use crate::cli::table::{Show, Table};
use serde_json::json;

/// Policies of which the one that saves most is taken.
const SAVING: [&str; 4] = ["all-m", "all-p", "conv-m", "conv-p"];

/// (network, GB that the baseline takes in the paper).
const TOTALS: [(Network, f64); 4] =
    [(("alexnet", 128), 1.1), (("vgg16", 128), 14.0), (("vgg16", 256), 28.0), (("vgg-416", 32), 67.0)];

/// (network, per cent of the baseline's memory that is feature extraction's).
const FEATURES: [(Network, f64); 2] = [(("alexnet", 128), 81.0), (("vgg16", 256), 96.0)];

/// (network, per cent by which the average is less, at most).
const SAVED: [(Network, f64); 3] =
    [(("alexnet", 128), 89.0), (("overfeat-fast", 128), 91.0), (("googlenet", 128), 95.0)];

/// The plans that the claims are about.
pub fn wanted() -> Vec<Wanted> {
    let policies = || ["baseline", "dyn"].into_iter().chain(SAVING);
    let events = NETWORKS.into_iter().flat_map(|network| policies().map(move |policy| Wanted::of(network, policy)));
    let joined = NETWORKS.into_iter().map(|network| Wanted { per_layer: true, ..Wanted::of(network, "dyn") });
    events.chain(joined).collect()
}

/// How a difference is counted.
#[derive(Clone, Copy)]
enum By {
    Percent,
    Points,
    Networks,
}

/// The claims as a table.
pub fn claims(cells: &Cells) -> Figure {
    let mut table = Table::new(&[
        ("claim", "claim", Show::Plain),
        ("paper", "paper", Show::Plain),
        ("here", "here", Show::Digits(2)),
        ("difference", "difference", Show::Digits(1)),
        ("in", "in", Show::Plain),
    ]);
    let mut row = |claim: String, paper: f64, here: Option<f64>, by: By| {
        let (difference, unit) = match by {
            By::Percent => (here.map(|here| (here / paper - 1.0) * 100.0), "%"),
            By::Points => (here.map(|here| here - paper), "points"),
            By::Networks => (here.map(|here| here - paper), "networks"),
        };
        table.rows.push(vec![json!(claim), json!(paper), json!(here), json!(difference), json!(unit)]);
    };
    for (network, paper) in TOTALS {
        let peak = cells[&Wanted::of(network, "baseline")].number("peak_bytes");
        row(format!("{}: baseline, GB", name(network)), paper, peak.map(|bytes| bytes / 1e9), By::Percent);
    }
    let large: Vec<Network> = NETWORKS.into_iter().filter(|&n| !cells[&Wanted::of(n, "baseline")].fits()).collect();
    row("networks whose baseline needs more than 12 GiB".into(), 6.0, Some(large.len() as f64), By::Networks);
    for (network, paper) in FEATURES {
        let plan = cells[&Wanted::of(network, "baseline")].plan.as_ref();
        let share = plan.map(|plan| saving(plan.classifier as f64, plan.fullest.bytes() as f64));
        row(format!("{}: feature extraction's share of the baseline, %", name(network)), paper, share, By::Points);
    }
    for (network, paper) in SAVED {
        row(format!("{}: average memory saved at best, %", name(network)), paper, saved(cells, network), By::Points);
    }
    let savings: Vec<f64> = large.iter().filter_map(|&network| saved(cells, network)).collect();
    let times = |per_layer: bool| -> Vec<f64> {
        let wanted = large.iter().map(|&network| Wanted { per_layer, ..Wanted::of(network, "dyn") });
        wanted.filter_map(|wanted| slowdown(&cells[&wanted])).collect()
    };
    let (joined, events) = (times(true), times(false));
    row("the large ones: average memory saved, least, %".into(), 73.0, least(&savings), By::Points);
    row("the large ones: average memory saved, most, %".into(), 98.0, most(&savings), By::Points);
    row("the large ones in 12 GiB: slowdown, least, %".into(), 1.0, least(&joined), By::Points);
    row("the large ones in 12 GiB: slowdown, most, %".into(), 18.0, most(&joined), By::Points);
    let hardest = |per_layer| slowdown(&cells[&Wanted { per_layer, ..Wanted::of(("vgg16", 256), "dyn") }]);
    row("vgg16 (256) in 12 GiB: slowdown, %".into(), 18.0, hardest(true), By::Points);
    row("the same with waits by events, %".into(), 18.0, hardest(false), By::Points);
    row("the large ones with waits by events: slowdown, most, %".into(), 18.0, most(&events), By::Points);
    Figure {
        title: "What the paper states".into(),
        text: "Here *baseline* is the arena's extent, weight gradients of all layers and the largest workspace of the described kernels \
               included; the paper's totals match no single counting rule (10⁹ bytes or 2³⁰, gradients of weights held or not, cuDNN 4's \
               workspace). *Average* is over the time of a step and all bytes on the device; under `all` and `conv`, whichever saves most. Weights are among them: those \
               of AlexNet and OverFeat alone are more than what the paper's savings would leave. \
               Slowdowns are of `dyn` over the fastest kernels, streams joined at the end of each layer as in the paper unless it says otherwise."
            .into(),
        table,
        chart: None,
    }
}

/// Per cent of the baseline's average that the best of [`SAVING`] does without.
fn saved(cells: &Cells, network: Network) -> Option<f64> {
    let of = |policy| {
        let cell = &cells[&Wanted::of(network, policy)];
        cell.plan.as_ref().map(|plan| average((cell, plan)))
    };
    let baseline = of("baseline")?;
    let best = SAVING.into_iter().filter_map(of).fold(f64::INFINITY, f64::min);
    best.is_finite().then(|| saving(best, baseline))
}

fn least(numbers: &[f64]) -> Option<f64> {
    numbers.iter().copied().min_by(f64::total_cmp)
}

fn most(numbers: &[f64]) -> Option<f64> {
    numbers.iter().copied().max_by(f64::total_cmp)
}
