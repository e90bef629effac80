//! The device's memory over time as a picture: bytes stacked by kind, with budget, floor and the planned peak as lines.

use super::axis::{Axis, WIDTH};
use crate::cli::drawing::{byte_unit, escape, number, step};
use crate::cli::occupancy::{KINDS, Moment, columns};
use std::fmt::Write;
use vdnn_graph::Graph;
use vdnn_schedule::{Action, Schedule, Timeline};
use vdnn_tensor::{Bytes, format_bytes};

const TOP: f64 = 12.0;
const BOTTOM: f64 = 300.0;

/// The picture with the sentence below it. Its columns carry all bytes and those of each kind, for whoever reads the page by
/// program.
pub fn draw(
    schedule: &Schedule,
    graph: &Graph,
    timeline: &Timeline,
    axis: Axis,
    lines: &[(&'static str, Bytes)],
) -> String {
    let (left, right) = axis.ends();
    let columns = columns(schedule, graph, timeline, (right - left) as usize);
    let fullest = columns.iter().max_by_key(|moment| moment.bytes()).copied().unwrap_or_default();
    // A line far above what is used would press everything else to the ground.
    let (near, far): (Vec<_>, Vec<_>) =
        lines.iter().partition(|(_, bytes)| *bytes <= fullest.bytes().saturating_mul(2));
    let most = near.iter().map(|(_, bytes)| *bytes).chain([fullest.bytes(), 1]).max().unwrap_or(1) as f64;
    let y = |bytes: Bytes| BOTTOM - bytes as f64 / most * (BOTTOM - TOP);
    let mut svg = format!(
        "<svg class=\"picture\" id=\"memory\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"device memory over time\">\n",
        BOTTOM + 22.0
    );
    axis.ticks(&mut svg, TOP, BOTTOM);
    scale(&mut svg, axis, most);
    // Each kind is drawn with all below it; the next one covers these.
    for kind in (0..KINDS.len()).rev() {
        area(&mut svg, left, &columns, kind, &y);
    }
    // Lines may lie close to each other: their names stand side by side.
    for (index, (name, bytes)) in near.iter().enumerate() {
        let (at, end) = (y(*bytes), right - 4.0 - 60.0 * index as f64);
        let _ = writeln!(
            svg,
            "<path class=\"line\" d=\"M{left},{at:.2}H{right}\"><title>{name}: {}</title></path>\
             <text x=\"{end}\" y=\"{:.2}\" text-anchor=\"end\">{name}</text>",
            format_bytes(*bytes),
            at + 11.0
        );
    }
    tips(&mut svg, schedule, left, &columns);
    svg.push_str("</svg>\n");
    let beyond: String = far.iter().map(|(name, bytes)| format!(" The {name} is {}.", format_bytes(*bytes))).collect();
    let _ = writeln!(
        svg,
        "<p>Most at once: {} (<span id=\"most-live\">{}</span> bytes), {}.{beyond}</p>",
        format_bytes(fullest.bytes()),
        fullest.bytes(),
        escape(&when(&launches(schedule), fullest.launched))
    );
    svg
}

/// Marks of bytes at the left.
fn scale(svg: &mut String, axis: Axis, most: f64) {
    let (left, right) = axis.ends();
    let (unit, size) = byte_unit(most);
    let every = step(most / size);
    for value in (0..=20).map(|i| f64::from(i) * every).take_while(|value| value * size <= most) {
        let y = BOTTOM - value * size / most * (BOTTOM - TOP);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{left},{y:.2}H{right}\"/><text x=\"{}\" y=\"{:.2}\" text-anchor=\"end\">{} {unit}</text>",
            left - 6.0,
            y + 4.0,
            number(value)
        );
    }
}

/// A kind and all below it, column by column.
fn area(svg: &mut String, left: f64, columns: &[Moment], kind: usize, y: &impl Fn(Bytes) -> f64) {
    let height = |moment: &Moment| moment.levels[..=kind].iter().sum::<Bytes>();
    if columns.iter().all(|moment| moment.levels[kind] == 0) {
        return;
    }
    let mut path = format!("M{left},{BOTTOM}");
    let mut at = left;
    for run in columns.chunk_by(|a, b| height(a) == height(b)) {
        at += run.len() as f64;
        let _ = write!(path, "V{:.2}H{at}", y(height(&run[0])));
    }
    let (name, colour) = KINDS[kind];
    let _ = writeln!(svg, "<path d=\"{path}V{BOTTOM}Z\" fill=\"{colour}\"><title>{name}</title></path>");
}

/// An invisible column over each stretch of time in which nothing changes, which says what is there.
fn tips(svg: &mut String, schedule: &Schedule, left: f64, columns: &[Moment]) {
    let launches = launches(schedule);
    let mut x = left;
    for run in columns.chunk_by(PartialEq::eq) {
        let moment = run[0];
        let held = KINDS.iter().zip(moment.levels).filter(|(_, bytes)| *bytes > 0);
        let held: Vec<String> = held.map(|((name, _), bytes)| format!("{name} {}", format_bytes(bytes))).collect();
        let kinds: Vec<String> = moment.levels.iter().map(Bytes::to_string).collect();
        let _ = writeln!(
            svg,
            "<rect class=\"tip\" x=\"{x}\" y=\"{TOP}\" width=\"{}\" height=\"{}\" data-live=\"{}\" data-kinds=\"{}\"><title>{}, {}: {}</title></rect>",
            run.len(),
            BOTTOM - TOP,
            moment.bytes(),
            kinds.join(" "),
            format_bytes(moment.bytes()),
            escape(&when(&launches, moment.launched)),
            held.join(", ")
        );
        x += run.len() as f64;
    }
}

/// Names of what is launched, in order.
fn launches(schedule: &Schedule) -> Vec<&str> {
    let name = |action: &Action| match action {
        Action::Launch { node, .. } => schedule.nodes.get(node.index()).map(String::as_str),
        _ => None,
    };
    schedule.commands.iter().filter_map(|command| name(&command.action)).collect()
}

/// The moment after so many launches, in words.
fn when(launches: &[&str], launched: usize) -> String {
    match launches.get(launched) {
        Some(node) => format!("at step {launched}, {node}"),
        None => "at the end".to_string(),
    }
}
