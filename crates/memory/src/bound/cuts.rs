//! What lies across a step: the storages that are written before it, not used by it, and read after it. Parameters and
//! states that may stream lie across all steps that do not use them: read next in this iteration or the next one.
//!
//! ```text
//!             made                 t                    need
//!   X      ───▓▓▓──────────────────┼─────────────────────▓▓▓──
//!                └ ready           │ X need not be there here: its bytes go down and up,
//!                                  │ or its kernels run again between t and its need
//! ```

use super::lives::Lives;
use crate::{Liveness, Problem};

/// Steps looked at times steps of the program, about. Programs of up to 2,000 steps are looked at in every step.
const WORK: usize = 4_000_000;

/// One storage across a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub bytes: f64,
    /// Its first write, or for a parameter or state the write of what is in it; `None` when that was there from the start.
    pub ready: Option<usize>,
    /// The next step that reads what is in it; `None` when only the next iteration does.
    pub need: Option<usize>,
    /// Least time of making again what that step reads.
    pub again: f64,
}

/// The storages across one step.
pub(super) struct Across {
    pub step: usize,
    /// By seconds a byte of making them again.
    pub members: Vec<Member>,
    pub bytes: f64,
}

impl Across {
    pub fn of(problem: &Problem<'_>, lives: &Lives, step: usize) -> Self {
        let mut found: Vec<Option<Member>> = vec![None; problem.program.graph.values().len()];
        for life in lives.values.iter().filter(|life| life.made.is_none_or(|made| made < step)) {
            let need = life.reads.get(life.reads.partition_point(|&read| read <= step)).copied();
            if need.is_none() && !life.stays {
                continue;
            }
            let slot = &mut found[life.root.index()];
            let sooner = |member: &Member| need.is_some_and(|need| member.need.is_none_or(|other| need < other));
            if slot.as_ref().is_none_or(sooner) {
                let bytes = problem.program.aliases.storage_bytes(life.root) as f64;
                *slot = Some(Member { bytes, ready: life.ready, need, again: life.again });
            }
        }
        for root in problem.operands(problem.program.order[step]) {
            found[root.index()] = None;
        }
        let mut members: Vec<Member> = found.into_iter().flatten().filter(|member| member.bytes > 0.0).collect();
        sort(&mut members);
        let bytes = members.iter().map(|member| member.bytes).sum();
        Across { step, members, bytes }
    }

    /// Most bytes that can be made again in `seconds`.
    pub fn made_in(&self, seconds: f64) -> f64 {
        let (mut bytes, mut left) = (0.0, seconds);
        for member in &self.members {
            if member.again > left {
                return bytes + member.bytes * (left / member.again);
            }
            left -= member.again;
            bytes += member.bytes;
        }
        bytes
    }

    /// Least time of making `bytes` again.
    pub fn seconds_of(&self, bytes: f64) -> f64 {
        let (mut seconds, mut left) = (0.0, bytes);
        for member in &self.members {
            if member.bytes > left {
                return seconds + member.again * (left / member.bytes).max(0.0);
            }
            left -= member.bytes;
            seconds += member.again;
        }
        seconds
    }

    /// Time of making everything again for which that is quicker than a link of this rate.
    pub fn quicker_than(&self, rate: f64) -> f64 {
        self.members.iter().take_while(|m| m.again * rate <= m.bytes).map(|m| m.again).sum()
    }
}

/// Least seconds a byte first. By quotients: where many are alike, products rounded for each pair are no order.
fn sort(members: &mut [Member]) {
    members.sort_by(|a, b| (a.again / a.bytes).total_cmp(&(b.again / b.bytes)));
}

/// The steps looked at: all, or of each stretch of steps the one that would hold most if everything stayed. The budget
/// has no say, so that a larger one is never looked at more closely.
pub(super) fn steps(problem: &Problem<'_>) -> Vec<usize> {
    let n = problem.program.n_steps();
    let stretch = (n * n).div_ceil(WORK).max(1);
    let held = held(problem, &problem.liveness());
    let heaviest =
        |first: usize| (first..(first + stretch).min(n)).max_by(|&a, &b| held[a].total_cmp(&held[b]).then(b.cmp(&a)));
    (0..n).step_by(stretch).filter_map(heaviest).collect()
}

/// Bytes between their first and last use at each step.
fn held(problem: &Problem<'_>, liveness: &Liveness) -> Vec<f64> {
    let mut change = vec![0.0; problem.program.n_steps() + 1];
    for &root in liveness.roots() {
        let accesses = liveness.accesses(root);
        let bytes = problem.program.aliases.storage_bytes(root) as f64;
        change[accesses[0].step.index()] += bytes;
        change[accesses[accesses.len() - 1].step.index() + 1] -= bytes;
    }
    let mut held = 0.0;
    let sum = |delta: &f64| {
        held += delta;
        held
    };
    change.iter().map(sum).collect()
}

/// Some of many indices, from the first on: the nearest all, further ones ever sparser, the last always.
pub(super) fn sample(n: usize) -> impl Iterator<Item = usize> {
    let next = move |&i: &usize| (i + 1 < n).then(|| (i + 1).max(i + i / 4).min(n - 1));
    std::iter::successors((n > 0).then_some(0), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As of kernels that are as quick as memory: seconds in proportion to bytes, but for how they are rounded.
    #[test]
    fn members_of_about_the_same_seconds_a_byte_have_an_order() {
        for rate in 1..400 {
            let member = |i: u64| {
                let bytes = (1 + i * 7_919 % 4_001) as f64;
                Member { bytes, ready: None, need: None, again: bytes / (4.8e12 / f64::from(rate)) }
            };
            let endless = Member { again: f64::INFINITY, ..member(0) };
            let mut members: Vec<Member> = (0..200).map(member).chain([endless]).collect();
            sort(&mut members);
            assert!(members.is_sorted_by(|a, b| a.again / a.bytes <= b.again / b.bytes));
            assert_eq!(members[200].again, f64::INFINITY);
        }
    }
}
