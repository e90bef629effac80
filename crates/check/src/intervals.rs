//! A map from disjoint intervals of addresses to facts about them.

use std::collections::BTreeMap;
use std::ops::Range;

/// A fact that still makes sense for the rest of its interval.
pub(crate) trait Cut: Clone {
    /// The fact about what is left when `by` addresses are cut from the front.
    fn tail(&self, by: u64) -> Self;
}

/// Facts by address. Intervals never overlap; addresses without a fact are gaps.
///
/// A map of one interval has it in place and no tree.
#[derive(Clone, Debug)]
pub(crate) struct IntervalMap<T> {
    /// The only interval and its fact, where there is no other.
    one: Range<u64>,
    fact: Option<T>,
    /// End and fact, by start, of several.
    parts: Option<Box<Parts<T>>>,
}

type Parts<T> = BTreeMap<u64, (u64, T)>;

impl<T> Default for IntervalMap<T> {
    fn default() -> Self {
        IntervalMap { one: 0..0, fact: None, parts: None }
    }
}

impl<T: Cut> IntervalMap<T> {
    /// Replaces all facts in `range` by one.
    pub(crate) fn set(&mut self, range: Range<u64>, fact: T) {
        if range.is_empty() {
            return;
        }
        let one = &self.one;
        if self.parts.is_none() && (self.fact.is_none() || range.start <= one.start && one.end <= range.end) {
            (self.one, self.fact) = (range, Some(fact));
            return;
        }
        let parts = self.parts.get_or_insert_default();
        parts.extend(self.fact.take().map(|fact| (one.start, (one.end, fact))));
        split(parts, range.start);
        split(parts, range.end);
        let old: Vec<u64> = parts.range(range.clone()).map(|(&start, _)| start).collect();
        for start in old {
            parts.remove(&start);
        }
        parts.insert(range.start, (range.end, fact));
    }

    /// The facts in `range` in order of address, cut to fit, gaps included as `None`.
    pub(crate) fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, Option<T>)> {
        let mut facts = self.facts(range.clone());
        let (mut at, mut next) = (range.start, None);
        std::iter::from_fn(move || {
            next = next.take().or_else(|| facts.next());
            let gap = at..next.as_ref().map_or(range.end, |(piece, _): &(Range<u64>, T)| piece.start);
            if !gap.is_empty() {
                at = gap.end;
                return Some((gap, None));
            }
            let (piece, fact) = next.take()?;
            at = piece.end;
            Some((piece, Some(fact)))
        })
    }

    /// The facts in `range` in order of address, cut to fit.
    fn facts(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, T)> {
        let one = self.fact.iter().map(|fact| (self.one.start, self.one.end, fact));
        let within = range.clone();
        let several = self.parts.iter().flat_map(move |parts| {
            let before = parts.range(..within.start).next_back();
            before.into_iter().chain(parts.range(within.clone()))
        });
        one.chain(several.map(|(&start, (end, fact))| (start, *end, fact))).filter_map(move |(start, end, fact)| {
            let (from, to) = (start.max(range.start), end.min(range.end));
            (from < to).then(|| (from..to, fact.tail(from - start)))
        })
    }

    /// The fact about exactly this interval, if that is all there is.
    pub(crate) fn whole(&mut self, range: &Range<u64>) -> Option<&mut T> {
        self.fact.as_mut().filter(|_| self.one == *range)
    }

    /// True when there is a fact about every address of a range.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        let within = self.one.start <= range.start && range.end <= self.one.end;
        self.fact.is_some() && within || self.pieces(range.clone()).all(|(_, fact)| fact.is_some())
    }
}

/// Makes `at` a boundary when it lies inside an interval.
fn split<T: Cut>(parts: &mut Parts<T>, at: u64) {
    let Some((&start, (end, fact))) = parts.range_mut(..at).next_back() else { return };
    if *end > at {
        let rest = (*end, fact.tail(at - start));
        *end = at;
        parts.insert(at, rest);
    }
}

impl Cut for () {
    fn tail(&self, _by: u64) -> Self {}
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Cut for u64 {
        fn tail(&self, by: u64) -> Self {
            self + by
        }
    }

    fn pieces(map: &IntervalMap<u64>, range: Range<u64>) -> Vec<(Range<u64>, Option<u64>)> {
        map.pieces(range).collect()
    }

    #[test]
    fn setting_splits_what_it_overlaps() {
        let mut map = IntervalMap::default();
        map.set(10..20, 100);
        map.set(13..15, 0);
        map.set(5..5, 7);
        let expected = vec![(8..10, None), (10..13, Some(100)), (13..15, Some(0)), (15..20, Some(105)), (20..22, None)];
        assert_eq!(pieces(&map, 8..22), expected);
        assert_eq!(pieces(&map, 14..16), vec![(14..15, Some(1)), (15..16, Some(105))]);
        assert_eq!(pieces(&map, 16..16), vec![]);
    }

    #[test]
    fn a_single_interval_needs_no_tree_and_is_cut_like_others() {
        let mut map = IntervalMap::default();
        map.set(10..20, 100);
        assert_eq!((map.whole(&(10..20)).copied(), map.whole(&(10..19)).copied()), (Some(100), None));
        assert_eq!((map.covers(&(12..20)), map.covers(&(9..12)), map.covers(&(30..30))), (true, false, true));
        assert_eq!(pieces(&map, 8..12), vec![(8..10, None), (10..12, Some(100))]);
        map.set(5..25, 7);
        assert_eq!(map.whole(&(5..25)).copied(), Some(7));
        map.set(9..11, 0);
        assert_eq!(map.whole(&(5..25)), None);
        assert_eq!(pieces(&map, 5..25), vec![(5..9, Some(7)), (9..11, Some(0)), (11..25, Some(13))]);
        assert!(map.covers(&(5..25)) && !map.covers(&(4..6)));
    }
}
