//! A run as a page: the schedule it ran, what was predicted of it, and what one step took.

use super::super::planning::bound_text;
use super::super::report::{Page, page, title};
use super::super::resolve;
use super::TrainArgs;
use super::epochs::Log;
use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use vdnn_memory::{StepTimeBound, step_time_bound};
use vdnn_schedule::{Direction, Space, stats};
use vdnn_sim::simulate;
use vdnn_tensor::{Bytes, format_bytes};
use vdnn_train::{Planned, Settings, plan};

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
    let limits = Limits::of(planned, settings);
    let budget = settings.budgets.device.map(|bytes| ("budget", bytes));
    let html = page(&Page {
        title: title(&args.model.model, args.model.batch_size, args.model.dtype),
        subtitle: format!(
            "planned by {} and run on {device}: {} steps, {} commands, checked",
            planned.schedule.policy,
            planned.program.n_steps(),
            planned.schedule.commands.len()
        ),
        figures: rows(planned, settings, &limits, log, document, predicted.seconds),
        document,
        planned,
        settings,
        predicted: &predicted,
        measured: log.timeline.as_ref(),
        lines: budget.into_iter().chain([("peak", peak)]).chain(limits.floor.map(|bytes| ("floor", bytes))).collect(),
    })?;
    resolve::write_text(path, &html)
}

/// What no plan of the full batch's program is below.
struct Limits {
    /// The policy's floor; not known without a budget, since encoded programs are priced for budgets only.
    floor: Option<Bytes>,
    bound: StepTimeBound,
}

impl Limits {
    /// After a run nothing here may fail: what cannot be found out is not known.
    fn of(planned: &Planned, settings: &Settings) -> Self {
        let (subject, homes) = &planned.question;
        let floor = settings.budgets.device.and_then(|_| plan::floor(subject, homes, settings).ok());
        Limits { floor, bound: step_time_bound(&plan::problem(subject, homes, settings)) }
    }
}

/// Name and value of each figure.
fn rows(
    planned: &Planned,
    settings: &Settings,
    limits: &Limits,
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
        ("floor of the policy", limits.floor.map_or("not known".to_string(), bytes)),
        ("host memory", bytes(schedule.peak_bytes(Space::Host))),
        ("offloaded per step", bytes(schedule.transfer_bytes(Direction::Offload))),
        ("prefetched per step", bytes(schedule.transfer_bytes(Direction::Prefetch))),
        ("made again", format!("{:.3} ms of kernels", planned.recompute_seconds() * 1e3)),
        ("predicted step", format!("{:.3} ms", predicted * 1e3)),
        ("no plan is below", bound_text(&limits.bound, planned, predicted)),
        ("timed step", timed.map_or("no step of a full batch was timed".to_string(), |ms| format!("{ms:.3} ms"))),
        ("median step", format!("{:.3} ms, with feeding, from one step's end to the next", log.step_ms_median())),
    ]
}
