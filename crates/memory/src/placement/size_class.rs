//! The online pool of caching allocators: sizes are rounded up to classes and a block serves only its own class.
//!
//! Classes are 1, 1.25, 1.5, 1.75 times powers of two. A block, once made, stays of its class for the whole iteration.

use super::{Item, time_order};
use std::collections::BTreeMap;
use vdnn_tensor::Bytes;

pub(super) fn place(items: &[Item], base: Bytes, alignment: Bytes) -> Vec<Bytes> {
    let mut offsets = vec![base.next_multiple_of(alignment); items.len()];
    // Per class: blocks with the step from which they are free.
    let mut blocks: BTreeMap<Bytes, Vec<(Bytes, u32)>> = BTreeMap::new();
    let mut top = base;
    for i in time_order(items) {
        let item = items[i];
        if item.bytes == 0 {
            continue;
        }
        let class = class_of(item.bytes);
        let list = blocks.entry(class).or_default();
        if let Some(block) = list.iter_mut().find(|block| block.1 <= item.start) {
            block.1 = item.end + 1;
            offsets[i] = block.0;
            continue;
        }
        let at = top.next_multiple_of(alignment);
        top = at + class;
        list.push((at, item.end + 1));
        offsets[i] = at;
    }
    offsets
}

fn class_of(bytes: Bytes) -> Bytes {
    let step = (bytes.next_power_of_two() / 8).max(1);
    bytes.next_multiple_of(step)
}
