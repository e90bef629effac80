//! Results of `vdnn compare` as a table for a terminal and as comma-separated values.

use super::{Case, cell::Cell};
use crate::cli::table::csv_field;
use vdnn_tensor::{Bytes, format_bytes};

/// Columns of the CSV file: the keys of a cell's JSON.
const KEYS: [&str; 23] = [
    "model",
    "batch_size",
    "machine",
    "link_scale",
    "policy",
    "budget_percent",
    "budget_bytes",
    "planned",
    "floor_bytes",
    "peak_bytes",
    "host_peak_bytes",
    "disk_peak_bytes",
    "offload_bytes",
    "prefetch_bytes",
    "recompute_ms",
    "encoded_nodes",
    "predicted_ms",
    "oracle_ms",
    "slowdown_percent",
    "lower_bound_ms",
    "gap_percent",
    "planning_seconds",
    "refusal",
];

/// Heads of the table; true for columns of numbers, which are aligned to the right.
const HEADS: [(&str, bool); 15] = [
    ("model", false),
    ("batch", true),
    ("machine", false),
    ("policy", false),
    ("budget", true),
    ("peak", true),
    ("host", true),
    ("offloaded", true),
    ("recomputed ms", true),
    ("predicted ms", true),
    ("oracle ms", true),
    ("slowdown", true),
    ("bound ms", true),
    ("gap", true),
    ("planned in", true),
];

/// The cells, one a line, and below them what each case's shares of a budget lie between.
pub fn table(cases: &[Case], cells: &[Cell]) -> String {
    let mut rows: Vec<Vec<String>> = vec![HEADS.iter().map(|(head, _)| head.to_string()).collect()];
    rows.extend(cells.iter().map(|cell| row(&cases[cell.case], cell)));
    let widths: Vec<usize> =
        (0..HEADS.len()).map(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        if index > 1 && cells[index - 1].case != cells[index - 2].case {
            text.push('\n');
        }
        text.push_str(&line(row, &widths));
    }
    text.push('\n');
    for case in cases {
        text.push_str(&format!(
            "{}, batch {}, {}: 0% is {} ({} bytes), 100% is {} ({} bytes); the fastest kernels take {:.3} ms ({})\n",
            case.model,
            case.batch_size,
            case.machine_title(),
            format_bytes(case.least_floor),
            case.least_floor,
            format_bytes(case.none_peak),
            case.none_peak,
            case.oracle_ms,
            source(case)
        ));
    }
    text
}

/// How far times are measured.
fn source(case: &Case) -> String {
    match (case.measured_kernels, case.modelled_kernels) {
        (0, _) => "modelled".to_string(),
        (_, 0) => "measured".to_string(),
        (measured, modelled) => format!("{measured} kernels measured, {modelled} modelled"),
    }
}

fn line(row: &[String], widths: &[usize]) -> String {
    let padded =
        row.iter().zip(widths).zip(HEADS).map(|((cell, &width), (_, number))| {
            if number { format!("{cell:>width$}") } else { format!("{cell:width$}") }
        });
    format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
}

fn row(case: &Case, cell: &Cell) -> Vec<String> {
    let bytes = |bytes: Option<Bytes>| bytes.map_or("-".to_string(), format_bytes);
    let ms = |ms: Option<f64>| ms.map_or("-".to_string(), |ms| format!("{ms:.3}"));
    let percent = |share: Option<f64>| share.map_or("-".to_string(), |share| format!("{share:.1} %"));
    vec![
        cell.model.clone(),
        cell.batch_size.to_string(),
        case.machine_title(),
        cell.policy.clone(),
        budget(cell),
        if cell.planned { bytes(cell.peak_bytes) } else { lacks(cell) },
        bytes(cell.host_peak_bytes),
        bytes(cell.offload_bytes),
        ms(cell.recompute_ms),
        ms(cell.predicted_ms),
        ms(Some(cell.oracle_ms)),
        percent(cell.slowdown_percent),
        ms(cell.lower_bound_ms),
        percent(cell.gap_percent),
        format!("{:.3} s", cell.planning_seconds),
    ]
}

fn budget(cell: &Cell) -> String {
    let bytes = cell.budget_bytes.map_or("none".to_string(), format_bytes);
    match cell.budget_percent {
        Some(share) => format!("{share}% {bytes}"),
        None => bytes,
    }
}

/// What a cell without a plan says in place of its peak.
fn lacks(cell: &Cell) -> String {
    match cell.budget_bytes {
        Some(budget) if budget < cell.floor_bytes => format!("floor {}", format_bytes(cell.floor_bytes)),
        _ => "host too small".to_string(),
    }
}

/// All cells with full precision. What is not known is empty.
pub fn csv(cells: &[Cell]) -> String {
    let mut text = KEYS.join(",") + "\n";
    for cell in cells {
        let document = serde_json::to_value(cell).unwrap_or_default();
        let fields: Vec<String> = KEYS.iter().map(|key| csv_field(&document[key])).collect();
        text.push_str(&(fields.join(",") + "\n"));
    }
    text
}
