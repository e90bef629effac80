//! `vdnn report`: a plan as one HTML file that needs nothing else, no network and no script.
//!
//! ```text
//!   Planning ─► plan, schedule, timeline ─┬─► figures      those of `vdnn plan`, in words and as JSON
//!   (a run: `vdnn train --report`)        ├─► streams      bars over time: `streams`
//!                                         ├─► memory       bytes by kind over the same time: `occupancy`, `memory`
//!                                         └─► tables       what was decided, and the kernels: `decisions`, `kernels`
//! ```
//!
//! Equal plans make equal files: how long planning took is left out. Bars narrower than a hair are drawn together and tables end
//! after forty rows, so that a file stays below a few MB however deep the network.

mod axis;
mod decisions;
mod kernels;
mod memory;
mod page;
mod streams;

pub use page::{Page, page};

use super::args::Dtype;
use super::planning::{Done, Planning, document, rows};
use super::{Report, resolve};
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::PathBuf;
use vdnn_schedule::Space;

/// Options of `vdnn report`.
#[derive(Args)]
pub struct ReportCommand {
    #[command(flatten)]
    planning: Planning,
    /// Write the page to this file.
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
}

/// Plans, and writes the page. The document is that of `vdnn plan`, with the file's name.
pub fn run(args: &ReportCommand) -> Result<Report> {
    resolve::check_folder(&args.html)?;
    let Done { explained, settings, .. } = args.planning.run(None)?;
    let model = &args.planning.model;
    let schedule = &explained.planned.schedule;
    let mut document = document(&model.model, &explained, &settings);
    let planning_seconds = document["planning_seconds"].take();
    let peak = [("peak", schedule.peak_bytes(Space::Device)), ("floor", explained.floor)];
    let html = page(&Page {
        title: title(&model.model, model.batch_size, model.dtype),
        subtitle: format!(
            "planned by {} for {}: {} steps, {} commands, checked",
            schedule.policy,
            explained.machine,
            explained.planned.program.n_steps(),
            schedule.commands.len()
        ),
        figures: rows(&explained, &settings),
        document: &document,
        planned: &explained.planned,
        settings: &settings,
        predicted: &explained.timeline,
        measured: None,
        lines: settings.budgets.device.map(|bytes| ("budget", bytes)).into_iter().chain(peak).collect(),
    })?;
    resolve::write_text(&args.html, &html)?;
    document["planning_seconds"] = planning_seconds;
    document["html"] = json!(args.html);
    let text = format!("wrote {} ({} bytes)", args.html.display(), html.len());
    Ok(Report::new(document, text))
}

/// What a page is of.
pub fn title(model: &str, batch_size: u64, dtype: Dtype) -> String {
    let dtype = dtype.to_possible_value();
    format!("{model}, batch {batch_size}, {}", dtype.as_ref().map_or("", |value| value.get_name()))
}
