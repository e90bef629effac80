//! Different schedules of one run may follow each other: train, last batch, evaluation; even and odd.
//!
//! Each is joined at its end and leaves nothing allocated, so only what stays matters: a persistent value lies at one
//! address of one space in all of them, and no schedule uses that address for anything else, even if it does not know the value.

use crate::intervals::{Cut, IntervalMap};
use crate::{Rule, Violation};
use std::collections::{BTreeMap, BTreeSet};
use vdnn_graph::Program;
use vdnn_schedule::{Buffer, BufferId, Schedule, Space};

/// A persistent value's place, by number in the order in which they were met.
#[derive(Clone, Copy, Debug)]
struct Place(usize);

impl Cut for Place {
    fn tail(&self, _by: u64) -> Self {
        *self
    }
}

/// The buffers that are homes of persistent values.
fn persistents(schedule: &Schedule, program: &Program) -> BTreeMap<BufferId, String> {
    let initial: BTreeSet<_> = program.graph.persistents().iter().map(|persistent| persistent.initial).collect();
    let homes = schedule.homes.iter().filter(|home| initial.contains(&home.initial));
    homes.map(|home| (home.buffer, program.graph.value(home.initial).name.clone())).collect()
}

pub(crate) fn check(runs: &[(&Schedule, &Program)]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut places: BTreeMap<String, (Space, u64, u64)> = BTreeMap::new();
    let mut names: Vec<String> = Vec::new();
    let mut taken: BTreeMap<Space, IntervalMap<Place>> = BTreeMap::new();
    for (schedule, program) in runs {
        for (id, name) in persistents(schedule, program) {
            let &Buffer { space, offset, bytes, .. } = schedule.buffer(id);
            let first = *places.entry(name.clone()).or_insert((space, offset, bytes));
            if first != (space, offset, bytes) {
                let message = format!(
                    "expected the home of %{name} at {:?} {} + {} in every schedule, found {space:?} {offset} + {bytes} in {} ({})",
                    first.0, first.1, first.2, schedule.name, schedule.policy
                );
                found.push(Violation::whole(Rule::Sequence, message));
            }
            taken.entry(space).or_default().set(offset..offset + bytes, Place(names.len()));
            names.push(name);
        }
    }
    for (schedule, program) in runs {
        let own = persistents(schedule, program);
        let others = schedule.buffers.iter().enumerate().filter(|(i, _)| !own.contains_key(&BufferId(*i as u32)));
        for (_, Buffer { name, space, offset, bytes, .. }) in others {
            let there = taken.get(space).and_then(|map| map.pieces(*offset..offset + bytes).find_map(|(_, fact)| fact));
            if let Some(Place(home)) = there {
                let (home, net, policy) = (&names[home], &schedule.name, &schedule.policy);
                let message = format!("%{name} of {net} ({policy}) overwrites the home of %{home}");
                found.push(Violation::whole(Rule::Sequence, message));
            }
        }
    }
    found
}
