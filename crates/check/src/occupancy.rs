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
    let ends = schedule.buffers.iter().map(|buffer| buffer.offset + buffer.bytes);
    let address_bits = u64::BITS - ends.max().unwrap_or(0).leading_zeros();
    // Space and address, then which bound of which buffer, in one number.
    let key = |space: Space, address: u64, index: usize| {
        ((space as u128) << address_bits | u128::from(address)) << 32 | index as u128
    };
    let mut bounds = Vec::with_capacity(2 * schedule.buffers.len());
    for (index, buffer) in schedule.buffers.iter().enumerate() {
        bounds.push(key(buffer.space, buffer.offset, 2 * index));
        bounds.push(key(buffer.space, buffer.offset + buffer.bytes, 2 * index + 1));
    }
    sort_from_bit(&mut bounds, 32);
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

/// Bits of a digit: their counters fit the first cache.
const DIGIT: u32 = 11;

/// Sorts by the bits from one on, digit by digit, lowest first (least-significant-digit radix sort): as many passes as the greatest
/// key has digits, each in time linear in the keys.
fn sort_from_bit(keys: &mut Vec<u128>, bit: u32) {
    let bits = u128::BITS - keys.iter().fold(0, |all, key| all | key).leading_zeros();
    let mut sorted = vec![0; keys.len()];
    for shift in (bit..bits).step_by(DIGIT as usize) {
        let digit = |key: u128| (key >> shift) as usize % (1 << DIGIT);
        // Where the next key with a digit goes.
        let mut next = [0u32; 1 << DIGIT];
        keys.iter().for_each(|&key| next[digit(key)] += 1);
        next.iter_mut().fold(0, |start, n| start + std::mem::replace(n, start));
        for &key in keys.iter() {
            let at = &mut next[digit(key)];
            sorted[*at as usize] = key;
            *at += 1;
        }
        std::mem::swap(keys, &mut sorted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_by_their_high_bits_and_equal_ones_stay_in_order() {
        for (n, high_bits) in [(0, 8), (1, 0), (2, 66), (100, 5), (5000, 11), (5000, 12), (5000, 37), (5000, 66)] {
            let mut state = n as u64;
            let mut random = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                u128::from(state >> 32)
            };
            // The low bits go down, so that whoever compares them changes the order of keys that are equal above.
            let mut key =
                |low: usize| ((random() << 64 | random() << 32 | random()) % (1 << high_bits)) << 32 | low as u128;
            let mut keys: Vec<u128> = (0..n).rev().map(&mut key).collect();
            let mut expected = keys.clone();
            expected.sort_by_key(|key| key >> 32);
            sort_from_bit(&mut keys, 32);
            assert_eq!(keys, expected, "{n} keys of {high_bits} bits");
        }
    }
}
