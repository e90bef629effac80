//! The online pool: each buffer takes the lowest free gap that is large enough when it is allocated.

use super::{Item, time_order};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use vdnn_tensor::Bytes;

/// Gaps of a run of neighbours at most.
const RUN: usize = 32;

pub(super) fn place(items: &[Item], base: Bytes, alignment: Bytes) -> Vec<Bytes> {
    let floor = base.next_multiple_of(alignment);
    let mut offsets = vec![floor; items.len()];
    let mut pool = Pool { free: Gaps::from(floor), held: BinaryHeap::new() };
    for i in time_order(items) {
        if items[i].bytes > 0 {
            pool.advance_to(items[i].start);
            offsets[i] = pool.take(items[i].end, items[i].bytes.next_multiple_of(alignment));
        }
    }
    offsets
}

struct Pool {
    /// No two gaps touch; the last one has no end.
    free: Gaps,
    /// What is held, the first to be given back on top: last step, first address, and one past the last.
    held: BinaryHeap<Reverse<(u32, Bytes, Bytes)>>,
}

impl Pool {
    fn advance_to(&mut self, step: u32) {
        while self.held.peek().is_some_and(|Reverse((end, ..))| *end < step) {
            if let Some(Reverse((_, at, past))) = self.held.pop() {
                self.free.give_back(at, past);
            }
        }
    }

    fn take(&mut self, end: u32, bytes: Bytes) -> Bytes {
        let at = self.free.take(bytes);
        self.held.push(Reverse((end, at, at + bytes)));
        at
    }
}

/// Neighbouring gaps by address: first address, and one past the last.
struct Run {
    gaps: Vec<(Bytes, Bytes)>,
    /// The largest of them.
    most: Bytes,
}

impl Run {
    fn of(gaps: Vec<(Bytes, Bytes)>) -> Self {
        let most = gaps.iter().map(|(at, past)| past - at).max().unwrap_or(0);
        Run { gaps, most }
    }
}

/// Free gaps by address in short runs: the lowest that is large enough is found by the runs' largest, not by walking over
/// all gaps, of which a deep network has thousands.
struct Gaps {
    runs: Vec<Run>,
}

impl Gaps {
    fn from(floor: Bytes) -> Self {
        Gaps { runs: vec![Run::of(vec![(floor, Bytes::MAX)])] }
    }

    /// Takes the beginning of the lowest gap that is large enough.
    fn take(&mut self, bytes: Bytes) -> Bytes {
        // The last gap has no end: there is always one.
        let number = self.runs.iter().position(|run| run.most >= bytes).unwrap_or(self.runs.len() - 1);
        let run = &mut self.runs[number];
        let slot = run.gaps.iter().position(|(at, past)| past - at >= bytes).unwrap_or(run.gaps.len() - 1);
        let (at, past) = run.gaps[slot];
        if past - at > bytes {
            run.gaps[slot].0 += bytes;
        } else {
            run.gaps.remove(slot);
        }
        self.settle(number);
        at
    }

    /// Frees a stretch and joins it with the gaps that it touches.
    fn give_back(&mut self, at: Bytes, past: Bytes) {
        let later = self.runs.partition_point(|run| run.gaps[0].0 < at);
        let number = later.saturating_sub(1);
        let run = &mut self.runs[number];
        let slot = run.gaps.partition_point(|&(other, _)| other < at);
        run.gaps.insert(slot, (at, past));
        // The gap after it may be the first of the next run.
        let (after, next) = if slot + 1 < run.gaps.len() { (number, slot + 1) } else { (number + 1, 0) };
        if let Some(&(begins, ends)) =
            self.runs.get(after).and_then(|run| run.gaps.get(next)).filter(|gap| gap.0 == past)
        {
            debug_assert!(begins < ends);
            self.runs[number].gaps[slot].1 = ends;
            self.runs[after].gaps.remove(next);
        }
        let run = &mut self.runs[number];
        if slot > 0 && run.gaps[slot - 1].1 == at {
            run.gaps[slot - 1].1 = run.gaps[slot].1;
            run.gaps.remove(slot);
        }
        if after != number && after < self.runs.len() {
            self.settle(after);
        }
        self.settle(number);
    }

    /// Finds a run's largest again, after it has changed; halves it when it is long, and drops it when it is empty.
    fn settle(&mut self, number: usize) {
        if self.runs[number].gaps.is_empty() && self.runs.len() > 1 {
            self.runs.remove(number);
            return;
        }
        let run = &mut self.runs[number];
        let upper = if run.gaps.len() > RUN { run.gaps.split_off(RUN / 2) } else { Vec::new() };
        *run = Run::of(std::mem::take(&mut run.gaps));
        if !upper.is_empty() {
            self.runs.insert(number + 1, Run::of(upper));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn runs_of_gaps_take_what_a_plain_list_takes() {
        // Thousands of gaps come and go: far more than one run holds.
        let (mut gaps, mut plain) = (Gaps::from(64), BTreeMap::from([(64, Bytes::MAX)]));
        let mut held: Vec<(Bytes, Bytes)> = Vec::new();
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for turn in 0..20_000u64 {
            let fewer = if turn % 4_000 < 2_000 { 1 } else { 3 };
            if held.is_empty() || next(4) >= fewer {
                let bytes = 1 + next(50);
                let (&at, &past) = plain.iter().find(|&(at, past)| past - at >= bytes).unwrap();
                plain.remove(&at);
                if past > at + bytes {
                    plain.insert(at + bytes, past);
                }
                assert_eq!(gaps.take(bytes), at, "turn {turn}");
                held.push((at, at + bytes));
            } else {
                let (mut at, mut past) = held.swap_remove(next(held.len() as u64) as usize);
                gaps.give_back(at, past);
                past = plain.remove(&past).unwrap_or(past);
                if let Some((&before, _)) = plain.range(..at).next_back().filter(|&(_, &end)| end == at) {
                    at = before;
                }
                plain.insert(at, past);
            }
            if turn % 500 == 0 {
                let all: Vec<(Bytes, Bytes)> = gaps.runs.iter().flat_map(|run| run.gaps.iter().copied()).collect();
                assert_eq!(all, plain.iter().map(|(&at, &past)| (at, past)).collect::<Vec<_>>(), "turn {turn}");
            }
        }
        assert!(gaps.runs.len() > 1);
    }
}
