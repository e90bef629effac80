//! Reads the text form back, exactly, in one pass. See [`crate::text`] for the form.

mod commands;
mod cursor;

use crate::names::Names;
use crate::text::{KINDS, ROLES, SPACES};
use crate::{Arena, Buffer, BufferId, Event, FORMAT, Home, Schedule, ScheduleError, Space, StreamRole};
use commands::Commands;
use cursor::Cursor;
use vdnn_graph::ValueId;
use vdnn_tensor::Bytes;

impl Schedule {
    /// Reads [`Schedule::to_text`].
    ///
    /// # Errors
    /// [`ScheduleError::Text`] with the line, what was expected and what was found; [`ScheduleError::Format`].
    pub fn parse(text: &str) -> Result<Schedule, ScheduleError> {
        let nothing = || Cursor::new(text.lines().count().max(1), "");
        let mut lines = text.lines().enumerate().map(|(index, line)| Cursor::new(index + 1, line));
        format(lines.next().unwrap_or_else(nothing))?;
        let mut lines = lines.filter(|cursor| !cursor.is_empty());
        let mut schedule = empty();
        let mut tables = header(&mut schedule, &mut lines)?.ok_or_else(|| nothing().error("commands"))?;
        let mut commands = Commands { schedule: &mut schedule, tables: &mut tables };
        for mut cursor in lines.by_ref() {
            if cursor.line_is("end") {
                let trailing = lines.next().map(|extra| extra.error("nothing after the end"));
                return trailing.map_or(Ok(schedule), Err);
            }
            commands.command(&mut cursor)?;
            cursor.finish()?;
        }
        Err(nothing().error("a command or end"))
    }
}

fn empty() -> Schedule {
    Schedule {
        format: FORMAT,
        name: String::new(),
        policy: String::new(),
        nodes: Vec::new(),
        values: Vec::new(),
        algorithms: Vec::new(),
        arenas: Vec::new(),
        buffers: Vec::new(),
        homes: Vec::new(),
        events: Vec::new(),
        streams: Vec::new(),
        commands: Vec::new(),
    }
}

type Read<T> = Result<T, ScheduleError>;

/// The ids of everything commands name.
struct Tables {
    nodes: Names,
    algorithms: Names,
    buffers: Names,
    events: Names,
    events_listed: bool,
    streams: Names,
}

fn format(mut cursor: Cursor<'_>) -> Read<()> {
    cursor.keyword("schedule")?;
    cursor.keyword("format")?;
    let found = cursor.number()?;
    if found != u64::from(FORMAT) {
        return Err(ScheduleError::Format { found, supported: FORMAT });
    }
    cursor.finish()
}

/// Reads up to the line `commands`; `None` when there is none.
fn header<'a>(schedule: &mut Schedule, lines: &mut impl Iterator<Item = Cursor<'a>>) -> Read<Option<Tables>> {
    let mut events_listed = false;
    // Buffers name values and homes name buffers, so each list is closed by the next.
    let mut values: Option<Names> = None;
    let mut buffers: Option<Names> = None;
    for mut cursor in lines {
        match cursor.peek_word() {
            "commands" => {
                cursor.skip_word().finish()?;
                return Ok(Some(tables(schedule, events_listed)));
            }
            "home" => {
                let buffers = buffers.get_or_insert_with(|| buffer_names(schedule));
                let values = values.get_or_insert_with(|| plain_names(&schedule.values));
                schedule.homes.push(home(cursor.skip_word(), buffers, values)?);
            }
            "buffer" if buffers.is_none() => {
                let values = values.get_or_insert_with(|| plain_names(&schedule.values));
                schedule.buffers.push(buffer(cursor.skip_word(), values)?);
            }
            "events" if values.is_none() => {
                cursor.skip_word().keyword("listed")?;
                events_listed = true;
            }
            _ if values.is_none() => header_line(schedule, &mut cursor)?,
            _ => return Err(cursor.error("a home or commands, or before the first home a buffer")),
        }
        cursor.finish()?;
    }
    Ok(None)
}

