//! The online pool: each buffer takes the lowest free gap that is large enough when it is allocated.

use super::{Item, time_order};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use vdnn_tensor::Bytes;

pub(super) fn place(items: &[Item], base: Bytes, alignment: Bytes) -> Vec<Bytes> {
    let floor = base.next_multiple_of(alignment);
    let mut offsets = vec![floor; items.len()];
    let mut pool = Pool { free: BTreeMap::from([(floor, Bytes::MAX)]), held: BinaryHeap::new() };
    for i in time_order(items) {
        if items[i].bytes > 0 {
            pool.advance_to(items[i].start);
            offsets[i] = pool.take(items[i].end, items[i].bytes.next_multiple_of(alignment));
        }
    }
    offsets
}

struct Pool {
    /// Free gaps: first address, and one past the last. No two touch; the last one has no end.
    free: BTreeMap<Bytes, Bytes>,
    /// What is held, the first to be given back on top: last step, first address, and one past the last.
    held: BinaryHeap<Reverse<(u32, Bytes, Bytes)>>,
}

impl Pool {
    fn advance_to(&mut self, step: u32) {
        while self.held.peek().is_some_and(|Reverse((end, ..))| *end < step) {
            if let Some(Reverse((_, at, past))) = self.held.pop() {
                self.give_back(at, past);
            }
        }
    }

    /// Frees a stretch and joins it with the gaps that it touches.
    fn give_back(&mut self, mut at: Bytes, past: Bytes) {
        let past = self.free.remove(&past).unwrap_or(past);
        if let Some((&before, &end)) = self.free.range(..at).next_back()
            && end == at
        {
            at = before;
        }
        self.free.insert(at, past);
    }

    fn take(&mut self, end: u32, bytes: Bytes) -> Bytes {
        let lowest = self.free.iter().find(|&(at, past)| past - at >= bytes).map(|(&at, &past)| (at, past));
        // The last gap has no end: there is always one.
        let (at, past) = lowest.unwrap_or((0, Bytes::MAX));
        self.free.remove(&at);
        if past > at + bytes {
            self.free.insert(at + bytes, past);
        }
        self.held.push(Reverse((end, at, at + bytes)));
        at
    }
}
