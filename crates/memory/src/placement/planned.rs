//! Offline placement: several orders are tried and the lowest extent wins.
//!
//! Orders: by size, by size × time, by time (nested lifetimes stack), long-lived first, and what lives at the fullest steps
//! first (by size or by time). Each item goes to the lowest address where no item that meets it in time lies. Where all
//! orders leave more than [`SPARE`] over what is live, the item on top changes places in the best order with one that meets
//! it, again and again. Where that does not help either, and the addresses are to be kept and not only asked for, what lies
//! too high goes to the front of its order, round after round. Quadratic in the number of items that meet, so beyond
//! [`EXHAUSTIVE`] items the online pool in time order stands in.

use super::shelf::{MOST, Shelf};
use super::{Item, extent, first_fit, sorted, time_order};
use std::cell::LazyCell;
use std::cmp::Reverse;
use vdnn_tensor::Bytes;

/// Items up to which all orders are tried.
const EXHAUSTIVE: usize = 6_000;
const _: () = assert!(EXHAUSTIVE <= MOST);
/// Share of the largest live set that an extent may lie above it before orders are improved.
const SPARE: f64 = 0.01;
/// Comparisons of items that improving an order may take.
const COMPARISONS: usize = 10_000_000;
/// Changes of an order at most.
const CHANGES: usize = 400;
/// The same two limits of lifting what lies too high, for each order.
const COMPARISONS_LIFTING: usize = 40_000_000;
const ROUNDS: usize = 60;
/// Items up to which nothing is lifted: `optimal` proves of tiny programs that no plan is faster, by the shorter search.
const FEW: usize = 128;

/// The lowest extent found, or the first of at most `enough` where there is such a limit. Without one the search is longer.
pub(super) fn place(items: &[Item], base: Bytes, alignment: Bytes, limit: Option<Bytes>) -> Vec<Bytes> {
    let enough = limit.unwrap_or(0);
    let online = first_fit::place(items, base, alignment);
    let mut best = (extent(items, &online), online);
    if items.len() > EXHAUSTIVE || best.0 <= enough {
        return best.1;
    }
    let least = live_peak(items).saturating_add(base);
    let (mut best_order, mut is_its) = (Vec::new(), false);
    let mut shelf = Shelf::new(items, base, alignment);
    for order in orders(items) {
        if best.0 <= least.max(enough) {
            break;
        }
        let candidate = lowest_free(items, &order, &mut shelf, best.0);
        if candidate.is_some() || best_order.is_empty() {
            (best_order, is_its) = (order, candidate.is_some());
        }
        best = candidate.unwrap_or(best);
    }
    let near = enough.max(least + ((least - base) as f64 * SPARE) as Bytes);
    if best.0 <= near {
        return best.1;
    }
    let changes = (COMPARISONS / (items.len() * items.len())).min(CHANGES);
    let start = if is_its { Some(best.clone()) } else { lowest_free(items, &best_order, &mut shelf, Bytes::MAX) };
    let mut keep = |found: (Bytes, Vec<Bytes>)| {
        if found.0 < best.0 {
            best = found;
        }
        best.0 <= near
    };
    let improved = start.is_some_and(|start| keep(improve(items, best_order, start, near, &mut shelf, changes)));
    if !improved && limit.is_none() && items.len() > FEW {
        let rounds = (COMPARISONS_LIFTING / (items.len() * items.len())).min(ROUNDS);
        orders(items).any(|order| keep(lift(items, order, near, &mut shelf, rounds)));
    }
    best.1
}

/// The orders that are tried, each made when it is asked for.
fn orders(items: &[Item]) -> impl Iterator<Item = Vec<usize>> + '_ {
    let span = |i: usize| u64::from(items[i].end - items[i].start) + 1;
    let bytes = |i: usize| Reverse(items[i].bytes);
    let breadths = LazyCell::new(|| breadths(items));
    let breadth = move |i: usize| Reverse(breadths[i]);
    (0..6).map(move |number| match number {
        0 => sorted(items, |i| (bytes(i), Reverse(span(i)))),
        1 => sorted(items, |i| Reverse(u128::from(items[i].bytes) * u128::from(span(i)))),
        2 => sorted(items, |i| (Reverse(span(i)), bytes(i))),
        3 => time_order(items),
        4 => sorted(items, |i| (breadth(i), bytes(i), Reverse(span(i)))),
        _ => sorted(items, |i| (breadth(i), Reverse(span(i)), bytes(i))),
    })
}

/// Changes an order, whose extent and addresses these are, until its extent is at most `near`, or so many changes were tried.
fn improve(
    items: &[Item],
    mut order: Vec<usize>,
    (mut least, mut best): (Bytes, Vec<Bytes>),
    near: Bytes,
    shelf: &mut Shelf,
    changes: usize,
) -> (Bytes, Vec<Bytes>) {
    let mut turn = 0;
    for _ in 0..changes {
        let top = |&at: &usize| items[order[at]].bytes > 0 && best[order[at]] + items[order[at]].bytes == least;
        let Some(top) = (0..order.len()).find(top).filter(|_| least > near) else { break };
        let item = &items[order[top]];
        let meets = |&at: &usize| items[order[at]].start <= item.end && item.start <= items[order[at]].end;
        let others: Vec<usize> = (0..top).filter(meets).collect();
        // Those just before it first: they change least.
        let Some(&other) = others.iter().rev().nth(turn) else { break };
        order.swap(top, other);
        if let Some(found) = lowest_free_from(items, &order, (other, &best), shelf, least) {
            ((least, best), turn) = (found, 0);
        } else {
            order.swap(top, other);
            turn += 1;
        }
    }
    (least, best)
}

