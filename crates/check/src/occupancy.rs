//! Who had which addresses last, where everybody's addresses are known beforehand.
//!
//! Addresses are numbered by the bounds of buffers, all spaces in one row, so what is remembered lies in vectors:
//!
//! ```text
//!   bounds     0    1        2      3           4
//!   occupied   │ a ───────── │      │ b ─────── │         a begins at 0 and ends at 2, b at 3 and 4; 2..3 is nobody's
//! ```

use crate::marks::Marks;
use std::ops::Range;
use vdnn_schedule::{BufferId, Schedule, Space};

/// The last occupant of every address.
pub(crate) struct Occupancy<T> {
    /// The bounds of every buffer, by number.
    ranges: Vec<Range<u32>>,
    /// Bounds at which an occupied piece begins.
    starts: Marks,
    /// End and occupant of the piece that begins at a bound.
    pieces: Vec<(u32, T)>,
}

impl<T: Copy> Occupancy<T> {
    /// Nobody anywhere; `nobody` stands where nothing is read.
    pub(crate) fn of(schedule: &Schedule, nobody: T) -> Self {
        let ranges = numbered(schedule);
        let bounds = ranges.iter().map(|range| range.end as usize + 1).max().unwrap_or(0);
        Occupancy { ranges, starts: Marks::below(bounds), pieces: vec![(0, nobody); bounds] }
    }

    /// A buffer's addresses get an occupant; says in order of address who had them, piece by piece.
    pub(crate) fn take(&mut self, buffer: BufferId, occupant: T, mut from: impl FnMut(T)) {
        let Range { start, end } = self.ranges[buffer.index()].clone();
        if start == end {
            return;
        }
        if let Some(before) = self.starts.last_before(start as usize) {
            let (last, former) = self.pieces[before];
            if last > start {
                from(former);
                self.pieces[before].0 = start;
                self.rest(end, last, former);
            }
        }
        while let Some(at) = self.starts.first_from(start as usize).filter(|&at| at < end as usize) {
            let (last, former) = self.pieces[at];
            from(former);
            self.starts.remove(at);
            self.rest(end, last, former);
        }
        self.starts.insert(start as usize);
        self.pieces[start as usize] = (end, occupant);
    }

    /// What is left of a piece that reaches further.
    fn rest(&mut self, start: u32, end: u32, occupant: T) {
        if start < end {
            self.starts.insert(start as usize);
            self.pieces[start as usize] = (end, occupant);
        }
    }
}

/// The bounds of every buffer, numbered in order of space and address.
fn numbered(schedule: &Schedule) -> Vec<Range<u32>> {
    // Space, address, and which bound of which buffer, in one number, since it is sorting that takes long.
    let key =
        |space: Space, address: u64, index: usize| (space as u128) << 96 | u128::from(address) << 32 | index as u128;
    let mut bounds = Vec::with_capacity(2 * schedule.buffers.len());
    for (index, buffer) in schedule.buffers.iter().enumerate() {
        bounds.push(key(buffer.space, buffer.offset, 2 * index));
        bounds.push(key(buffer.space, buffer.offset + buffer.bytes, 2 * index + 1));
    }
    bounds.sort_unstable();
    let mut ranges = vec![0..0; schedule.buffers.len()];
    let (mut number, mut place) = (0, None);
    for bound in bounds {
        if place.replace(bound >> 32).is_some_and(|before| before != bound >> 32) {
            number += 1;
        }
        let index = bound as u32 as usize;
        let range: &mut Range<u32> = &mut ranges[index / 2];
        *(if index.is_multiple_of(2) { &mut range.start } else { &mut range.end }) = number;
    }
    ranges
}
