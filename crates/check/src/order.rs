//! Happens-before, by vector clocks.
//!
//! A stream's clock counts its commands; a record saves the clock of its stream, a wait takes the maximum of its own and
//! the saved one. Command a happens before b in every legal run exactly when b's clock has seen a's tick. Happens-before is
//! contained in issue order, because a stream runs in order and a wait only counts when its record was issued before it.

use vdnn_schedule::{Action, Schedule};

/// More streams than any schedule has: one per role and three to spare.
pub(crate) const MAX_STREAMS: usize = 8;

pub(crate) type Clock = [u32; MAX_STREAMS];

/// The order of all commands of one or more iterations in a row. Command i of iteration k has index k · n + i.
pub(crate) struct Order {
    /// Stream of each command of one iteration.
    streams: Vec<usize>,
    clocks: Vec<Clock>,
}

impl Order {
    /// Follows `schedule` for a number of iterations, issued one after the other without any extra join.
    pub(crate) fn of(schedule: &Schedule, iterations: usize) -> Self {
        let streams: Vec<usize> = schedule.commands.iter().map(|command| command.stream.index()).collect();
        let mut clocks = Vec::with_capacity(streams.len() * iterations);
        let mut now = [Clock::default(); MAX_STREAMS];
        let mut recorded = vec![Clock::default(); schedule.events.len()];
        for _ in 0..iterations {
            for (command, &stream) in schedule.commands.iter().zip(&streams) {
                if let Action::Wait(event) = command.action {
                    merge(&mut now[stream], &recorded[event.index()]);
                }
                now[stream][stream] += 1;
                clocks.push(now[stream]);
                if let Action::Record(event) = command.action {
                    recorded[event.index()] = now[stream];
                }
            }
        }
        Order { streams, clocks }
    }

    /// Number of commands of one iteration.
    pub(crate) fn n_commands(&self) -> usize {
        self.streams.len()
    }

    /// Stream of a command of any iteration.
    pub(crate) fn stream(&self, index: usize) -> usize {
        self.streams[index % self.streams.len()]
    }

    /// The clock of a command of any iteration.
    pub(crate) fn clock(&self, index: usize) -> &Clock {
        &self.clocks[index]
    }

    /// True when `first` has run before `second` starts, in every legal run.
    pub(crate) fn before(&self, first: usize, second: usize) -> bool {
        let stream = self.stream(first);
        first != second && self.clocks[second][stream] >= self.clocks[first][stream]
    }
}

fn merge(into: &mut Clock, other: &Clock) {
    for (mine, theirs) in into.iter_mut().zip(other) {
        *mine = (*mine).max(*theirs);
    }
}
