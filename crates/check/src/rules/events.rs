//! Events are recorded exactly once an iteration, and before any wait for them is issued.
//!
//! A wait that comes first would see the point reached in the iteration before, on a real device as in the clocks here.

use crate::flat::{Flat, Kind};
use crate::{Rule, Violation};
use vdnn_schedule::Schedule;

pub(crate) fn check(schedule: &Schedule, flat: &Flat<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut recorded: Vec<Option<usize>> = vec![None; schedule.events.len()];
    let name = |event: usize| &schedule.events[event].name;
    for (index, line) in flat.lines.iter().enumerate() {
        let message = match line.kind {
            Kind::Record(event) => match recorded[event.index()].replace(index) {
                Some(first) => format!("{:?} was recorded before, by command {first}", name(event.index())),
                None => continue,
            },
            Kind::Wait(event) if recorded[event.index()].is_none() => {
                format!("expected a record of {:?} before this wait, found none", name(event.index()))
            }
            _ => continue,
        };
        found.push(Violation::at(Rule::Events, index, message));
    }
    for (event, _) in recorded.iter().enumerate().filter(|(_, record)| record.is_none()) {
        found.push(Violation::whole(Rule::Events, format!("{:?} is never recorded", name(event))));
    }
    found
}
