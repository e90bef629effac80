//! A set of small numbers that finds neighbours by looking at one word a level.
//!
//! ```text
//!   level 1   1 0 1 …                    a bit a word below that is not empty
//!   level 0   0110…  0000…  1000…        a bit a number
//! ```

/// A set of numbers below a limit.
pub(crate) struct Marks {
    levels: Vec<Vec<u64>>,
}

impl Marks {
    /// The empty set of numbers below `limit`.
    pub(crate) fn below(limit: usize) -> Self {
        // One more, so that the limit itself has a word to look below in.
        let mut levels = vec![vec![0; limit / 64 + 1]];
        while let Some(words) = levels.last().map(Vec::len).filter(|&words| words > 1) {
            levels.push(vec![0; words.div_ceil(64)]);
        }
        Marks { levels }
    }

    pub(crate) fn insert(&mut self, number: usize) {
        let mut at = number;
        for words in &mut self.levels {
            words[at / 64] |= 1 << (at % 64);
            at /= 64;
        }
    }

    pub(crate) fn remove(&mut self, number: usize) {
        let mut at = number;
        for words in &mut self.levels {
            words[at / 64] &= !(1 << (at % 64));
            if words[at / 64] != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// The greatest number in the set that is less than `end`.
    pub(crate) fn last_before(&self, end: usize) -> Option<usize> {
        let highest = |word: u64| 63 - word.leading_zeros() as usize;
        let mut at = end;
        for (level, words) in self.levels.iter().enumerate() {
            let word = words.get(at / 64).map_or(0, |word| word & !(u64::MAX << (at % 64)));
            at /= 64;
            if word != 0 {
                let found = at * 64 + highest(word);
                return Some(self.levels[..level].iter().rev().fold(found, |at, words| at * 64 + highest(words[at])));
            }
        }
        None
    }

    /// The least number in the set that is `start` or more.
    pub(crate) fn first_from(&self, start: usize) -> Option<usize> {
        let lowest = |word: u64| word.trailing_zeros() as usize;
        let mut at = start;
        for (level, words) in self.levels.iter().enumerate() {
            let word = words.get(at / 64).map_or(0, |word| word & (u64::MAX << (at % 64)));
            if word != 0 {
                let found = at / 64 * 64 + lowest(word);
                return Some(self.levels[..level].iter().rev().fold(found, |at, words| at * 64 + lowest(words[at])));
            }
            at = at / 64 + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn neighbours_are_those_of_an_ordered_set() {
        for limit in [1, 2, 63, 64, 65, 4096, 4097, 300_000] {
            let (mut marks, mut set) = (Marks::below(limit), BTreeSet::new());
            let mut state = limit as u64;
            for round in 0..2000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let number = (state >> 33) as usize % limit;
                // First more come than go, then the other way, so that it is empty in between and crowded.
                if (state >> 20) % 8 < if round % 500 < 250 { 6 } else { 1 } {
                    marks.insert(number);
                    set.insert(number);
                } else {
                    marks.remove(number);
                    set.remove(&number);
                    let near = set.range(number..).next().copied();
                    near.into_iter().for_each(|near| {
                        marks.remove(near);
                        set.remove(&near);
                    });
                }
                for at in [0, number, number + 1, limit / 2, limit] {
                    assert_eq!(marks.last_before(at), set.range(..at).next_back().copied(), "{limit} {at}");
                    assert_eq!(marks.first_from(at), set.range(at..).next().copied(), "{limit} {at}");
                }
            }
        }
    }
}
