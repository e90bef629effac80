//! The compiled iteration as plain data: what is printed, diffed, verified, simulated and run. It decides nothing.
//!
//! A [`Schedule`] is complete: every address, algorithm and wait is in it. Commands stand in issue order; commands of one
//! stream run in that order, commands of different streams only as events order them.

mod profile;
mod schedule;
mod timeline;

pub use profile::{Choice, KernelTable, Profile, ProfileEntry, ProfileError, kernel_key};
pub use schedule::{
    Action, AlgoId, Arena, Buffer, BufferId, BufferKind, Cause, Command, Direction, Event, EventId, FORMAT, Home,
    Region, Schedule, Space, StreamId, StreamRole,
};
pub use timeline::{Span, StreamDiff, Timeline, TimelineDiff};
