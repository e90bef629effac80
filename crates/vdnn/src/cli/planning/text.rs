//! What is known of a plan, in words: the rows that `vdnn plan` prints and `vdnn report` shows.

use super::{Beside, Explained};
use vdnn_graph::Op;
use vdnn_memory::StepTimeBound;
use vdnn_schedule::{Direction, Schedule, Space};
use vdnn_tensor::format_bytes;
use vdnn_train::{Planned, Settings};

/// Name and value of each figure.
pub fn rows(explained: &Explained, settings: &Settings) -> Vec<(&'static str, String)> {
    let Explained { planned, .. } = explained;
    let schedule = &planned.schedule;
    let budget = settings.budgets.device.map_or("none".to_string(), |b| format!("{} ({b} bytes)", format_bytes(b)));
    let bytes = |b: u64| format!("{} ({b} bytes)", format_bytes(b));
    let slowdown = (explained.predicted_ms() / explained.oracle_ms - 1.0) * 100.0;
    vec![
        ("budget", budget),
        ("peak", bytes(schedule.peak_bytes(Space::Device))),
        ("live at the peak", live_at_peak(explained)),
        ("floor of the policy", bytes(explained.floor)),
        ("any kernel by itself", bytes(explained.floor_bound)),
        ("split", explained.split.as_ref().map_or("nothing".to_string(), Beside::to_string)),
        ("host memory", bytes(schedule.peak_bytes(Space::Host))),
        ("on disk", on_disk(&planned.schedule)),
        ("offloaded per step", bytes(schedule.transfer_bytes(Direction::Offload))),
        ("prefetched per step", bytes(schedule.transfer_bytes(Direction::Prefetch))),
        ("streamed", format!("{} of parameters and states live in host memory", bytes(planned.streamed_bytes()))),
        ("made again", format!("{:.3} ms of kernels", planned.recompute_seconds() * 1e3)),
        ("encoded", encoded(planned)),
        (
            "predicted step",
            format!(
                "{:.3} ms, {slowdown:+.1} % over the fastest kernels' {:.3} ms",
                explained.predicted_ms(),
                explained.oracle_ms
            ),
        ),
        ("no plan is below", bound_text(&explained.bound, planned, explained.predicted_ms() / 1e3)),
    ]
}

/// What rests in a file, and how much is written and read.
fn on_disk(schedule: &Schedule) -> String {
    let moved = |way| format_bytes(schedule.disk_bytes(way));
    match schedule.peak_bytes(Space::Disk) {
        0 => "nothing".to_string(),
        peak => format!(
            "{} ({peak} bytes); {} written, {} read per step",
            format_bytes(peak),
            moved(Direction::Offload),
            moved(Direction::Prefetch)
        ),
    }
}

/// What gradients read in place of feature maps.
fn encoded(planned: &Planned) -> String {
    let graph = &planned.program.graph;
    let of = |is: fn(&Op) -> bool| {
        let made: Vec<u64> = graph
            .nodes()
            .iter()
            .filter(|node| is(&node.op))
            .map(|node| node.outputs[1])
            .map(|id| graph.value(id).ty.bytes())
            .collect();
        (made.len(), made.iter().sum::<u64>())
    };
    let (masks, pools) = (of(|op| *op == Op::ReluMask), of(|op| matches!(op, Op::MaxPool2dIndices(_))));
    match masks.0 + pools.0 {
        0 => "nothing".to_string(),
        _ => format!(
            "{} ReLU by masks ({}), {} max pools by indices ({})",
            masks.0,
            format_bytes(masks.1),
            pools.0,
            format_bytes(pools.1)
        ),
    }
}

/// The largest live set, which no placement of this plan can be below, and what the addresses add to it.
fn live_at_peak(explained: &Explained) -> String {
    let (live, peak) = (explained.stats.live_peak.bytes, explained.planned.schedule.peak_bytes(Space::Device));
    let over = (peak as f64 / live.max(1) as f64 - 1.0) * 100.0;
    format!("{} ({live} bytes), no addresses need less; these take {over:.2} % more", format_bytes(live))
}

/// The lower bound on the step, how far the plan is from it by its predicted seconds, and where it comes from.
pub fn bound_text(bound: &StepTimeBound, planned: &Planned, predicted: f64) -> String {
    let gap = bound.gap(predicted) * 100.0;
    let text = format!("{:.3} ms under this budget; this one takes {gap:.1} % more", bound.seconds * 1e3);
    match bound.cut {
        None => format!("{text} (kernels alone)"),
        Some(cut) => format!(
            "{text} (at {} {} cannot be there)",
            planned.program.node_at(cut.step).name,
            format_bytes(cut.absent)
        ),
    }
}