fn header_line(schedule: &mut Schedule, cursor: &mut Cursor<'_>) -> Read<()> {
    match cursor.peek_word() {
        "name" => schedule.name = cursor.skip_word().rest()?,
        "policy" => schedule.policy = cursor.skip_word().rest()?,
        "streams" => {
            cursor.skip_word();
            while !cursor.is_empty() {
                schedule.streams.push(cursor.one_of("a stream's role", &ROLES)?);
            }
        }
        "arena" => schedule.arenas.push(arena(cursor.skip_word())?),
        "nodes" => cursor.skip_word().words_into(&mut schedule.nodes)?,
        "values" => cursor.skip_word().words_into(&mut schedule.values)?,
        "algos" => cursor.skip_word().words_into(&mut schedule.algorithms)?,
        "event" => schedule.events.push(Event { name: cursor.skip_word().rest()? }),
        _ => {
            return Err(
                cursor.error("a line of the header (name, policy, streams, arena, nodes, values, …) or commands")
            );
        }
    }
    Ok(())
}

fn plain_names(names: &[String]) -> Names {
    Names::words(names.iter().map(String::as_str))
}

fn buffer_names(schedule: &Schedule) -> Names {
    Names::words(schedule.buffers.iter().map(|buffer| buffer.name.as_str()))
}

fn tables(schedule: &Schedule, events_listed: bool) -> Tables {
    let role = |&role: &StreamRole| ROLES.iter().find(|(_, other)| *other == role).map_or("", |(word, _)| *word);
    Tables {
        nodes: plain_names(&schedule.nodes),
        algorithms: plain_names(&schedule.algorithms),
        buffers: buffer_names(schedule),
        events: Names::lines(schedule.events.iter().map(|event| event.name.as_str())),
        events_listed,
        streams: Names::words(schedule.streams.iter().map(role)),
    }
}

/// `device 4096 of 8192 align 256`.
fn arena(cursor: &mut Cursor<'_>) -> Read<Arena> {
    let space = cursor.one_of("a space", &SPACES)?;
    let bytes = cursor.number()?;
    cursor.keyword("of")?;
    let budget = if cursor.eat_word("unlimited") { None } else { Some(cursor.number()?) };
    cursor.keyword("align")?;
    Ok(Arena { space, bytes, budget, alignment: cursor.number()? })
}

/// `%name device[0x400..0x800] storage of %value`.
fn buffer(cursor: &mut Cursor<'_>, values: &Names) -> Read<Buffer> {
    cursor.mark("%")?;
    let name = cursor.word()?;
    let (space, offset, bytes) = address(cursor)?;
    let kind = cursor.one_of("a kind of buffer", &KINDS)?;
    let root = if cursor.eat_word("of") { Some(value(cursor, values)?) } else { None };
    Ok(Buffer { name, space, offset, bytes, kind, root })
}

fn value(cursor: &mut Cursor<'_>, values: &Names) -> Read<ValueId> {
    cursor.mark("%")?;
    Ok(ValueId(cursor.id("a value", values)?))
}

/// `device[0x400..0x800]` as space, offset and bytes.
fn address(cursor: &mut Cursor<'_>) -> Read<(Space, Bytes, Bytes)> {
    let space = cursor.one_of("a space", &SPACES)?;
    cursor.mark("[")?;
    let offset = cursor.number()?;
    cursor.mark("..")?;
    let error = cursor.error("an end after the start");
    let end = cursor.wide_number()?;
    let bytes = end.checked_sub(u128::from(offset)).and_then(|bytes| u64::try_from(bytes).ok()).ok_or(error)?;
    cursor.mark("]")?;
    Ok((space, offset, bytes))
}

/// `%buffer from %value to %value`.
fn home(cursor: &mut Cursor<'_>, buffers: &Names, values: &Names) -> Read<Home> {
    cursor.mark("%")?;
    let buffer = BufferId(cursor.id("a buffer", buffers)?);
    cursor.keyword("from")?;
    let initial = value(cursor, values)?;
    cursor.keyword("to")?;
    Ok(Home { initial, last: value(cursor, values)?, buffer })
}
