//! When each command ran: made by the simulator and by devices alike, so that predicted against measured is a diff.

mod ascii;
mod diff;
mod trace;

pub use diff::{StreamDiff, TimelineDiff};

use crate::{Action, Command, Schedule, StreamRole};
use serde::{Deserialize, Serialize};

/// One command's time on its stream, in seconds from the start of the iteration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Index into the schedule's commands.
    pub command: u32,
    /// Start.
    pub start: f64,
    /// End.
    pub end: f64,
}

impl Span {
    /// How long it took.
    pub fn seconds(&self) -> f64 {
        self.end - self.start
    }
}

/// Times of all launches and transfers of one iteration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Launches and transfers in issue order.
    pub spans: Vec<Span>,
    /// Length of the iteration in seconds.
    pub seconds: f64,
}

impl Timeline {
    /// Time in which a kernel runs, in seconds. Kernels that overlap on several streams count once.
    pub fn compute_busy(&self, schedule: &Schedule) -> f64 {
        Covered::by(self.launches(schedule)).total()
    }

    /// Time in which no kernel runs: stalls on copies, and copies left over at the end.
    pub fn compute_idle(&self, schedule: &Schedule) -> f64 {
        (self.seconds - self.compute_busy(schedule)).max(0.0)
    }

    /// Share of all copying time, in 0..=1, that passes while a kernel runs. `None` when nothing is copied.
    pub fn hidden_copy_share(&self, schedule: &Schedule) -> Option<f64> {
        let launches = Covered::by(self.launches(schedule));
        let (mut total, mut hidden) = (0.0, 0.0);
        for (span, command) in self.commands(schedule) {
            if matches!(command.action, Action::Transfer { .. }) {
                total += span.seconds();
                hidden += launches.before(span.end) - launches.before(span.start);
            }
        }
        (total > 0.0).then(|| (hidden / total).clamp(0.0, 1.0))
    }

    /// Spans with their commands. Spans of commands the schedule does not have are left out.
    pub fn commands<'a>(&'a self, schedule: &'a Schedule) -> impl Iterator<Item = (&'a Span, &'a Command)> {
        self.spans.iter().filter_map(|span| Some((span, schedule.commands.get(span.command as usize)?)))
    }

    fn launches<'a>(&'a self, schedule: &'a Schedule) -> impl Iterator<Item = &'a Span> {
        self.commands(schedule).filter(|(_, c)| matches!(c.action, Action::Launch { .. })).map(|(span, _)| span)
    }
}

/// A union of stretches of time, with the time covered before each.
struct Covered {
    /// (start, end, covered before start), disjoint and in order.
    stretches: Vec<(f64, f64, f64)>,
}

impl Covered {
    fn by<'a>(spans: impl Iterator<Item = &'a Span>) -> Self {
        let mut sorted: Vec<(f64, f64)> = spans.map(|span| (span.start, span.end)).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut stretches: Vec<(f64, f64, f64)> = Vec::with_capacity(sorted.len());
        for (start, end) in sorted {
            match stretches.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                last => {
                    let covered = last.map_or(0.0, |last| last.2 + (last.1 - last.0));
                    stretches.push((start, end, covered));
                }
            }
        }
        Covered { stretches }
    }

    /// Time covered before `time`.
    fn before(&self, time: f64) -> f64 {
        let begun = self.stretches.partition_point(|stretch| stretch.0 < time);
        begun.checked_sub(1).map_or(0.0, |at| {
            let (start, end, covered) = self.stretches[at];
            covered + (time.min(end) - start)
        })
    }

    fn total(&self) -> f64 {
        self.before(f64::INFINITY)
    }
}

/// What a launch or transfer is called: `conv1`, `conv1 (run 1)`, `offload x`.
pub fn label(schedule: &Schedule, command: &Command) -> String {
    let buffer = |index: usize| schedule.buffers.get(index).map_or("?", |buffer| buffer.name.as_str());
    match &command.action {
        Action::Launch { node, run, .. } => {
            let name = schedule.nodes.get(node.index()).map_or("?", String::as_str);
            if *run == 0 { name.to_string() } else { format!("{name} (run {run})") }
        }
        Action::Transfer { direction, src, dst } => {
            let device = if *direction == crate::Direction::Offload { src } else { dst };
            format!("{} {}", direction_name(*direction), buffer(device.buffer.index()))
        }
        other => format!("{other:?}"),
    }
}

fn direction_name(direction: crate::Direction) -> &'static str {
    match direction {
        crate::Direction::Offload => "offload",
        crate::Direction::Prefetch => "prefetch",
    }
}

/// The name of a stream's row.
fn role_name(role: StreamRole) -> &'static str {
    match role {
        StreamRole::Compute => "compute",
        StreamRole::Offload => "offload",
        StreamRole::Prefetch => "prefetch",
        StreamRole::Disk => "disk",
        StreamRole::Comm => "comm",
    }
}

/// A time for people, with three or four digits and a unit.
fn format_seconds(seconds: f64) -> String {
    let (value, unit) = match seconds.abs() {
        s if s >= 1.0 || s == 0.0 => (seconds, "s"),
        s if s >= 1e-3 => (seconds * 1e3, "ms"),
        _ => (seconds * 1e6, "us"),
    };
    let digits = if value.abs() < 10.0 { 3 } else { usize::from(value.abs() < 1000.0) };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}
