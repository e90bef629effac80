//! A timeline as a Chrome trace, which chrome://tracing and Perfetto show: one row a stream, arrows from records to waits.

use super::{Timeline, direction_name, label, role_name};
use crate::{Action, Command, Schedule, Span};
use serde_json::{Value, json};
use std::collections::HashMap;

impl Timeline {
    /// The timeline as JSON in the trace event format; times in microseconds.
    ///
    /// Each launch and transfer carries what it did (algorithm, bytes, cause) in its arguments.
    pub fn chrome_trace(&self, schedule: &Schedule) -> String {
        let mut events = rows(schedule);
        events.extend(self.commands(schedule).map(|(span, command)| event(schedule, span, command)));
        events.extend(self.arrows(schedule));
        json!({ "traceEvents": events, "displayTimeUnit": "ms" }).to_string()
    }

    /// Arrows from the span before each record to the span after each wait for it.
    fn arrows(&self, schedule: &Schedule) -> Vec<Value> {
        let spans: HashMap<u32, &Span> = self.spans.iter().map(|span| (span.command, span)).collect();
        let mut last_end = vec![None; schedule.streams.len()];
        let mut recorded: HashMap<u32, (u32, f64)> = HashMap::new();
        let mut pending: Vec<Vec<u32>> = vec![Vec::new(); schedule.streams.len()];
        let mut arrows = Vec::new();
        for (index, command) in schedule.commands.iter().enumerate() {
            let stream = command.stream.index();
            if stream >= last_end.len() {
                continue;
            }
            match &command.action {
                Action::Record(event) => {
                    if let Some(end) = last_end[stream] {
                        recorded.insert(event.0, (command.stream.0, end));
                    }
                }
                Action::Wait(event) => pending[stream].push(event.0),
                _ => {
                    let Some(span) = spans.get(&(index as u32)) else { continue };
                    last_end[stream] = Some(span.end);
                    for event in pending[stream].drain(..) {
                        if let Some(&from) = recorded.get(&event) {
                            arrows.extend(arrow(schedule, event, from, (command.stream.0, span.start)));
                        }
                    }
                }
            }
        }
        arrows
    }
}

/// Names and order of the rows.
fn rows(schedule: &Schedule) -> Vec<Value> {
    let mut events = vec![json!({
        "name": "process_name", "ph": "M", "pid": 0, "tid": 0,
        "args": { "name": format!("{} ({})", schedule.name, schedule.policy) },
    })];
    for (stream, role) in schedule.streams.iter().enumerate() {
        let head = |name: &str, args: Value| json!({ "name": name, "ph": "M", "pid": 0, "tid": stream, "args": args });
        events.push(head("thread_name", json!({ "name": role_name(*role) })));
        events.push(head("thread_sort_index", json!({ "sort_index": stream })));
    }
    events
}

fn event(schedule: &Schedule, span: &Span, command: &Command) -> Value {
    let (category, args) = match &command.action {
        Action::Launch { algo, workspace, .. } => {
            let algorithm = schedule.algorithms.get(algo.index());
            let workspace = workspace.map_or(0, |region| region.bytes());
            ("launch", json!({ "algorithm": algorithm, "workspace_bytes": workspace }))
        }
        Action::Transfer { direction, src, .. } => (direction_name(*direction), json!({ "bytes": src.bytes() })),
        _ => ("other", json!({})),
    };
    let mut args = args;
    args["command"] = json!(span.command);
    args["because"] = json!(command.because);
    json!({
        "name": label(schedule, command), "cat": category, "ph": "X", "pid": 0, "tid": command.stream.0,
        "ts": span.start * 1e6, "dur": span.seconds() * 1e6, "args": args,
    })
}

/// Both ends of one arrow, each (stream, time).
fn arrow(schedule: &Schedule, event: u32, from: (u32, f64), to: (u32, f64)) -> [Value; 2] {
    let name = schedule.events.get(event as usize).map_or("", |event| event.name.as_str());
    let end = |phase: &str, (stream, time): (u32, f64)| {
        json!({
            "name": name, "cat": "event", "ph": phase, "bp": "e", "id": format!("{event}.{}", to.0), "pid": 0,
            "tid": stream, "ts": time * 1e6,
        })
    };
    [end("s", from), end("f", to)]
}
