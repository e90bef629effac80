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
use super::whole::Sizes;
use crate::{Liveness, Problem};

/// Steps looked at times steps of the program, about. Programs of up to 2,000 steps are looked at in every step.
const WORK: usize = 4_000_000;

/// One storage across a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub bytes: f64,
    /// The number of its size among all.
    pub size: u32,
    /// Its first write, or for a parameter or state the write of what is in it; `None` when that was there from the start.
    pub ready: Option<usize>,
    /// The next step that reads what is in it; `None` when only the next iteration does.
    pub need: Option<usize>,
    /// Least time of making again what that step reads.
    pub again: f64,
}

/// What the storages across one step cost.
pub(super) struct Across {
    pub step: usize,
    /// Bytes, and least time of making them again, by seconds a byte of that.
    prices: Vec<(f64, f64)>,
}

/// What lies across steps, one step after the other: a value joins when it is made and goes when nothing reads it any more, so
/// that no step looks at all values, and no step sorts them.
pub(super) struct Sweep<'a> {
    problem: &'a Problem<'a>,
    lives: &'a Lives,
    /// The sizes that storages have.
    pub sizes: Sizes,
    /// Lives of storages with bytes, in the order in which values are made, and how many were made before the step.
    made: Vec<u32>,
    begun: usize,
    /// By life: its place among all by seconds a byte of making it again, and how many of its reads lie behind.
    rank: Vec<u32>,
    read: Vec<u32>,
    /// By life: the number of its storage's size.
    size: Vec<u32>,
    /// Lives that go on across the step, by rank.
    going: Vec<u32>,
    /// By root: the read that comes next and its life, of the values that the storage holds; [`NOTHING`] if there is none.
    next: Vec<(usize, u32)>,
}

/// No life.
const NOTHING: (usize, u32) = (usize::MAX, u32::MAX);

impl<'a> Sweep<'a> {
    pub fn new(problem: &'a Problem<'a>, lives: &'a Lives) -> Self {
        let bytes = |i: u32| problem.program.aliases.storage_bytes(lives.values[i as usize].root);
        let mut made: Vec<u32> = (0..lives.values.len() as u32).filter(|&i| bytes(i) > 0).collect();
        let sizes = Sizes::of(made.iter().map(|&i| bytes(i)));
        made.sort_by_key(|&i| lives.values[i as usize].root);
        cheapest_first(&mut made, |i| (lives.values[i as usize].again, bytes(i) as f64));
        let mut rank = vec![0; lives.values.len()];
        (0..).zip(&made).for_each(|(at, &i)| rank[i as usize] = at);
        made.sort_by_key(|&i| lives.values[i as usize].made);
        let (read, next) = (vec![0; lives.values.len()], vec![NOTHING; problem.program.graph.values().len()]);
        let mut size = vec![0; lives.values.len()];
        made.iter().for_each(|&i| size[i as usize] = sizes.number(bytes(i)));
        Sweep { problem, lives, sizes, made, begun: 0, rank, read, size, going: Vec::new(), next }
    }

    /// Makes `members` what lies across a step, by seconds a byte of making it again. Each step is later than the one before.
    pub fn across(&mut self, step: usize, members: &mut Vec<Member>) {
        let lives = &self.lives.values;
        while let Some(&i) = self.made.get(self.begun)
            && lives[i as usize].made.is_none_or(|made| made < step)
        {
            let at = self.going.partition_point(|&other| self.rank[other as usize] < self.rank[i as usize]);
            self.going.insert(at, i);
            self.begun += 1;
        }
        let (read, next) = (&mut self.read, &mut self.next);
        self.going.retain(|&i| {
            let (life, read) = (&lives[i as usize], &mut read[i as usize]);
            *read += life.reads[*read as usize..].iter().take_while(|&&read| read <= step).count() as u32;
            let need = life.reads.get(*read as usize).copied();
            let goes_on = need.is_some() || life.stays;
            let soonest = &mut next[life.root.index()];
            if goes_on {
                *soonest = (*soonest).min((need.unwrap_or(usize::MAX), i));
            }
            goes_on
        });
        for root in self.problem.operands(self.problem.program.order[step]) {
            self.next[root.index()] = NOTHING;
        }
        members.clear();
        for &i in &self.going {
            let life = &lives[i as usize];
            let (need, soonest) = self.next[life.root.index()];
            if soonest == i {
                let own = self.problem.program.aliases.storage_bytes(life.root);
                let (size, need) = (self.size[i as usize], Some(need).filter(|&need| need != usize::MAX));
                members.push(Member { bytes: own as f64, size, ready: life.ready, need, again: life.again });
            }
        }
        self.going.iter().for_each(|&i| self.next[lives[i as usize].root.index()] = NOTHING);
    }
}

impl Across {
    pub fn of(step: usize, members: &[Member]) -> Self {
        Across { step, prices: members.iter().map(|member| (member.bytes, member.again)).collect() }
    }

    /// Most bytes that can be made again in `seconds`.
    pub fn made_in(&self, seconds: f64) -> f64 {
        let (mut made, mut left) = (0.0, seconds);
        for &(bytes, again) in &self.prices {
            if again > left {
                return made + bytes * (left / again);
            }
            left -= again;
            made += bytes;
        }
        made
    }

    /// Least time of making `bytes` again.
    pub fn seconds_of(&self, bytes: f64) -> f64 {
        let (mut seconds, mut left) = (0.0, bytes);
        for &(bytes, again) in &self.prices {
            if bytes > left {
                return seconds + again * (left / bytes).max(0.0);
            }
            left -= bytes;
            seconds += again;
        }
        seconds
    }

    /// Time of making everything again for which that is quicker than a link of this rate.
    pub fn quicker_than(&self, rate: f64) -> f64 {
        self.prices.iter().take_while(|(bytes, again)| again * rate <= *bytes).map(|(_, again)| again).sum()
    }
}

/// Least seconds a byte first. By quotients: where many are alike, products rounded for each pair are no order.
fn cheapest_first(numbers: &mut [u32], again_and_bytes: impl Fn(u32) -> (f64, f64)) {
    let price = |number: u32| {
        let (again, bytes) = again_and_bytes(number);
        again / bytes
    };
    numbers.sort_by(|&a, &b| price(a).total_cmp(&price(b)));
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
            let member = |i: u32| {
                let bytes = (1 + u64::from(i) * 7_919 % 4_001) as f64;
                (if i < 200 { bytes / (4.8e12 / f64::from(rate)) } else { f64::INFINITY }, bytes)
            };
            let mut members: Vec<u32> = (0..=200).rev().collect();
            cheapest_first(&mut members, member);
            let price = |&i: &u32| member(i).0 / member(i).1;
            assert!(members.is_sorted_by(|a, b| price(a) <= price(b)));
            assert_eq!(members[200], 200);
        }
    }
}
