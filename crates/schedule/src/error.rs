//! Why a schedule could not be read.

use thiserror::Error;

/// A schedule's text or JSON that is broken, or of a format this version does not read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ScheduleError {
    /// The text form breaks off or goes wrong.
    #[error("line {line}: expected {expected}, found {found}")]
    Text {
        /// Line number, from 1.
        line: usize,
        /// What should have been there.
        expected: String,
        /// What was there.
        found: String,
    },
    /// The JSON is broken or lacks fields.
    #[error("line {line}, column {column}: expected a schedule in JSON, found: {reason}")]
    Json {
        /// Line number, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The reader's own words.
        reason: String,
    },
    /// A file of another version.
    #[error("expected a schedule of format {supported}, found format {found}; write it again with this version")]
    Format {
        /// The number in the file.
        found: u64,
        /// The number this version reads and writes.
        supported: u32,
    },
}
