//! The text form: everything in a schedule, one command a line, in words that stay the same when something else changes.
//!
//! ```text
//! schedule format 1
//! name      lenet
//! buffer    %conv1 device[0x400..0x800] storage of %conv1
//! commands
//!  compute  | launch   conv1(%image, %conv1.w) -> %conv1 by gemm with %conv1.workspace  ; step 0
//!  offload  | wait     computed %conv1                                                  ; idle until step 57
//! end
//! ```
//!
//! A region is its buffer's name, followed by `[offset+bytes]` or `[offset+rows*bytes/stride]` when it is only part of it.
//! Events are listed only when the order in which they are recorded does not tell their numbers. [`Schedule::parse`] reads
//! it all back exactly, broken schedules included, so that any schedule can be printed and any print be run.

use crate::names::{Names, line, word};
use crate::{Action, Buffer, BufferKind, Cause, Command, Direction, Region, Schedule, Space, StreamRole};
use std::fmt::{self, Write};

/// Column at which causes stand.
const CAUSE_COLUMN: usize = 72;

impl Schedule {
    /// The text form; see the module of the same name for what it looks like.
    pub fn to_text(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let writer = Writer::new(self);
        writer.header(f)?;
        writer.memory(f)?;
        f.write_str("commands\n")?;
        let mut text = String::new();
        for command in &self.commands {
            text.clear();
            writer.command(&mut text, command)?;
            let pad = CAUSE_COLUMN.saturating_sub(text.chars().count());
            writeln!(f, "{text}{:pad$}  ; {}", "", CauseText(command.because))?;
        }
        f.write_str("end\n")
    }
}

struct Writer<'a> {
    schedule: &'a Schedule,
    nodes: Names,
    values: Names,
    algorithms: Names,
    buffers: Names,
    events: Names,
    streams: Names,
}

impl<'a> Writer<'a> {
    fn new(schedule: &'a Schedule) -> Self {
        Writer {
            schedule,
            nodes: Names::words(schedule.nodes.iter().map(String::as_str)),
            values: Names::words(schedule.values.iter().map(String::as_str)),
            algorithms: Names::words(schedule.algorithms.iter().map(String::as_str)),
            buffers: Names::words(schedule.buffers.iter().map(|buffer| buffer.name.as_str())),
            events: Names::lines(schedule.events.iter().map(|event| event.name.as_str())),
            streams: Names::words(schedule.streams.iter().map(|&role| role_word(role))),
        }
    }

    fn header(&self, f: &mut impl Write) -> fmt::Result {
        let schedule = self.schedule;
        writeln!(f, "schedule format {}", schedule.format)?;
        writeln!(f, "name      {}", line(&schedule.name))?;
        writeln!(f, "policy    {}", line(&schedule.policy))?;
        wrapped(f, "streams", schedule.streams.iter().map(|&role| role_word(role).to_string()))?;
        for arena in &schedule.arenas {
            let budget = arena.budget.map_or_else(|| "unlimited".to_string(), |budget| budget.to_string());
            let (space, bytes, alignment) = (space_word(arena.space), arena.bytes, arena.alignment);
            writeln!(f, "arena     {space} {bytes} of {budget} align {alignment}")?;
        }
        wrapped(f, "nodes", schedule.nodes.iter().map(|name| word(name)))?;
        wrapped(f, "values", schedule.values.iter().map(|name| word(name)))?;
        wrapped(f, "algos", schedule.algorithms.iter().map(|name| word(name)))?;
        if !self.events_as_recorded() {
            f.write_str("events    listed\n")?;
            schedule.events.iter().try_for_each(|event| writeln!(f, "event     {}", line(&event.name)))?;
        }
        Ok(())
    }

    /// True when events are numbered as they are recorded, each once, before any wait.
    fn events_as_recorded(&self) -> bool {
        let mut recorded = 0;
        for command in &self.schedule.commands {
            match command.action {
                Action::Record(event) if event.0 != recorded => return false,
                Action::Record(_) => recorded += 1,
                Action::Wait(event) if event.0 >= recorded => return false,
                _ => {}
            }
        }
        recorded as usize == self.schedule.events.len() && self.events.all_unique()
    }

    fn memory(&self, f: &mut impl Write) -> fmt::Result {
        for buffer in &self.schedule.buffers {
            let kind = kind_word(buffer.kind);
            write!(f, "buffer    %{} {} {kind}", word(&buffer.name), Address(buffer))?;
            match buffer.root {
                Some(root) => writeln!(f, " of %{}", self.values.refer(root.0))?,
                None => f.write_char('\n')?,
            }
        }
        for home in &self.schedule.homes {
            let [initial, last] = [home.initial, home.last].map(|id| self.values.refer(id.0));
            writeln!(f, "home      %{} from %{initial} to %{last}", self.buffers.refer(home.buffer.0))?;
        }
        Ok(())
    }

