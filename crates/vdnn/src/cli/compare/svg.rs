//! Results of `vdnn compare` as one SVG file that needs nothing else: a panel for each case, a Pareto curve for each policy.
//!
//! ```text
//!  time ▲ ○                     filled: no plan of this policy takes less memory and less time
//!       │ ●───┐    ○            hollow: another one does
//!       │     ●──────────┐      between two filled ones a budget gets the left one's time
//!       │                ●
//!       └──────────────────▶ memory
//! ```

use super::{Case, cell::Cell};
use crate::cli::drawing::{COLOURS, byte_unit, escape, number, step};
use clap::{Args, ValueEnum};
use std::fmt::Write;
use vdnn_tensor::{Bytes, format_bytes};

/// What the axes show.
#[derive(Args, Clone, Copy)]
pub struct Axes {
    /// The drawing's horizontal axis.
    #[arg(long, value_enum, default_value_t = Across::Peak)]
    svg_x: Across,
    /// The drawing's vertical axis.
    #[arg(long, value_enum, default_value_t = Upward::Slowdown)]
    svg_y: Upward,
    /// Stretch small values of the vertical axis: logarithmic above 1.
    #[arg(long)]
    svg_log: bool,
}

/// Horizontal axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Across {
    /// Planned peak of device memory.
    Peak,
    /// Budget; cells without one are left out.
    Budget,
}

/// Vertical axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Upward {
    /// Predicted time over the oracle's, in per cent more.
    Slowdown,
    /// Predicted milliseconds.
    Ms,
}

/// Drawn around (0, 0), five units wide to each side.
const MARKERS: [&str; 5] = [
    "M-4,-4H4V4H-4Z",
    "M0,-5.5L5,4H-5Z",
    "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
    "M0,5.5L5,-4H-5Z",
    "M-5,0A5,5 0 1 0 5,0A5,5 0 1 0 -5,0Z",
];

/// How the lower bound is drawn.
const BOUND: &str = "fill=\"none\" stroke=\"#555555\" stroke-dasharray=\"6,3\"";

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 52.0;
const LEGEND_ROW: f64 = 22.0;
const LEGEND_ENTRY: f64 = 120.0;

/// One cell on paper.
struct Point<'a> {
    x: f64,
    y: f64,
    cell: &'a Cell,
}

/// The whole drawing.
pub fn draw(cases: &[Case], cells: &[Cell], axes: Axes) -> String {
    let policies = policies(cells);
    let columns = if cases.len() > 4 { 3 } else { cases.len().clamp(1, 2) };
    let rows = cases.len().div_ceil(columns);
    let width = columns as f64 * WIDTH;
    let entries = ((width - LEFT) / LEGEND_ENTRY).max(1.0) as usize;
    let panels = rows as f64 * HEIGHT;
    let bounded = cells.iter().any(|cell| cell.lower_bound_ms.is_some());
    let height = panels + (policies.len() + usize::from(bounded)).div_ceil(entries) as f64 * LEGEND_ROW + 14.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<title>{} against {}</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        axes.y_label(),
        axes.x_label("bytes")
    );
    for (index, case) in cases.iter().enumerate() {
        let (column, row) = ((index % columns) as f64, (index / columns) as f64);
        let _ = writeln!(svg, "<g transform=\"translate({},{})\">", column * WIDTH, row * HEIGHT);
        let mine: Vec<&Cell> = cells.iter().filter(|cell| cell.case == index).collect();
        panel(&mut svg, case, &mine, &policies, axes);
        svg.push_str("</g>\n");
    }
    let place = |index: usize| {
        let (column, row) = ((index % entries) as f64, (index / entries) as f64);
        (LEFT + column * LEGEND_ENTRY, panels + row * LEGEND_ROW + 8.0)
    };
    for (index, policy) in policies.iter().enumerate() {
        legend(&mut svg, index, policy, place(index));
    }
    if bounded {
        let (x, y) = place(policies.len());
        let _ = writeln!(
            svg,
            "<path d=\"M{},{y}H{}\" {BOUND}/><text x=\"{}\" y=\"{}\">lower bound</text>",
            x - 14.0,
            x + 14.0,
            x + 20.0,
            y + 4.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Names in the order in which cells have them.
fn policies(cells: &[Cell]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for cell in cells {
        if !names.contains(&cell.policy.as_str()) {
            names.push(&cell.policy);
        }
    }
    names
}

impl Axes {
    fn x_label(self, unit: &str) -> String {
        match self.svg_x {
            Across::Peak => format!("peak device memory, {unit}"),
            Across::Budget => format!("budget of device memory, {unit}"),
        }
    }

    fn y_label(self) -> &'static str {
        match self.svg_y {
            Upward::Slowdown => "slowdown over the fastest kernels, %",
            Upward::Ms => "predicted step, ms",
        }
    }

    fn point(self, cell: &Cell) -> Option<Point<'_>> {
        let bytes = match self.svg_x {
            Across::Peak => cell.peak_bytes,
            Across::Budget => cell.budget_bytes,
        };
        let y = match self.svg_y {
            Upward::Slowdown => cell.slowdown_percent,
            Upward::Ms => cell.predicted_ms,
        };
        let y = y.filter(|y| y.is_finite())?;
        Some(Point { x: bytes? as f64, y: y.max(0.0), cell })
    }
}

