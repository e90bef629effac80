//! A run as a page: the schedule it ran, what was predicted of it, and what one step took.

use super::super::report::{Page, page, title};
use super::super::resolve;
use super::TrainArgs;
use super::epochs::Log;
use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use vdnn_schedule::{Direction, Space, stats};
use vdnn_sim::simulate;
use vdnn_tensor::format_bytes;
use vdnn_train::{Planned, Settings};

/// Writes the page. `document` is what the command says of the run.
pub fn write(
    path: &Path,
    args: &TrainArgs,
    settings: &Settings,
    planned: &Planned,
    log: &Log,
    document: &Value,
) -> Result<()> {
    let predicted = simulate(&planned.schedule, &planned.kernels, &settings.links)?;
    let device = document["device"].as_str().unwrap_or_default();
    let peak = planned.schedule.peak_bytes(Space::Device);
    let budget = settings.budgets.device.map(|bytes| ("budget", bytes));
    let html = page(&Page {
        title: title(&args.model.model, args.model.batch_size, args.model.dtype),
        subtitle: format!(
            "planned by {} and run on {device}: {} steps, {} commands, checked",
            planned.schedule.policy,
            planned.program.n_steps(),
            planned.schedule.commands.len()
        ),
        figures: rows(planned, settings, log, document, predicted.seconds),
        document,
        planned,
        settings,
        predicted: &predicted,
        measured: log.timeline.as_ref(),
        lines: budget.into_iter().chain([("peak", peak)]).collect(),
    })?;
    resolve::write_text(path, &html)
}

/// Name and value of each figure.
fn rows(
    planned: &Planned,
    settings: &Settings,
    log: &Log,
    document: &Value,
    predicted: f64,
) -> Vec<(&'static str, String)> {
    let schedule = &planned.schedule;
    let bytes = |b: u64| format!("{} ({b} bytes)", format_bytes(b));
    let known = |key: &str| document[key].as_u64().map_or("not measured".to_string(), bytes);
    let timed = log.timeline.as_ref().map(|timeline| timeline.seconds * 1e3);
    vec![
        ("budget", settings.budgets.device.map_or("none".to_string(), bytes)),
        ("planned peak", bytes(schedule.peak_bytes(Space::Device))),
        ("planned peak of the run", known("planned_peak_bytes")),
        ("measured peak of the run", known("measured_peak_bytes")),
        ("live at the peak", bytes(stats(schedule).live_peak.bytes)),
        ("host memory", bytes(schedule.peak_bytes(Space::Host))),
        ("offloaded per step", bytes(schedule.transfer_bytes(Direction::Offload))),
        ("prefetched per step", bytes(schedule.transfer_bytes(Direction::Prefetch))),
        ("made again", format!("{:.3} ms of kernels", planned.recompute_seconds() * 1e3)),
        ("predicted step", format!("{:.3} ms", predicted * 1e3)),
        ("timed step", timed.map_or("no step of a full batch was timed".to_string(), |ms| format!("{ms:.3} ms"))),
        ("median step", format!("{:.3} ms, with feeding, from one step's end to the next", log.step_ms_median())),
    ]
}
