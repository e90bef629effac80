//! One command.

use super::cursor::Cursor;
use super::{Read, Tables, address};
use crate::text::{Address, DIRECTIONS};
use crate::{Action, AlgoId, BufferId, Cause, Command, Event, EventId, Region, Schedule, StreamId};
use vdnn_graph::{NodeId, Step};

/// Reads commands against the tables of names.
pub(super) struct Commands<'a> {
    pub schedule: &'a mut Schedule,
    pub tables: &'a mut Tables,
}

impl Commands<'_> {
    pub(super) fn command(&mut self, cursor: &mut Cursor<'_>) -> Read<()> {
        let stream = StreamId(cursor.id("a stream", &self.tables.streams)?);
        cursor.mark("|")?;
        let action = self.action(cursor)?;
        cursor.mark(";")?;
        let because = cause(cursor)?;
        self.schedule.commands.push(Command { stream, action, because });
        Ok(())
    }

    fn action(&mut self, cursor: &mut Cursor<'_>) -> Read<Action> {
        match cursor.peek_word() {
            "alloc" => self.alloc(cursor.skip_word()),
            "free" => Ok(Action::Free(self.buffer(cursor.skip_word())?)),
            "record" => self.record(cursor.skip_word()),
            "wait" => Ok(Action::Wait(EventId(cursor.skip_word().rest_id("an event", &self.tables.events)?))),
            "launch" => self.launch(cursor.skip_word()),
            "offload" | "prefetch" => {
                let direction = cursor.one_of("a direction", &DIRECTIONS)?;
                let src = self.region(cursor)?;
                cursor.mark("->")?;
                Ok(Action::Transfer { direction, src, dst: self.region(cursor)? })
            }
            _ => Err(cursor.error("alloc, free, launch, offload, prefetch, record or wait")),
        }
    }

    fn buffer(&self, cursor: &mut Cursor<'_>) -> Read<BufferId> {
        cursor.mark("%")?;
        Ok(BufferId(cursor.id("a buffer", &self.tables.buffers)?))
    }

    /// The address is there for people; when it is given it must be the buffer's.
    fn alloc(&self, cursor: &mut Cursor<'_>) -> Read<Action> {
        let id = self.buffer(cursor)?;
        if !cursor.starts_with(";") {
            let buffer = self.schedule.buffers.get(id.index());
            let error = cursor.error(buffer.map_or("no address".to_string(), |buffer| Address(buffer).to_string()));
            let found = address(cursor)?;
            if buffer.map(|buffer| (buffer.space, buffer.offset, buffer.bytes)) != Some(found) {
                return Err(error);
            }
        }
        Ok(Action::Alloc(id))
    }

    /// Where events are not listed, records name them in turn.
    fn record(&mut self, cursor: &mut Cursor<'_>) -> Read<Action> {
        if self.tables.events_listed {
            return Ok(Action::Record(EventId(cursor.rest_id("an event", &self.tables.events)?)));
        }
        let error = cursor.error("an event that was not recorded before");
        let name = cursor.rest()?;
        if self.tables.events.id(&name).is_some() {
            return Err(error);
        }
        let event = EventId(self.schedule.events.len() as u32);
        self.tables.events.add(&name);
        self.schedule.events.push(Event { name });
        Ok(Action::Record(event))
    }

    fn launch(&self, cursor: &mut Cursor<'_>) -> Read<Action> {
        let node = NodeId(cursor.id("a node", &self.tables.nodes)?);
        cursor.mark("(")?;
        let reads = self.regions(cursor)?;
        cursor.mark(")")?;
        cursor.mark("->")?;
        let writes = self.regions(cursor)?;
        cursor.keyword("by")?;
        let algo = AlgoId(cursor.id("an algorithm", &self.tables.algorithms)?);
        let run = if cursor.eat_word("run") { cursor.small_number()? } else { 0 };
        let workspace = if cursor.eat_word("with") { Some(self.region(cursor)?) } else { None };
        Ok(Action::Launch { node, run, algo, reads, writes, workspace })
    }

    fn regions(&self, cursor: &mut Cursor<'_>) -> Read<Vec<Region>> {
        let mut regions = Vec::new();
        while cursor.starts_with("%") {
            regions.push(self.region(cursor)?);
            if !cursor.eat(",") {
                break;
            }
        }
        Ok(regions)
    }

    fn region(&self, cursor: &mut Cursor<'_>) -> Read<Region> {
        let buffer = self.buffer(cursor)?;
        if !cursor.eat("[") {
            let error = cursor.error("`[` and the part of a buffer that is not listed above");
            let all = self.schedule.buffers.get(buffer.index()).ok_or(error)?;
            return Ok(Region::contiguous(buffer, 0, all.bytes));
        }
        let offset = cursor.number()?;
        cursor.mark("+")?;
        let first = cursor.number()?;
        let mut region = Region::contiguous(buffer, offset, first);
        if cursor.eat("*") {
            let row_bytes = cursor.number()?;
            cursor.mark("/")?;
            region = Region { buffer, offset, rows: first, row_bytes, row_stride: cursor.number()? };
        }
        cursor.mark("]")?;
        Ok(region)
    }
}

fn cause(cursor: &mut Cursor<'_>) -> Read<Cause> {
    if cursor.eat_word("end") {
        cursor.keyword("of")?;
        if cursor.eat_word("iteration") {
            return Ok(Cause::EndOfIteration);
        }
        return step(cursor, &["layer", "at"]).map(Cause::EndOfLayer);
    }
    match cursor.peek_word() {
        "step" => step(cursor, &[]).map(Cause::Step),
        "idle" => step(cursor, &["idle", "until"]).map(Cause::IdleUntil),
        "for" => step(cursor, &["for"]).map(Cause::For),
        "after" => step(cursor, &["after"]).map(Cause::After),
        _ => Err(cursor.error("a cause (step, idle until, for, after, end of layer at, end of iteration)")),
    }
}

fn step(cursor: &mut Cursor<'_>, words: &[&str]) -> Read<Step> {
    words.iter().chain(&["step"]).try_for_each(|word| cursor.keyword(word))?;
    Ok(Step(cursor.small_number()?))
}
