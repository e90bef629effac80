//! The online pool: each buffer takes the lowest free stretch that is large enough when it is allocated.

use super::{Item, time_order};
use std::collections::BTreeMap;
use vdnn_tensor::Bytes;

pub(super) fn place(items: &[Item], base: Bytes, alignment: Bytes) -> Vec<Bytes> {
    let mut offsets = vec![base.next_multiple_of(alignment); items.len()];
    let mut pool = Pool { held: BTreeMap::new(), ends: Vec::new(), base, alignment };
    for i in time_order(items) {
        pool.advance_to(items[i].start);
        offsets[i] = pool.take(items[i]);
    }
    offsets
}

struct Pool {
    /// Held stretches by address: size.
    held: BTreeMap<Bytes, Bytes>,
    /// (last step, address) of what is held, unordered.
    ends: Vec<(u32, Bytes)>,
    base: Bytes,
    alignment: Bytes,
}

impl Pool {
    fn advance_to(&mut self, step: u32) {
        let held = &mut self.held;
        self.ends.retain(|&(end, at)| {
            let keep = end >= step;
            if !keep {
                held.remove(&at);
            }
            keep
        });
    }

    fn take(&mut self, item: Item) -> Bytes {
        let mut at = self.base.next_multiple_of(self.alignment);
        if item.bytes == 0 {
            return at;
        }
        for (&other, &bytes) in &self.held {
            if at + item.bytes <= other {
                break;
            }
            at = at.max((other + bytes).next_multiple_of(self.alignment));
        }
        self.held.insert(at, item.bytes);
        self.ends.push((item.end, at));
        at
    }
}
