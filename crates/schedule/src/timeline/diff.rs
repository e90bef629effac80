//! Predicted against measured.

use super::{Timeline, format_seconds, role_name};
use crate::{Schedule, StreamId, StreamRole};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One stream's share of a [`TimelineDiff`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamDiff {
    /// The stream.
    pub stream: StreamId,
    /// What it is for.
    pub role: StreamRole,
    /// Seconds it was predicted to be busy.
    pub predicted_busy: f64,
    /// Seconds it was measured to be busy.
    pub measured_busy: f64,
}

/// How well a predicted timeline met a measured one of the same schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelineDiff {
    /// Predicted length of the iteration in seconds.
    pub predicted: f64,
    /// Measured length of the iteration in seconds.
    pub measured: f64,
    /// Every stream of the schedule.
    pub streams: Vec<StreamDiff>,
}

impl Timeline {
    /// Sums up a predicted and a measured timeline of one schedule.
    pub fn diff(predicted: &Timeline, measured: &Timeline, schedule: &Schedule) -> TimelineDiff {
        let (before, after) = (predicted.busy(schedule), measured.busy(schedule));
        let stream = |(index, role): (usize, &StreamRole)| StreamDiff {
            stream: StreamId(index as u32),
            role: *role,
            predicted_busy: before[index],
            measured_busy: after[index],
        };
        let streams = schedule.streams.iter().enumerate().map(stream).collect();
        TimelineDiff { predicted: predicted.seconds, measured: measured.seconds, streams }
    }

    /// Seconds each stream is busy, by stream.
    fn busy(&self, schedule: &Schedule) -> Vec<f64> {
        let mut busy = vec![0.0; schedule.streams.len()];
        for (span, command) in self.commands(schedule) {
            if let Some(seconds) = busy.get_mut(command.stream.index()) {
                *seconds += span.seconds();
            }
        }
        busy
    }
}

impl StreamDiff {
    /// By how much the prediction misses, in percent of what was measured; above 0 when it predicts too much.
    pub fn error_percent(&self) -> f64 {
        error_percent(self.predicted_busy, self.measured_busy)
    }
}

impl TimelineDiff {
    /// By how much the predicted length misses, in percent of what was measured.
    pub fn error_percent(&self) -> f64 {
        error_percent(self.predicted, self.measured)
    }
}

/// 0 when both are nothing; infinite when something was predicted where nothing was measured.
fn error_percent(predicted: f64, measured: f64) -> f64 {
    if predicted == measured { 0.0 } else { (predicted - measured) / measured * 100.0 }
}

impl fmt::Display for TimelineDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:10} {:>12} {:>12} {:>9}", "busy", "predicted", "measured", "error")?;
        let mut row = |name: &str, predicted: f64, measured: f64, error: f64| {
            let (predicted, measured) = (format_seconds(predicted), format_seconds(measured));
            writeln!(f, "{name:10} {predicted:>12} {measured:>12} {error:>+8.1}%")
        };
        for stream in &self.streams {
            row(role_name(stream.role), stream.predicted_busy, stream.measured_busy, stream.error_percent())?;
        }
        row("iteration", self.predicted, self.measured, self.error_percent())
    }
}
