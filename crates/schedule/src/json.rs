//! The JSON form, and reading either form.

use crate::{FORMAT, Schedule, ScheduleError};
use serde::Deserialize;

/// What is looked at first, so that another version's file is refused by its number and not by a missing field.
#[derive(Deserialize)]
struct Probe {
    format: u64,
}

impl Schedule {
    /// The schedule as one JSON document.
    pub fn to_json(&self) -> String {
        // Strings, numbers and lists only: nothing that serde_json cannot write.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads [`Schedule::to_json`].
    ///
    /// # Errors
    /// [`ScheduleError::Json`] with the place, [`ScheduleError::Format`] for another version's file.
    pub fn from_json(text: &str) -> Result<Schedule, ScheduleError> {
        let Probe { format } = serde_json::from_str(text).map_err(broken)?;
        if format != u64::from(FORMAT) {
            return Err(ScheduleError::Format { found: format, supported: FORMAT });
        }
        serde_json::from_str(text).map_err(broken)
    }
}

fn broken(error: serde_json::Error) -> ScheduleError {
    let (line, column) = (error.line(), error.column());
    let place = format!(" at line {line} column {column}");
    ScheduleError::Json { line, column, reason: error.to_string().replace(&place, "") }
}

/// Reads a schedule in either form; JSON begins with a brace.
///
/// # Errors
/// [`ScheduleError`], of the form it was taken for.
pub fn read_schedule(text: &str) -> Result<Schedule, ScheduleError> {
    if text.trim_start().starts_with('{') { Schedule::from_json(text) } else { Schedule::parse(text) }
}