/// From figures to paper. Time begins at 0, memory shortly below the least that matters.
struct Scale {
    x_begin: f64,
    x_end: f64,
    x_step: f64,
    /// Values marked on the vertical axis, from 0 to its end.
    y_ticks: Vec<f64>,
    log: bool,
    unit: (&'static str, f64),
}

impl Scale {
    fn of(case: &Case, points: &[Point<'_>], log: bool) -> Self {
        let marks = [case.least_floor, case.none_peak].map(|bytes| bytes as f64);
        let memory = || points.iter().map(|point| point.x).chain(marks);
        let (least, most) = (memory().fold(f64::INFINITY, f64::min), memory().fold(0.0, f64::max));
        let slowest = points.iter().map(|point| point.y).fold(0.0, f64::max);
        let unit = byte_unit(most);
        let range = if most > least { most - least } else { most };
        let x_step = step(range / unit.1) * unit.1;
        let x_begin = (least / x_step).floor() * x_step;
        let x_end = (most / x_step * 1.001).ceil().max(1.0) * x_step;
        Scale { x_begin, x_end, x_step, y_ticks: y_ticks(slowest * 1.001, log), log, unit }
    }

    fn x(&self, bytes: f64) -> f64 {
        LEFT + (bytes - self.x_begin) / (self.x_end - self.x_begin) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let height = |value: f64| if self.log { value.ln_1p() } else { value };
        let end = self.y_ticks.last().copied().unwrap_or(1.0);
        HEIGHT - BOTTOM - height(value) / height(end) * (HEIGHT - TOP - BOTTOM)
    }
}

/// Marks from 0 until one is at least `most`: evenly, or 1, 2, 5, 10, 20 and so on.
fn y_ticks(most: f64, log: bool) -> Vec<f64> {
    let even = step(most);
    let mark = |i: i32| match (log, i) {
        (false, i) => f64::from(i) * even,
        (true, 0) => 0.0,
        (true, i) => [1.0, 2.0, 5.0][(i as usize - 1) % 3] * 10f64.powi((i - 1) / 3),
    };
    let below = (1..).take_while(|&i| mark(i) < most).count() as i32;
    (0..=below + 1).map(mark).collect()
}

fn panel(svg: &mut String, case: &Case, cells: &[&Cell], policies: &[&str], axes: Axes) {
    let points: Vec<Point<'_>> = cells.iter().filter_map(|cell| axes.point(cell)).collect();
    let scale = Scale::of(case, &points, axes.svg_log);
    let title = format!("{}, batch {}, {}", case.model, case.batch_size, case.machine_title());
    let _ =
        writeln!(svg, "<text x=\"{LEFT}\" y=\"18\" font-size=\"14\" font-weight=\"bold\">{}</text>", escape(&title));
    frame(svg, &scale, axes);
    bound(svg, &scale, cells, axes);
    landmark(svg, &scale, case.least_floor, "least floor");
    landmark(svg, &scale, case.none_peak, "none");
    for (index, policy) in policies.iter().enumerate() {
        let mut mine: Vec<&Point<'_>> = points.iter().filter(|point| point.cell.policy == *policy).collect();
        mine.sort_by(|a, b| a.x.total_cmp(&b.x).then(a.y.total_cmp(&b.y)));
        mine.dedup_by(|a, b| (a.x, a.y) == (b.x, b.y));
        curve(svg, &scale, index, &mine);
    }
    if points.is_empty() {
        let (x, y) = (WIDTH / 2.0, HEIGHT / 2.0);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">no plan within these budgets</text>");
    }
}

/// Axes with ticks, grid, units and labels.
fn frame(svg: &mut String, scale: &Scale, axes: Axes) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let n_steps = ((scale.x_end - scale.x_begin) / scale.x_step).round() as u32;
    for at in (0..=n_steps).map(|i| scale.x_begin + f64::from(i) * scale.x_step) {
        let (x, label) = (scale.x(at), number(at / scale.unit.1));
        let _ = writeln!(svg, "<path d=\"M{x:.1},{TOP}V{bottom}\" stroke=\"#e4e4e4\"/>");
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>", bottom + 17.0);
    }
    for &at in &scale.y_ticks {
        let (y, label) = (scale.y(at), number(at));
        let _ = writeln!(svg, "<path d=\"M{LEFT},{y:.1}H{right}\" stroke=\"#e4e4e4\"/>");
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 6.0, y + 4.0);
    }
    let _ = writeln!(svg, "<path d=\"M{LEFT},{TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#333333\"/>");
    let middle = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
    let (x_label, y_label) = (axes.x_label(scale.unit.0), axes.y_label());
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{x_label}</text>\n\
         <text transform=\"translate(16,{}) rotate(-90)\" text-anchor=\"middle\">{y_label}</text>",
        middle.0,
        HEIGHT - 14.0,
        middle.1
    );
}

