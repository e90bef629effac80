//! Offline placement: several orders are tried and the lowest extent wins.
//!
//! Orders: by size, by size × time, by time (nested lifetimes stack), and long-lived first. Each item goes to the lowest
//! address where no item that meets it in time lies. Quadratic in the number of items that meet, so beyond
//! [`EXHAUSTIVE`] items the online pool in time order, with borrowed bytes above what lasts, stands in.

use super::{Item, extent, first_fit, time_order};
use std::cmp::Reverse;
use vdnn_tensor::Bytes;

/// Items up to which all orders are tried.
const EXHAUSTIVE: usize = 6_000;

/// The lowest extent found, or the first of at most `enough`.
pub(super) fn place(items: &[Item], base: Bytes, alignment: Bytes, enough: Bytes) -> Vec<Bytes> {
    let online = first_fit::place(items, base, alignment);
    let mut best = (extent(items, &online), online);
    if items.len() > EXHAUSTIVE || best.0 <= enough {
        return best.1;
    }
    let bound = live_peak(items).saturating_add(base).max(enough);
    let span = |i: usize| u64::from(items[i].end - items[i].start) + 1;
    let mut by_size: Vec<usize> = (0..items.len()).collect();
    by_size.sort_by_key(|&i| (Reverse(items[i].bytes), Reverse(span(i)), i));
    let mut by_area: Vec<usize> = (0..items.len()).collect();
    by_area.sort_by_key(|&i| (Reverse(u128::from(items[i].bytes) * u128::from(span(i))), i));
    let mut by_span: Vec<usize> = (0..items.len()).collect();
    by_span.sort_by_key(|&i| (Reverse(span(i)), Reverse(items[i].bytes), i));
    for order in [by_size, by_area, by_span, time_order(items)] {
        if best.0 <= bound {
            break;
        }
        let offsets = lowest_free(items, &order, base, alignment);
        let candidate = (extent(items, &offsets), offsets);
        if candidate.0 < best.0 {
            best = candidate;
        }
    }
    best.1
}

/// Places items one by one at the lowest address free during their whole interval.
fn lowest_free(items: &[Item], order: &[usize], base: Bytes, alignment: Bytes) -> Vec<Bytes> {
    let floor = base.next_multiple_of(alignment);
    let mut offsets = vec![floor; items.len()];
    // Placed items by address: a scan in address order finds the first gap without sorting each time.
    let mut placed: Vec<(Bytes, Item)> = Vec::with_capacity(items.len());
    for &i in order {
        let item = items[i];
        if item.bytes == 0 {
            continue;
        }
        let mut at = floor;
        for (other_at, other) in &placed {
            if other.start > item.end || item.start > other.end {
                continue;
            }
            if at + item.bytes <= *other_at {
                break;
            }
            at = at.max((other_at + other.bytes).next_multiple_of(alignment));
        }
        offsets[i] = at;
        let slot = placed.partition_point(|&(other_at, _)| other_at <= at);
        placed.insert(slot, (at, item));
    }
    offsets
}

/// The most bytes that any step needs: no placement has a smaller extent.
fn live_peak(items: &[Item]) -> Bytes {
    let steps = items.iter().map(|item| item.end as usize + 2).max().unwrap_or(0);
    let mut change = vec![0i128; steps];
    for item in items {
        change[item.start as usize] += i128::from(item.bytes);
        change[item.end as usize + 1] -= i128::from(item.bytes);
    }
    let mut live = 0i128;
    let mut peak = 0;
    for delta in change {
        live += delta;
        peak = peak.max(live);
    }
    peak as Bytes
}
