//! A map from disjoint intervals of addresses to facts about them.

use std::collections::BTreeMap;
use std::ops::Range;

/// A fact that still makes sense for the rest of its interval.
pub(crate) trait Cut: Clone {
    /// The fact about what is left when `by` addresses are cut from the front.
    fn tail(&self, by: u64) -> Self;
}

/// Facts by address. Intervals never overlap; addresses without a fact are gaps.
#[derive(Clone, Debug)]
pub(crate) struct IntervalMap<T> {
    /// End and fact, by start.
    parts: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for IntervalMap<T> {
    fn default() -> Self {
        IntervalMap { parts: BTreeMap::new() }
    }
}

impl<T: Cut> IntervalMap<T> {
    /// Replaces all facts in `range` by one.
    pub(crate) fn set(&mut self, range: Range<u64>, fact: T) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        let old: Vec<u64> = self.parts.range(range.clone()).map(|(&start, _)| start).collect();
        for start in old {
            self.parts.remove(&start);
        }
        self.parts.insert(range.start, (range.end, fact));
    }

    /// The facts in `range` in order of address, cut to fit, gaps included as `None`.
    pub(crate) fn pieces(&self, range: Range<u64>) -> Vec<(Range<u64>, Option<T>)> {
        let mut pieces = Vec::new();
        let mut at = range.start;
        let before = self.parts.range(..range.start).next_back();
        for (&start, (end, fact)) in before.into_iter().chain(self.parts.range(range.clone())) {
            let (from, to) = (start.max(range.start), (*end).min(range.end));
            if from >= to {
                continue;
            }
            if at < from {
                pieces.push((at..from, None));
            }
            pieces.push((from..to, Some(fact.tail(from - start))));
            at = to;
        }
        if at < range.end {
            pieces.push((at..range.end, None));
        }
        pieces
    }

    /// Makes `at` a boundary when it lies inside an interval.
    fn split(&mut self, at: u64) {
        let Some((&start, (end, fact))) = self.parts.range_mut(..at).next_back() else { return };
        if *end > at {
            let rest = (*end, fact.tail(at - start));
            *end = at;
            self.parts.insert(at, rest);
        }
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

    #[test]
    fn setting_splits_what_it_overlaps() {
        let mut map = IntervalMap::default();
        map.set(10..20, 100);
        map.set(13..15, 0);
        map.set(5..5, 7);
        let expected = vec![(8..10, None), (10..13, Some(100)), (13..15, Some(0)), (15..20, Some(105)), (20..22, None)];
        assert_eq!(map.pieces(8..22), expected);
        assert_eq!(map.pieces(14..16), vec![(14..15, Some(1)), (15..16, Some(105))]);
        assert_eq!(map.pieces(16..16), vec![]);
    }
}
