//! Every byte that is read was written before, since the buffer's alloc or at home.
//!
//! Homes hold their values when the iteration starts, except those of results: a home that stands for one value that a
//! kernel writes. A launch that reads the home it writes has no result there: a split leaves its parts in the input that they
//! are cut from. Bytes copied count as written, since copying reads them. That the write has *finished* when the read starts is
//! the rule on races.

use crate::access::Access;
use crate::flat::{Flat, Kind};
use crate::grid::Grid;
use crate::intervals::{IntervalMap, one_each};
use crate::{Rule, Violation, describe};
use vdnn_schedule::{BufferKind, Schedule};

pub(crate) fn check(schedule: &Schedule, flat: &Flat, grids: &[Grid]) -> Vec<Violation> {
    let mut written = at_start(schedule, flat, grids);
    let mut found = Vec::new();
    for touch in &flat.touches {
        let map = &mut written[touch.buffer()];
        for interval in grids[touch.buffer()].intervals(&touch.region) {
            if touch.access == Access::Write {
                map.set(interval, ());
                continue;
            }
            if map.covers(&interval) {
                continue;
            }
            let missing = map.pieces(interval).find(|(_, fact)| fact.is_none());
            if let Some((gap, _)) = missing {
                let command = describe::command(schedule, touch.index());
                let region = describe::region(schedule, &touch.region);
                let message = format!("{command} reads {region}, of which bytes {gap:?} of a row were never written");
                found.push(Violation::at(Rule::Initialised, touch.index(), message));
                break;
            }
        }
    }
    found
}

fn at_start(schedule: &Schedule, flat: &Flat, grids: &[Grid]) -> Vec<IntervalMap<()>> {
    let mut made_here = vec![false; schedule.buffers.len()];
    for touches in flat.touches.chunk_by(|one, next| one.command == next.command) {
        if flat.lines[touches[0].index()].kind == Kind::Launch {
            let of = |access: Access| touches.iter().filter(move |touch| touch.access == access);
            let made = of(Access::Write).filter(|write| of(Access::Read).all(|read| read.buffer() != write.buffer()));
            made.for_each(|write| made_here[write.buffer()] = true);
        }
    }
    let mut written: Vec<IntervalMap<()>> = one_each(schedule);
    for home in &schedule.homes {
        let index = home.buffer.index();
        let result = home.initial == home.last && made_here[index];
        if schedule.buffers[index].kind == BufferKind::Home && !result {
            written[index].set(grids[index].addresses(), ());
        }
    }
    written
}
