//! Addresses for intervals: where in the arena each buffer lies.
//!
//! ```text
//!  address ▲   ┌───┐ ┌──────┐
//!          │ ┌─┴───┴─┴─┐    │      two items may share bytes only if their times do not meet
//!          │ └─────────┘────┘
//!          └──────────────────▶ step
//! ```
//!
//! [`Placement::Planned`] sees all times at once; the other two are the online pools that frameworks use, kept to compare
//! with. Not done here: deciding the times.

mod first_fit;
mod planned;
mod shelf;
mod size_class;

use std::cmp::Reverse;
use vdnn_tensor::Bytes;

/// How addresses are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Placement {
    /// Offline: the best of several orders over all intervals.
    #[default]
    Planned,
    /// Online: the lowest free gap that is large enough, in time order.
    FirstFit,
    /// Online: sizes rounded up to classes, blocks reused only within their class (as caching allocators do).
    SizeClass,
}

/// Bytes needed during an interval of steps, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// First step.
    pub start: u32,
    /// Last step.
    pub end: u32,
    /// Size.
    pub bytes: Bytes,
}

/// Addresses of items, and one past the highest byte used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// By item.
    pub offsets: Vec<Bytes>,
    /// One past the last byte of any item; `base` without items.
    pub extent: Bytes,
}

/// Places `items` at multiples of `alignment`, none below `base`.
pub fn place(method: Placement, items: &[Item], base: Bytes, alignment: Bytes) -> Placed {
    placed(method, items, base, alignment, None)
}

/// The same, but an extent of `enough` is not improved, and the search is shorter: [`place`] finds no greater extent.
pub(crate) fn place_within(method: Placement, items: &[Item], base: Bytes, alignment: Bytes, enough: Bytes) -> Placed {
    placed(method, items, base, alignment, Some(enough))
}

fn placed(method: Placement, items: &[Item], base: Bytes, alignment: Bytes, enough: Option<Bytes>) -> Placed {
    let offsets = match method {
        Placement::Planned => planned::place(items, base, alignment, enough),
        Placement::FirstFit => first_fit::place(items, base, alignment),
        Placement::SizeClass => size_class::place(items, base, alignment),
    };
    let extent = extent(items, &offsets).max(base);
    Placed { offsets, extent }
}

fn extent(items: &[Item], offsets: &[Bytes]) -> Bytes {
    items.iter().zip(offsets).filter(|(item, _)| item.bytes > 0).map(|(item, &at)| at + item.bytes).max().unwrap_or(0)
}

/// Indices of items in time order: earlier start first, then longer, then larger.
fn time_order(items: &[Item]) -> Vec<usize> {
    sorted(items, |i| (items[i].start, Reverse(items[i].end), Reverse(items[i].bytes)))
}

/// Indices of items by a key, the first of equals first.
fn sorted<K: Ord>(items: &[Item], key: impl Fn(usize) -> K) -> Vec<usize> {
    let mut order: Vec<(K, usize)> = (0..items.len()).map(|i| (key(i), i)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, i)| i).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn live_peak(items: &[Item]) -> Bytes {
        let live = |step| items.iter().filter(|i| i.start <= step && step <= i.end).map(|i| i.bytes).sum();
        items.iter().map(|item| live(item.start)).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn items_that_meet_in_time_never_share_bytes(
            raw in prop::collection::vec((0u32..40, 0u32..15, 0u64..5000), 0..60),
            base in 0u64..1000,
        ) {
            let items: Vec<Item> =
                raw.into_iter().map(|(start, len, bytes)| Item { start, end: start + len, bytes }).collect();
            for method in [Placement::Planned, Placement::FirstFit, Placement::SizeClass] {
                let placed = place(method, &items, base, 64);
                prop_assert!(placed.extent >= live_peak(&items));
                for (i, a) in items.iter().enumerate() {
                    prop_assert!(placed.offsets[i] >= base && placed.offsets[i].is_multiple_of(64));
                    for (j, b) in items.iter().enumerate().skip(i + 1) {
                        let meet = a.start <= b.end && b.start <= a.end && a.bytes > 0 && b.bytes > 0;
                        let share = placed.offsets[i] < placed.offsets[j] + b.bytes
                            && placed.offsets[j] < placed.offsets[i] + a.bytes;
                        prop_assert!(!(meet && share), "{method:?}: {a:?} {b:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn nested_lifetimes_stack_without_waste() {
        // Feature maps of a chain: made in order, freed in reverse, with a workspace at every step.
        let items: Vec<Item> = (0..50)
            .map(|i| Item { start: i, end: 200 - i, bytes: 640 })
            .chain((0..200).map(|step| Item { start: step, end: step, bytes: 1280 }))
            .collect();
        assert_eq!(place(Placement::Planned, &items, 0, 64).extent, live_peak(&items));
    }

    #[test]
    fn what_lies_too_high_chooses_first() {
        // No order of the list nor a swap in the best one finds the 832 bytes that are live at most.
        let once = [
            (7, 12, 3),
            (2, 4, 4),
            (2, 5, 3),
            (6, 7, 1),
            (3, 6, 3),
            (8, 8, 1),
            (10, 16, 7),
            (8, 12, 3),
            (7, 7, 8),
            (2, 5, 1),
        ];
        // Fourteen times in a row, since few items are left to the short search.
        let item = |at: u32, (start, end, units): (u32, u32, Bytes)| Item {
            start: start + at,
            end: end + at,
            bytes: 64 * units,
        };
        let items: Vec<Item> = (0..14).flat_map(|turn| once.map(|one| item(20 * turn, one))).collect();
        assert_eq!(live_peak(&items), 832);
        assert_eq!(place_within(Placement::Planned, &items, 0, 64, 0).extent, 896);
        assert_eq!(place(Placement::Planned, &items, 0, 64).extent, 832);
    }

    #[test]
    fn size_classes_cost_more() {
        let items: Vec<Item> =
            (0..20).map(|i| Item { start: i, end: i + 2, bytes: 1000 + 300 * u64::from(i) }).collect();
        let planned = place(Placement::Planned, &items, 0, 64).extent;
        assert!(place(Placement::SizeClass, &items, 0, 64).extent > planned);
    }
}
