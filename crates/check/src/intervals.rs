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
/// Most buffers are only ever touched as a whole: a map of one interval has it in place and no tree.
#[derive(Clone, Debug)]
pub(crate) struct IntervalMap<T> {
    /// The only interval, where there is no other.
    one: Option<(u64, u64, T)>,
    /// End and fact, by start, of several.
    parts: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for IntervalMap<T> {
    fn default() -> Self {
        IntervalMap { one: None, parts: BTreeMap::new() }
    }
}

impl<T: Cut> IntervalMap<T> {
    /// Replaces all facts in `range` by one.
    pub(crate) fn set(&mut self, range: Range<u64>, fact: T) {
        if range.is_empty() {
            return;
        }
        if self.parts.is_empty()
            && self.one.as_ref().is_none_or(|(start, end, _)| range.start <= *start && *end <= range.end)
        {
            self.one = Some((range.start, range.end, fact));
            return;
        }
        self.parts.extend(self.one.take().map(|(start, end, fact)| (start, (end, fact))));
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
        let one = self.one.iter().map(|(start, end, fact)| (*start, *end, fact));
        let before = self.parts.range(..range.start).next_back();
        let several = before.into_iter().chain(self.parts.range(range.clone()));
        for (start, end, fact) in one.chain(several.map(|(&start, (end, fact))| (start, *end, fact))) {
            let (from, to) = (start.max(range.start), end.min(range.end));
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

    /// The fact about exactly this interval, if that is all there is.
    pub(crate) fn whole(&mut self, range: &Range<u64>) -> Option<&mut T> {
        let (start, end, fact) = self.one.as_mut()?;
        (*start == range.start && *end == range.end).then_some(fact)
    }

    /// True when there is a fact about every address of a range.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        match &self.one {
            Some((start, end, _)) => range.is_empty() || (*start <= range.start && range.end <= *end),
            None => self.pieces(range.clone()).iter().all(|(_, fact)| fact.is_some()),
        }
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

    #[test]
    fn a_single_interval_needs_no_tree_and_is_cut_like_others() {
        let mut map = IntervalMap::default();
        map.set(10..20, 100);
        assert_eq!((map.whole(&(10..20)).copied(), map.whole(&(10..19)).copied()), (Some(100), None));
        assert_eq!((map.covers(&(12..20)), map.covers(&(9..12)), map.covers(&(30..30))), (true, false, true));
        assert_eq!(map.pieces(8..12), vec![(8..10, None), (10..12, Some(100))]);
        map.set(5..25, 7);
        assert_eq!(map.whole(&(5..25)).copied(), Some(7));
        map.set(9..11, 0);
        assert_eq!(map.whole(&(5..25)), None);
        assert_eq!(map.pieces(5..25), vec![(5..9, Some(7)), (9..11, Some(0)), (11..25, Some(13))]);
        assert!(map.covers(&(5..25)) && !map.covers(&(4..6)));
    }
}
