//! The kernels that take longest: algorithm, workspace, and the time that a faster choice would save.

use super::decisions::{END, left_out, table};
use crate::cli::drawing::escape;
use crate::cli::explain::serde_name;
use std::fmt::Write;
use vdnn_graph::Use;
use vdnn_schedule::{Action, Choice, Timeline};
use vdnn_tensor::format_bytes;
use vdnn_train::Planned;

/// Kernels that are told one by one.
const KERNELS: usize = 40;

/// One launch.
struct Row<'a> {
    step: usize,
    ran: Use,
    planned: &'a Choice,
    /// The fastest choice of all.
    fastest: &'a Choice,
    measured: Option<f64>,
}

/// The launches of one iteration, longest first, with what was measured beside what was planned.
pub fn kernels(planned: &Planned, measured: Option<&Timeline>) -> String {
    let mut rows = rows(planned, measured);
    rows.sort_by(|a, b| b.planned.seconds.total_cmp(&a.planned.seconds).then(a.step.cmp(&b.step)));
    let mut heads = vec!["step", "kernel", "phase", "algorithm", "workspace", "ms", "fastest choice"];
    if measured.is_some() {
        heads.insert(6, "measured ms");
    }
    let mut html = table(&heads);
    rows.iter().take(KERNELS).for_each(|row| line(&mut html, planned, row, measured.is_some()));
    let seconds = |rows: &[Row<'_>]| rows.iter().map(|row| row.planned.seconds).fold(0.0, |sum, more| sum + more);
    let _ = writeln!(
        html,
        "<tr><td></td><td>all {}</td><td></td><td></td><td></td><td class=\"n\">{:.3}</td>{}<td></td></tr>",
        rows.len(),
        seconds(&rows) * 1e3,
        if measured.is_some() { "<td></td>" } else { "" }
    );
    let rest = seconds(rows.get(KERNELS..).unwrap_or_default()) * 1e3;
    html + END + &left_out(rows.len(), KERNELS, &format!("{rest:.3} ms together"))
}

fn rows<'a>(planned: &'a Planned, measured: Option<&Timeline>) -> Vec<Row<'a>> {
    let Planned { plan, kernels, schedule, .. } = planned;
    let is_launch = |command: u32| match schedule.commands.get(command as usize) {
        Some(command) => matches!(command.action, Action::Launch { .. }),
        None => false,
    };
    let seconds: Vec<f64> = measured.map_or(Vec::new(), |timeline| {
        timeline.spans.iter().filter(|span| is_launch(span.command)).map(|span| span.seconds()).collect()
    });
    let row = |(step, &ran): (usize, &Use)| {
        let planned = kernels.get(ran.node, plan.choice(ran.node))?;
        let fastest = kernels.of(ran.node).first()?;
        Some(Row { step, ran, planned, fastest, measured: seconds.get(step).copied() })
    };
    plan.order.iter().enumerate().filter_map(row).collect()
}

fn line(html: &mut String, planned: &Planned, row: &Row<'_>, with_measured: bool) {
    let node = planned.program.graph.node(row.ran.node);
    let again = if row.ran.run > 0 { format!(" (run {})", row.ran.run) } else { String::new() };
    let measured = row.measured.map_or("-".to_string(), |seconds| format!("{:.3}", seconds * 1e3));
    let measured = if with_measured { format!("<td class=\"n\">{measured}</td>") } else { String::new() };
    let fastest = match row.fastest {
        fastest if fastest.algorithm == row.planned.algorithm => "this one".to_string(),
        fastest => {
            format!("{}: {:.3} ms, {}", fastest.algorithm, fastest.seconds * 1e3, format_bytes(fastest.workspace))
        }
    };
    let _ = writeln!(
        html,
        "<tr><td class=\"n\">{}</td><td>{}{again}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{:.3}</td>{measured}<td>{}</td></tr>",
        row.step,
        escape(&node.name),
        serde_name(&node.phase),
        escape(&row.planned.algorithm),
        format_bytes(row.planned.workspace),
        row.planned.seconds * 1e3,
        escape(&fastest)
    );
}
