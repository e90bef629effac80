//! The commands of a schedule without what they read and write, and that by itself: what the rules on safety follow.
//!
//! ```text
//!   lines      0 alloc y   1 launch          2 free x   3 record     …       12 bytes a command
//!   touches                1 read x, write y                         …       12 bytes a region
//!   regions                  ↓       ↓                                       where they are in the schedule
//! ```
//!
//! In the schedule a command has 128 bytes and its regions lie elsewhere. A deep network's schedule is larger than the caches and
//! is followed a dozen times, so what is not looked at counts; it is made flat while it is checked command by command.

use crate::access::{Access, accesses};
use std::ops::Range;
use vdnn_graph::NodeId;
use vdnn_schedule::{Action, AlgoId, BufferId, Command, EventId, Region, Schedule};
use vdnn_tensor::Bytes;

/// What a command does, without operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Alloc(BufferId),
    Free(BufferId),
    Record(EventId),
    Wait(EventId),
    /// An index into [`Flat::launches`].
    Launch(u32),
    /// The first of its two touches: what is read, then what is written.
    Transfer(u32),
}

/// What is launched. Its reads are so many touches from the first on, its writes so many after those.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    pub node: NodeId,
    pub algo: AlgoId,
    pub run: u16,
    touches: u32,
    reads: u32,
    writes: u32,
}

impl Launch {
    /// The touches that are its node's inputs, and those that are its outputs.
    pub(crate) fn operands(&self) -> [Range<usize>; 2] {
        let [from, reads, writes] = [self.touches, self.reads, self.writes].map(|n| n as usize);
        [from..from + reads, from + reads..from + reads + writes]
    }
}

/// A command on its stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub stream: u8,
    pub kind: Kind,
}

/// What a command does to a region of a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub command: u32,
    pub buffer: BufferId,
    pub access: Access,
}

impl Touch {
    /// The command's index.
    pub(crate) fn index(&self) -> usize {
        self.command as usize
    }

    /// The buffer as an index.
    pub(crate) fn buffer(&self) -> usize {
        self.buffer.index()
    }
}

/// One iteration of a schedule.
///
/// Most buffers are only ever touched as a whole, so that what is said of one of their bytes is said of all, and a rule
/// remembers a few numbers. Of the others, which are touched *in parts*, it remembers intervals.
pub(crate) struct Flat<'s> {
    /// By command.
    pub lines: Vec<Line>,
    /// In issue order.
    pub launches: Vec<Launch>,
    /// In issue order; of one command in the order of [`accesses`].
    pub touches: Vec<Touch>,
    /// The region of each of them.
    pub regions: Vec<&'s Region>,
    /// By buffer [`WHOLE`], or its number among those touched in parts.
    parted: Vec<u32>,
    /// The buffers touched in parts, by that number.
    pub in_parts: Vec<BufferId>,
}

/// Stands for a buffer that is only touched as a whole.
const WHOLE: u32 = u32::MAX;

impl<'s> Flat<'s> {
    /// No command yet of a schedule; its commands are to be added in order.
    pub(crate) fn empty(schedule: &Schedule) -> Self {
        let n = schedule.commands.len();
        // A launch has some four regions, a copy two, and most commands none.
        let parted = vec![WHOLE; schedule.buffers.len()];
        let (touches, regions) = (Vec::with_capacity(2 * n), Vec::with_capacity(2 * n));
        let (lines, launches, in_parts) = (Vec::with_capacity(n), Vec::new(), Vec::new());
        Flat { lines, launches, touches, regions, parted, in_parts }
    }

    /// Adds a schedule's next command, which is well formed.
    pub(crate) fn push(&mut self, schedule: &Schedule, line: &'s Command) {
        let command = self.lines.len() as u32;
        let kind = self.kind(&line.action);
        self.lines.push(Line { stream: line.stream.0 as u8, kind });
        for (access, region) in accesses(&line.action) {
            let buffer = region.buffer;
            self.touches.push(Touch { command, buffer, access });
            self.regions.push(region);
            let parted = &mut self.parted[buffer.index()];
            if *parted == WHOLE && !covers(region, schedule.buffer(buffer).bytes) {
                *parted = self.in_parts.len() as u32;
                self.in_parts.push(buffer);
            }
        }
    }

    /// What the next command does.
    fn kind(&mut self, action: &Action) -> Kind {
        let touches = self.touches.len() as u32;
        match *action {
            Action::Alloc(id) => Kind::Alloc(id),
            Action::Free(id) => Kind::Free(id),
            Action::Record(id) => Kind::Record(id),
            Action::Wait(id) => Kind::Wait(id),
            Action::Launch { node, algo, run, ref reads, ref writes, .. } => {
                let (reads, writes) = (reads.len() as u32, writes.len() as u32);
                self.launches.push(Launch { node, algo, run, touches, reads, writes });
                Kind::Launch(self.launches.len() as u32 - 1)
            }
            Action::Transfer { .. } => Kind::Transfer(touches),
        }
    }

    /// Whether a command is a launch.
    pub(crate) fn is_launch(&self, command: usize) -> bool {
        matches!(self.lines[command].kind, Kind::Launch(_))
    }

    /// What is touched, and where.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&Touch, &'s Region)> {
        self.touches.iter().zip(self.regions.iter().copied())
    }

    /// A buffer's number among those touched in parts; `None` where it is only touched as a whole.
    pub(crate) fn part(&self, buffer: usize) -> Option<usize> {
        Some(self.parted[buffer] as usize).filter(|&part| part != WHOLE as usize)
    }
}

/// Whether a region is all of a buffer of so many bytes, of which there are some.
fn covers(region: &Region, bytes: Bytes) -> bool {
    let contiguous = region.rows == 1 || region.row_stride == region.row_bytes;
    contiguous && region.offset == 0 && region.bytes() == bytes && bytes > 0
}
