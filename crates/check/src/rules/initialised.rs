//! Every byte that is read was written before, since the buffer's alloc or at home.
//!
//! Homes hold their values when the iteration starts, except those of results: a home that stands for one value that a
//! kernel writes. Bytes copied count as written, since copying reads them. That the write has *finished* when the read
//! starts is the rule on races.

use crate::access::{Access, accesses};
use crate::grid::{Grid, grids};
use crate::intervals::IntervalMap;
use crate::{Rule, Violation, describe};
use vdnn_schedule::{Action, BufferKind, Schedule};

pub(crate) fn check(schedule: &Schedule) -> Vec<Violation> {
    let grids = grids(schedule);
    let mut written = at_start(schedule, &grids);
    let mut found = Vec::new();
    for (index, command) in schedule.commands.iter().enumerate() {
        for (access, region) in accesses(&command.action) {
            let map = &mut written[region.buffer.index()];
            for interval in grids[region.buffer.index()].intervals(region) {
                if access == Access::Write {
                    map.set(interval, ());
                    continue;
                }
                if map.covers(&interval) {
                    continue;
                }
                let missing = map.pieces(interval).into_iter().find(|(_, fact)| fact.is_none());
                if let Some((gap, _)) = missing {
                    let command = describe::command(schedule, index);
                    let region = describe::region(schedule, region);
                    let message =
                        format!("{command} reads {region}, of which bytes {gap:?} of a row were never written");
                    found.push(Violation::at(Rule::Initialised, index, message));
                    break;
                }
            }
        }
    }
    found
}

fn at_start(schedule: &Schedule, grids: &[Grid]) -> Vec<IntervalMap<()>> {
    let mut made_here = vec![false; schedule.buffers.len()];
    for command in &schedule.commands {
        if let Action::Launch { reads, writes, .. } = &command.action {
            // Parts that a split leaves where they are were there before.
            let made = writes.iter().filter(|write| !reads.iter().any(|read| read.buffer == write.buffer));
            made.for_each(|region| made_here[region.buffer.index()] = true);
        }
    }
    let mut written = vec![IntervalMap::default(); schedule.buffers.len()];
    for home in &schedule.homes {
        let index = home.buffer.index();
        let result = home.initial == home.last && made_here[index];
        if schedule.buffers[index].kind == BufferKind::Home && !result {
            written[index].set(grids[index].addresses(), ());
        }
    }
    written
}