/// Puts what ends above `near` in front of all others, keeping both parts in their order, and places again: what found no room
/// below chooses first next time. So many rounds, or until nothing ends there.
fn lift(items: &[Item], mut order: Vec<usize>, near: Bytes, shelf: &mut Shelf, rounds: usize) -> (Bytes, Vec<Bytes>) {
    let mut best = (Bytes::MAX, Vec::new());
    for _ in 0..rounds {
        let Some(found) = lowest_free(items, &order, shelf, Bytes::MAX) else { break };
        let high = |&i: &usize| items[i].bytes > 0 && found.1[i] + items[i].bytes > near;
        let (mut front, rest): (Vec<usize>, Vec<usize>) = order.into_iter().partition(high);
        if found.0 < best.0 {
            best = found;
        }
        if front.is_empty() {
            break;
        }
        front.extend(rest);
        order = front;
    }
    best
}

/// Places items one by one at the lowest address free during their whole interval: the extent, and where. `None` as soon as
/// the extent is not below `limit`.
fn lowest_free(items: &[Item], order: &[usize], shelf: &mut Shelf, limit: Bytes) -> Option<(Bytes, Vec<Bytes>)> {
    let nowhere = vec![shelf.floor(); items.len()];
    lowest_free_from(items, order, (0, &nowhere), shelf, limit)
}

/// The same where the addresses of so many, the first in the order, are known.
fn lowest_free_from(
    items: &[Item],
    order: &[usize],
    (known, offsets): (usize, &[Bytes]),
    shelf: &mut Shelf,
    limit: Bytes,
) -> Option<(Bytes, Vec<Bytes>)> {
    shelf.clear();
    let mut offsets = offsets.to_vec();
    let mut extent = 0;
    for (number, &i) in order.iter().enumerate() {
        let bytes = items[i].bytes;
        if bytes == 0 {
            continue;
        }
        if number >= known {
            offsets[i] = shelf.lowest(i, bytes);
        }
        extent = extent.max(offsets[i] + bytes);
        if extent >= limit {
            return None;
        }
        shelf.put(i, bytes, offsets[i]);
    }
    Some((extent, offsets))
}

/// By item: the most bytes that any step of its time needs.
fn breadths(items: &[Item]) -> Vec<Bytes> {
    // The most of 1, 2, 4 … steps from each on: two of these cover any time.
    let mut most = vec![live(items)];
    while let Some(last) = most.last()
        && let half = 1 << (most.len() - 1)
        && last.len() > half
    {
        most.push(last.iter().zip(&last[half..]).map(|(one, other)| *one.max(other)).collect());
    }
    let breadth = |item: &Item| {
        let level = (item.end - item.start + 1).ilog2();
        let of = &most[level as usize];
        of[item.start as usize].max(of[item.end as usize + 1 - (1 << level)])
    };
    items.iter().map(breadth).collect()
}

/// The most bytes that any step needs: no placement has a smaller extent.
fn live_peak(items: &[Item]) -> Bytes {
    live(items).into_iter().max().unwrap_or(0)
}

/// Bytes that each step needs.
fn live(items: &[Item]) -> Vec<Bytes> {
    let steps = items.iter().map(|item| item.end as usize + 2).max().unwrap_or(0);
    let mut change = vec![0i128; steps];
    for item in items {
        change[item.start as usize] += i128::from(item.bytes);
        change[item.end as usize + 1] -= i128::from(item.bytes);
    }
    let mut live = 0i128;
    let total = |delta| {
        live += delta;
        live as Bytes
    };
    change.into_iter().map(total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn known_addresses_of_the_first_items_save_only_looking_for_them(
            raw in prop::collection::vec((0u32..40, 0u32..15, 0u64..5000), 1..120),
        ) {
            let items: Vec<Item> =
                raw.into_iter().map(|(start, len, bytes)| Item { start, end: start + len, bytes }).collect();
            let shelf = &mut Shelf::new(&items, 100, 64);
            for order in orders(&items) {
                let whole = lowest_free(&items, &order, shelf, Bytes::MAX);
                let (_, offsets) = whole.clone().unwrap();
                // Of the rest nothing is known.
                for known in [0, 1, items.len() / 2, items.len()] {
                    let mut first = vec![shelf.floor(); items.len()];
                    order[..known].iter().for_each(|&i| first[i] = offsets[i]);
                    prop_assert_eq!(lowest_free_from(&items, &order, (known, &first), shelf, Bytes::MAX), whole.clone());
                }
            }
        }

        #[test]
        fn breadths_are_the_most_of_each_time(raw in prop::collection::vec((0u32..90, 0u32..70, 0u64..5000), 0..60)) {
            let items: Vec<Item> =
                raw.into_iter().map(|(start, len, bytes)| Item { start, end: start + len, bytes }).collect();
            let live = live(&items);
            let most = |item: &Item| live[item.start as usize..=item.end as usize].iter().copied().max();
            prop_assert_eq!(breadths(&items), items.iter().filter_map(most).collect::<Vec<_>>());
        }
    }
}
