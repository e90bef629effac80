//! What each stream does when: a row a stream, a bar for what it runs.
//!
//! ```text
//!   compute  |███|████|██|  |████████|     neighbours too narrow to be seen are one bar, which says how many it stands for,
//!   offload  |    ▒▒▒▒▒▒▒▒                 from the start of the first to the end of the last
//! ```

use super::axis::{Axis, WIDTH};
use crate::cli::drawing::escape;
use crate::cli::explain::serde_name;
use std::fmt::Write;
use vdnn_graph::{Graph, Phase};
use vdnn_schedule::{Action, Command, Direction, Schedule, Space, Timeline, label};

/// What bars are of: class in the style sheet, and name.
pub const SORTS: [(&str, &str); 8] = [
    ("fw", "forward"),
    ("bw", "backward"),
    ("up", "update"),
    ("again", "made again"),
    ("off", "offload"),
    ("pre", "prefetch"),
    ("wr", "to disk"),
    ("rd", "from disk"),
];

const ROW: f64 = 30.0;
const BAR: f64 = 22.0;
/// Narrower than this, in units of the picture, a bar is merged with its neighbours.
const NARROW: f64 = 1.0;
/// As wide as merged bars become.
const MERGED: f64 = 2.0;

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Start of the first span, in seconds.
    pub start: f64,
    /// End of the last.
    pub end: f64,
    /// Seconds of each of [`SORTS`] in between.
    pub busy: [f64; SORTS.len()],
    /// Spans it stands for.
    pub spans: usize,
    /// Names of the first and the last.
    pub names: (String, String),
}

impl Bar {
    fn seconds(&self) -> f64 {
        self.busy.iter().sum()
    }

    /// Index into [`SORTS`] of what takes most of it.
    fn sort(&self) -> usize {
        (0..SORTS.len()).rev().max_by(|&a, &b| self.busy[a].total_cmp(&self.busy[b])).unwrap_or(0)
    }

    fn title(&self) -> String {
        let (first, last) = &self.names;
        let at = format!("at {:.3} ms", self.start * 1e3);
        match self.spans {
            1 => format!("{first}: {:.3} ms, {at}", self.seconds() * 1e3),
            spans => {
                let (busy, length) = (self.seconds() * 1e3, (self.end - self.start) * 1e3);
                format!("{spans} from {first} to {last}: {busy:.3} ms in {length:.3}, {at}")
            }
        }
    }
}

/// The bars of every stream, in the schedule's order of streams, where `unit` seconds are one unit of a picture wide. What takes
/// no time has no bar.
pub fn bars(schedule: &Schedule, graph: &Graph, timeline: &Timeline, unit: f64) -> Vec<Vec<Bar>> {
    let mut rows: Vec<Vec<Bar>> = vec![Vec::new(); schedule.streams.len()];
    for (span, command) in timeline.commands(schedule).filter(|(span, _)| span.end > span.start) {
        let Some(row) = rows.get_mut(command.stream.index()) else { continue };
        let (name, sort) = (label(schedule, command), sort_of(schedule, graph, command));
        let narrow = |seconds: f64| seconds < NARROW * unit;
        let joins = |bar: &&mut Bar| {
            let small = narrow(span.seconds()) && (bar.spans > 1 || narrow(bar.end - bar.start));
            small && narrow(span.start - bar.end) && span.end - bar.start <= MERGED * unit
        };
        match row.last_mut().filter(joins) {
            Some(bar) => {
                bar.end = span.end;
                bar.spans += 1;
                bar.names.1 = name;
                bar.busy[sort] += span.seconds();
            }
            None => {
                let mut busy = [0.0; SORTS.len()];
                busy[sort] = span.seconds();
                row.push(Bar { start: span.start, end: span.end, busy, spans: 1, names: (name.clone(), name) });
            }
        }
    }
    rows
}

/// Index into [`SORTS`].
fn sort_of(schedule: &Schedule, graph: &Graph, command: &Command) -> usize {
    match &command.action {
        Action::Launch { run: 1.., .. } => 3,
        Action::Launch { node, .. } => match graph.node(*node).phase {
            Phase::Forward => 0,
            Phase::Backward => 1,
            Phase::Update => 2,
        },
        Action::Transfer { direction, src, dst } => {
            let disk = [src, dst].iter().any(|region| schedule.buffer(region.buffer).space == Space::Disk);
            match (direction, disk) {
                (Direction::Offload, false) => 4,
                (Direction::Prefetch, false) => 5,
                (Direction::Offload, true) => 6,
                (Direction::Prefetch, true) => 7,
            }
        }
        _ => 0,
    }
}

/// The picture. Its bars carry seconds, spans and stream, for whoever reads the page by program.
pub fn draw(schedule: &Schedule, graph: &Graph, timeline: &Timeline, axis: Axis, name: &str) -> String {
    let rows = bars(schedule, graph, timeline, axis.unit());
    let bottom = rows.len() as f64 * ROW + 4.0;
    let height = bottom + 22.0;
    let mut svg = format!(
        "<svg class=\"picture\" id=\"streams-{name}\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"streams over time, {name}\">\n"
    );
    axis.ticks(&mut svg, 0.0, bottom);
    for (index, (role, bars)) in schedule.streams.iter().zip(&rows).enumerate() {
        let y = index as f64 * ROW + 4.0;
        let role = serde_name(role);
        let _ =
            writeln!(svg, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{role}</text>", axis.ends().0 - 8.0, y + 15.0);
        for bar in bars {
            let (x, end) = (axis.x(bar.start), axis.x(bar.end));
            let _ = writeln!(
                svg,
                "<rect class=\"{}\" x=\"{x}\" y=\"{y}\" width=\"{:.2}\" height=\"{BAR}\" data-stream=\"{role}\" data-spans=\"{}\" \
                 data-busy-ms=\"{:.6}\"><title>{}</title></rect>",
                SORTS[bar.sort()].0,
                end - x,
                bar.spans,
                bar.seconds() * 1e3,
                escape(&bar.title())
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}
