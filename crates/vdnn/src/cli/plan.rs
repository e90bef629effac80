//! `vdnn plan`: compile a schedule for a machine description or a recorded profile, and explain it. No GPU needed.

use super::planning::{Done, Explained, Planning, document, rows};
use super::{Report, explain};
use anyhow::Result;
use clap::Args;
use vdnn_tensor::format_bytes;
use vdnn_train::Settings;

/// Options of `vdnn plan`.
#[derive(Args)]
pub struct PlanCommand {
    #[command(flatten)]
    planning: Planning,
    /// Print the whole schedule.
    #[arg(long)]
    print: bool,
    /// Say of this value instead why it is where it is: its uses, its gaps, and what they cost.
    #[arg(long, value_name = "VALUE", conflicts_with = "print")]
    explain: Option<String>,
}

/// Plans and reports.
pub fn run(args: &PlanCommand) -> Result<Report> {
    let Done { explained, settings, value } = args.planning.run(args.explain.as_deref())?;
    if let Some(value) = value {
        return explain::report(&explained.planned, &settings, value);
    }
    let mut text = describe(&explained, &settings);
    if args.print {
        text = format!("{}\n{text}", explained.planned.schedule.to_text());
    }
    Ok(Report::new(document(&args.planning.model.model, &explained, &settings), text))
}

fn describe(explained: &Explained, settings: &Settings) -> String {
    let Explained { planned, stats, .. } = explained;
    let schedule = &planned.schedule;
    let mut text = format!(
        "{} under {} on {}: {} steps, {} commands, checked, planned in {:.3} s\n\n",
        schedule.name,
        schedule.policy,
        explained.machine,
        planned.program.n_steps(),
        schedule.commands.len(),
        explained.planning_seconds,
    );
    for (name, value) in rows(explained, settings) {
        text.push_str(&format!("{name:22}{value}\n"));
    }
    text.push_str(&format!("\nlargest at the peak, {}:\n", stats.live_peak.node.as_deref().unwrap_or("the start")));
    for (name, size) in &stats.live_peak.largest {
        text.push_str(&format!("  {:32} {} ({size} bytes)\n", name, format_bytes(*size)));
    }
    text
}
