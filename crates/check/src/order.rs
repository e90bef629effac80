//! Happens-before, by vector clocks.
//!
//! A stream's clock counts its commands; a record saves the clock of its stream, a wait takes the maximum of its own and
//! the saved one. Command a happens before b in every legal run exactly when b's clock has seen a's tick. Happens-before is
//! contained in issue order, because a stream runs in order and a wait only counts when its record was issued before it.

use crate::flat::{Flat, Kind, Line};
use vdnn_schedule::{EventId, Schedule};

/// More streams than any schedule has: one per role and three to spare.
pub(crate) const MAX_STREAMS: usize = 8;

/// The order of all commands of one or more iterations in a row. Command i of iteration k has index k · n + i.
///
/// Clocks are as wide as the schedule has streams and lie one after the other: a deep network has a hundred thousand.
pub(crate) struct Order {
    n_commands: usize,
    n_streams: usize,
    /// Stream of each command of all iterations.
    streams: Vec<u8>,
    /// By command, for each stream the commands of it that are seen.
    clocks: Vec<u32>,
}

impl Order {
    /// Follows `schedule` for a number of iterations, issued one after the other without any extra join.
    pub(crate) fn of(schedule: &Schedule, flat: &Flat<'_>, iterations: usize) -> Self {
        let (n_commands, n_streams) = (schedule.commands.len(), schedule.streams.len());
        let mut streams = Vec::with_capacity(n_commands * iterations);
        let mut clocks = Vec::with_capacity(n_commands * iterations * n_streams);
        let mut now = vec![vec![0; n_streams]; n_streams];
        let mut recorded = vec![0; schedule.events.len() * n_streams];
        let at = |event: EventId| event.index() * n_streams..(event.index() + 1) * n_streams;
        for _ in 0..iterations {
            for &Line { stream, kind } in &flat.lines {
                let clock = &mut now[usize::from(stream)];
                if let Kind::Wait(event) = kind {
                    merge(clock, &recorded[at(event)]);
                }
                clock[usize::from(stream)] += 1;
                streams.push(stream);
                clocks.extend(clock.iter());
                if let Kind::Record(event) = kind {
                    recorded[at(event)].copy_from_slice(clock);
                }
            }
        }
        Order { n_commands, n_streams, streams, clocks }
    }

    /// Number of commands of one iteration.
    pub(crate) fn n_commands(&self) -> usize {
        self.n_commands
    }

    /// Stream of a command of any iteration.
    pub(crate) fn stream(&self, index: usize) -> usize {
        usize::from(self.streams[index])
    }

    /// How many commands of a stream a command of any iteration has seen, itself among them.
    pub(crate) fn seen(&self, index: usize, stream: usize) -> u32 {
        self.clocks[index * self.n_streams + stream]
    }

    /// True when `first` has run before `second` starts, in every legal run.
    pub(crate) fn before(&self, first: usize, second: usize) -> bool {
        let stream = self.stream(first);
        if stream == self.stream(second) {
            return first < second;
        }
        self.seen(second, stream) >= self.seen(first, stream)
    }
}

fn merge(into: &mut [u32], other: &[u32]) {
    for (mine, theirs) in into.iter_mut().zip(other) {
        *mine = (*mine).max(*theirs);
    }
}
