//! Every stream starts after the compute stream has started, in this iteration, and the compute stream ends after all.
//!
//! Without it iterations would overlap, and an iteration could not be captured as one graph.

use crate::order::Order;
use crate::{Rule, Violation, describe};
use vdnn_schedule::{Action, Schedule};

pub(crate) fn check(schedule: &Schedule, order: &Order) -> Vec<Violation> {
    let n = schedule.commands.len();
    let mut first: Vec<Option<usize>> = vec![None; schedule.streams.len()];
    let mut last: Vec<Option<usize>> = vec![None; schedule.streams.len()];
    for index in 0..n {
        first[order.stream(index)].get_or_insert(index);
        last[order.stream(index)] = Some(index);
    }
    let mut found = Vec::new();
    for stream in 1..schedule.streams.len() {
        let (Some(first), Some(last_index)) = (first[stream], last[stream]) else { continue };
        let role = schedule.streams[stream];
        if !matches!(schedule.commands[first].action, Action::Wait(_)) || order.seen(first, 0) == 0 {
            let command = describe::command(schedule, first);
            let message = format!("expected the {role:?} stream to wait for the compute stream first, found {command}");
            found.push(Violation::at(Rule::ForkJoin, first, message));
        }
        let joined = last[0].is_some_and(|end| end < n && order.before(last_index, end));
        if !joined {
            let command = describe::command(schedule, last_index);
            let message =
                format!("expected the compute stream to wait for the {role:?} stream's last command, {command}");
            found.push(Violation::at(Rule::ForkJoin, last_index, message));
        }
    }
    found
}
