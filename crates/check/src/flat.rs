//! The commands of a schedule without what they read and write, and that by itself: what the rules on safety follow.
//!
//! ```text
//!   lines      0 alloc y   1 launch          2 free x   3 record     …       12 bytes a command
//!   touches                1 read x, write y                         …       48 bytes a region
//! ```
//!
//! In the schedule a command has 128 bytes and its regions lie elsewhere. A deep network's schedule is larger than the caches and
//! is followed a dozen times, so what is not looked at counts.

use crate::access::{Access, accesses};
use vdnn_schedule::{Action, BufferId, EventId, Region, Schedule};

/// What a command does, without operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Alloc(BufferId),
    Free(BufferId),
    Record(EventId),
    Wait(EventId),
    Launch,
    Transfer,
}

/// A command on its stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub stream: u8,
    pub kind: Kind,
}

/// What a command does to a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub command: u32,
    pub access: Access,
    pub region: Region,
}

impl Touch {
    /// The command's index.
    pub(crate) fn index(&self) -> usize {
        self.command as usize
    }

    /// The region's buffer as an index.
    pub(crate) fn buffer(&self) -> usize {
        self.region.buffer.index()
    }
}

/// One iteration of a schedule.
pub(crate) struct Flat {
    /// By command.
    pub lines: Vec<Line>,
    /// In issue order; of one command in the order of [`accesses`].
    pub touches: Vec<Touch>,
}

impl Flat {
    /// Of a schedule that is well formed.
    pub(crate) fn of(schedule: &Schedule) -> Self {
        let n = schedule.commands.len();
        // A launch has some four regions, a copy two, and most commands none.
        let mut flat = Flat { lines: Vec::with_capacity(n), touches: Vec::with_capacity(2 * n) };
        for (command, line) in (0..).zip(&schedule.commands) {
            let kind = match line.action {
                Action::Alloc(id) => Kind::Alloc(id),
                Action::Free(id) => Kind::Free(id),
                Action::Record(id) => Kind::Record(id),
                Action::Wait(id) => Kind::Wait(id),
                Action::Launch { .. } => Kind::Launch,
                Action::Transfer { .. } => Kind::Transfer,
            };
            flat.lines.push(Line { stream: line.stream.0 as u8, kind });
            let touches = accesses(&line.action).map(|(access, &region)| Touch { command, access, region });
            flat.touches.extend(touches);
        }
        flat
    }
}