/// A dashed line at a number of bytes that means something.
fn landmark(svg: &mut String, scale: &Scale, bytes: Bytes, name: &str) {
    let (x, bottom) = (scale.x(bytes as f64), HEIGHT - BOTTOM);
    let _ = writeln!(
        svg,
        "<path d=\"M{x:.1},{TOP}V{bottom}\" stroke=\"#888888\" stroke-dasharray=\"3,3\"/>\
         <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" font-size=\"10\" fill=\"#666666\">{name}</text>",
        TOP - 5.0
    );
}

/// What no plan is below, where it is known: at each budget, and from one down to the next the one with more memory.
fn bound(svg: &mut String, scale: &Scale, cells: &[&Cell], axes: Axes) {
    let point = |cell: &&Cell| {
        let (budget, ms) = (cell.budget_bytes? as f64, cell.lower_bound_ms?);
        let y = match axes.svg_y {
            Upward::Slowdown => (ms / cell.oracle_ms - 1.0) * 100.0,
            Upward::Ms => ms,
        };
        let inside = (scale.x_begin..=scale.x_end).contains(&budget) && y.is_finite();
        inside.then(|| (scale.x(budget), scale.y(y.max(0.0))))
    };
    let mut points: Vec<(f64, f64)> = cells.iter().filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.dedup();
    let Some(&(x, y)) = points.first() else { return };
    let mut path = format!("M{x:.1},{y:.1}");
    for (x, y) in &points[1..] {
        let _ = write!(path, "V{y:.1}H{x:.1}");
    }
    let _ = writeln!(svg, "<path d=\"{path}\" {BOUND}><title>no plan is below</title></path>");
}

/// One policy's points, sorted by memory: a stepped line through those that no other beats.
fn curve(svg: &mut String, scale: &Scale, index: usize, points: &[&Point<'_>]) {
    let (colour, marker) = look(index);
    let mut path = String::new();
    let mut best = f64::INFINITY;
    let mut markers = String::new();
    for point in points {
        let (x, y) = (scale.x(point.x), scale.y(point.y));
        let beats = point.y < best;
        if beats {
            let _ = if path.is_empty() { write!(path, "M{x:.1},{y:.1}") } else { write!(path, "H{x:.1}V{y:.1}") };
            best = point.y;
        }
        let fill = if beats { colour } else { "#ffffff" };
        let told = escape(&tip(point.cell));
        let _ = writeln!(
            markers,
            "<path d=\"{marker}\" transform=\"translate({x:.1},{y:.1})\" fill=\"{fill}\" stroke=\"{colour}\" \
             stroke-width=\"1.3\"><title>{told}</title></path>"
        );
    }
    if !path.is_empty() {
        let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>");
    }
    svg.push_str(&markers);
}

fn tip(cell: &Cell) -> String {
    let bytes = |bytes: Option<Bytes>| bytes.map_or("none".to_string(), format_bytes);
    format!(
        "{}, budget {}: peak {}, {:.3} ms, {:+.2} %",
        cell.policy,
        bytes(cell.budget_bytes),
        bytes(cell.peak_bytes),
        cell.predicted_ms.unwrap_or_default(),
        cell.slowdown_percent.unwrap_or_default()
    )
}

fn legend(svg: &mut String, index: usize, policy: &str, (x, y): (f64, f64)) {
    let (colour, marker) = look(index);
    let _ = writeln!(
        svg,
        "<path d=\"M{},{y}H{}\" stroke=\"{colour}\" stroke-width=\"1.6\"/>\
         <path d=\"{marker}\" transform=\"translate({x},{y})\" fill=\"{colour}\"/>\
         <text x=\"{}\" y=\"{}\">{}</text>",
        x - 14.0,
        x + 14.0,
        x + 20.0,
        y + 4.0,
        escape(policy)
    );
}

/// Colour and marker: no two of 35 policies have both in common.
fn look(index: usize) -> (&'static str, &'static str) {
    (COLOURS[index % COLOURS.len()], MARKERS[index % MARKERS.len()])
}
