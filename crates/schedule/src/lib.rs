//! The compiled iteration as plain data: what is printed, diffed, verified, simulated and run. It decides nothing.
//!
//! A [`Schedule`] is complete: every address, algorithm and wait is in it. Commands stand in issue order; commands of one
//! stream run in that order, commands of different streams only as events order them.

mod diff;
mod error;
mod json;
mod names;
mod parse;
mod pieces;
mod profile;
mod schedule;
mod stats;
mod text;
mod timeline;

pub use diff::diff;
pub use error::ScheduleError;
pub use json::read_schedule;
pub use pieces::{
    PIECES, PieceSum, in_pieces, join_pieces, piece_key, piece_sum_bytes, piece_types, split_pieces, worthwhile_pieces,
};
pub use profile::{Choice, KernelTable, Profile, ProfileEntry, ProfileError, kernel_key, kernel_key_of};
pub use schedule::{
    Action, AlgoId, Arena, Buffer, BufferId, BufferKind, Cause, Command, Direction, Event, EventId, FORMAT, Home,
    Region, Schedule, Space, StreamId, StreamRole,
};
pub use stats::{LivePeak, Stats, StreamStats, stats};
pub use timeline::{Span, StreamDiff, Timeline, TimelineDiff, label};
