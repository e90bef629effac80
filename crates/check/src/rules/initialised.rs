//! Every byte that is read was written before, since the buffer's alloc or at home.
//!
//! Homes hold their values when the iteration starts, except those of results: a home that stands for one value that a
//! kernel writes. A launch that reads the home it writes has no result there: a split leaves its parts in the input that they
//! are cut from. Bytes copied count as written, since copying reads them. That the write has *finished* when the read starts is
//! the rule on races.

use crate::access::Access;
use crate::flat::{Flat, Touch};
use crate::grid::Grid;
use crate::intervals::IntervalMap;
use crate::{Rule, Violation, describe};
use std::ops::Range;
use vdnn_schedule::{BufferKind, Region, Schedule};

/// What was written: all of a buffer or nothing, by buffer, and of those touched in parts which addresses.
struct Written {
    whole: Vec<bool>,
    parts: Vec<IntervalMap<()>>,
}

pub(crate) fn check(schedule: &Schedule, flat: &Flat<'_>, grids: &[Grid]) -> Vec<Violation> {
    let mut written = at_start(schedule, flat, grids);
    let mut found = Vec::new();
    for (touch, region) in flat.places() {
        if let Some(gap) = touched(&mut written, flat, grids, touch, region) {
            let command = describe::command(schedule, touch.index());
            let region = describe::region(schedule, region);
            let message = format!("{command} reads {region}, of which bytes {gap:?} of a row were never written");
            found.push(Violation::at(Rule::Initialised, touch.index(), message));
        }
    }
    found
}

/// Writes, or says what of that which is read was never written.
fn touched(
    written: &mut Written,
    flat: &Flat<'_>,
    grids: &[Grid],
    touch: &Touch,
    region: &Region,
) -> Option<Range<u64>> {
    let Some(part) = flat.part(touch.buffer()) else {
        let whole = &mut written.whole[touch.buffer()];
        *whole |= touch.access == Access::Write;
        return (!*whole).then(|| 0..region.bytes());
    };
    let map = &mut written.parts[part];
    for interval in grids[part].intervals(region) {
        if touch.access == Access::Write {
            map.set(interval, ());
        } else if !map.covers(&interval) {
            return map.pieces(interval).find(|(_, fact)| fact.is_none()).map(|(gap, _)| gap);
        }
    }
    None
}

fn at_start(schedule: &Schedule, flat: &Flat<'_>, grids: &[Grid]) -> Written {
    let mut made_here = vec![false; schedule.buffers.len()];
    for touches in flat.touches.chunk_by(|one, next| one.command == next.command) {
        if flat.is_launch(touches[0].index()) {
            let of = |access: Access| touches.iter().filter(move |touch| touch.access == access);
            let made = of(Access::Write).filter(|write| of(Access::Read).all(|read| read.buffer() != write.buffer()));
            made.for_each(|write| made_here[write.buffer()] = true);
        }
    }
    let (whole, parts) = (vec![false; schedule.buffers.len()], vec![IntervalMap::default(); flat.in_parts.len()]);
    let mut written = Written { whole, parts };
    for home in &schedule.homes {
        let index = home.buffer.index();
        let result = home.initial == home.last && made_here[index];
        if schedule.buffers[index].kind == BufferKind::Home && !result {
            written.whole[index] = true;
            if let Some(part) = flat.part(index) {
                written.parts[part].set(grids[part].addresses(), ());
            }
        }
    }
    written
}
