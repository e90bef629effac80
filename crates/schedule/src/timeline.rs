//! When each command ran: made by the simulator and by devices alike, so that predicted against measured is a diff.

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

/// Times of all launches and transfers of one iteration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Launches and transfers in issue order.
    pub spans: Vec<Span>,
    /// Length of the iteration in seconds.
    pub seconds: f64,
}