    fn command(&self, f: &mut String, command: &Command) -> fmt::Result {
        write!(f, " {:<8} | ", self.streams.refer(command.stream.0).to_string())?;
        match &command.action {
            Action::Alloc(id) => {
                write!(f, "alloc    %{}", self.buffers.refer(id.0))?;
                match self.schedule.buffers.get(id.index()) {
                    Some(buffer) => write!(f, " {}", Address(buffer)),
                    None => Ok(()),
                }
            }
            Action::Free(id) => write!(f, "free     %{}", self.buffers.refer(id.0)),
            Action::Record(event) => write!(f, "record   {}", self.events.refer(event.0)),
            Action::Wait(event) => write!(f, "wait     {}", self.events.refer(event.0)),
            Action::Transfer { direction, src, dst } => {
                write!(f, "{:<8} ", direction_word(*direction))?;
                self.region(f, src)?;
                f.write_str(" -> ")?;
                self.region(f, dst)
            }
            launch @ Action::Launch { .. } => self.launch(f, launch),
        }
    }

    fn launch(&self, f: &mut String, action: &Action) -> fmt::Result {
        let Action::Launch { node, run, algo, reads, writes, workspace } = action else { return Ok(()) };
        write!(f, "launch   {}(", self.nodes.refer(node.0))?;
        self.regions(f, reads)?;
        f.write_str(") -> ")?;
        self.regions(f, writes)?;
        write!(f, " by {}", self.algorithms.refer(algo.0))?;
        if *run > 0 {
            write!(f, " run {run}")?;
        }
        match workspace {
            Some(region) => {
                f.write_str(" with ")?;
                self.region(f, region)
            }
            None => Ok(()),
        }
    }

    fn regions(&self, f: &mut String, regions: &[Region]) -> fmt::Result {
        for (index, region) in regions.iter().enumerate() {
            f.write_str(if index > 0 { ", " } else { "" })?;
            self.region(f, region)?;
        }
        Ok(())
    }

    fn region(&self, f: &mut String, region: &Region) -> fmt::Result {
        let Region { buffer, offset, rows, row_bytes, row_stride } = *region;
        write!(f, "%{}", self.buffers.refer(buffer.0))?;
        let all = self.schedule.buffers.get(buffer.index()).map(|all| Region::contiguous(buffer, 0, all.bytes));
        if all == Some(*region) {
            return Ok(());
        }
        if rows == 1 && row_bytes == row_stride {
            return write!(f, "[{offset}+{row_bytes}]");
        }
        write!(f, "[{offset}+{rows}*{row_bytes}/{row_stride}]")
    }
}

/// `device[0x400..0x800]`. The end is taken in 128 bits: a broken buffer prints too.
pub(crate) struct Address<'a>(pub &'a Buffer);

impl fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Buffer { space, offset, bytes, .. } = self.0;
        write!(f, "{}[{offset:#x}..{:#x}]", space_word(*space), u128::from(*offset) + u128::from(*bytes))
    }
}

struct CauseText(Cause);

impl fmt::Display for CauseText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Cause::Step(step) => write!(f, "step {}", step.0),
            Cause::IdleUntil(step) => write!(f, "idle until step {}", step.0),
            Cause::For(step) => write!(f, "for step {}", step.0),
            Cause::After(step) => write!(f, "after step {}", step.0),
            Cause::EndOfLayer(step) => write!(f, "end of layer at step {}", step.0),
            Cause::EndOfIteration => f.write_str("end of iteration"),
        }
    }
}

/// Words under one heading, as many a line as fit.
fn wrapped(f: &mut impl Write, heading: &str, words: impl Iterator<Item = String>) -> fmt::Result {
    let mut column = 0;
    for word in words {
        if column == 0 || column + word.len() > 110 {
            write!(f, "{}{heading:<9}", if column > 0 { "\n" } else { "" })?;
            column = 9;
        }
        write!(f, " {word}")?;
        column += word.len() + 1;
    }
    if column > 0 { f.write_char('\n') } else { Ok(()) }
}

pub(crate) const SPACES: [(&str, Space); 3] = [("device", Space::Device), ("host", Space::Host), ("disk", Space::Disk)];

pub(crate) const KINDS: [(&str, BufferKind); 4] = [
    ("home", BufferKind::Home),
    ("storage", BufferKind::Storage),
    ("workspace", BufferKind::Workspace),
    ("copy", BufferKind::Copy),
];

pub(crate) const ROLES: [(&str, StreamRole); 5] = [
    ("compute", StreamRole::Compute),
    ("offload", StreamRole::Offload),
    ("prefetch", StreamRole::Prefetch),
    ("disk", StreamRole::Disk),
    ("comm", StreamRole::Comm),
];

pub(crate) const DIRECTIONS: [(&str, Direction); 2] =
    [("offload", Direction::Offload), ("prefetch", Direction::Prefetch)];

fn spelled<T: PartialEq>(table: &'static [(&'static str, T)], thing: T) -> &'static str {
    table.iter().find(|(_, other)| *other == thing).map_or("", |(word, _)| word)
}

fn space_word(space: Space) -> &'static str {
    spelled(&SPACES, space)
}

fn kind_word(kind: BufferKind) -> &'static str {
    spelled(&KINDS, kind)
}

fn role_word(role: StreamRole) -> &'static str {
    spelled(&ROLES, role)
}

fn direction_word(direction: Direction) -> &'static str {
    spelled(&DIRECTIONS, direction)
}
