//! Stretches of time in which bytes that cannot stay must pass the link, however the plan is made.
//!
//! ```text
//!   departure   end of p ├──── copies down of what is written from p on ────┤ start of t
//!   return      start of t ├ t ├── copies up, or kernels again, of what is read by n ──┤ start of n
//! ```
//! Positions on the time axis are starts (2·step) and ends (2·step + 1) of steps. A stretch's wait is what it lasts beyond
//! the least times of the kernels in it; waits of stretches that do not overlap add up.

use super::cuts::{Member, sample};
use super::kernels::{Fitting, Kernels};
use super::whole::{Gathered, Sizes};
use vdnn_sim::Links;

/// Where a step starts.
pub(super) fn start(step: usize) -> usize {
    2 * step
}

/// Where a step ends.
pub(super) fn end(step: usize) -> usize {
    2 * step + 1
}

/// A stretch of time and how long it lasts beyond its kernels.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub from: usize,
    pub to: usize,
    /// Index of the cut.
    pub cut: usize,
    /// Bytes of what the stretch is about that cannot be there at the cut beside its fastest kernel.
    pub absent: f64,
    pub kind: Kind,
}

/// What a wait depends on.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Whatever else the plan does.
    Return { seconds: f64, recomputed: f64 },
    /// On what is made again anywhere after the cut, which need not go down. Of each choice of the cut's kernel: its time
    /// beyond the fastest, and the bytes that do not pass the link during the kernels.
    Departure { choices: Vec<(f64, f64)> },
}

impl Kind {
    /// The wait's length when `made` bytes that lie across the cut are made again after it.
    pub fn seconds(&self, made: f64, links: &Links) -> f64 {
        match self {
            Kind::Return { seconds, .. } => *seconds,
            Kind::Departure { choices } => {
                let wait = |&(extra, bytes): &(f64, f64)| extra + ((bytes - made) / links.d2h).max(0.0);
                choices.iter().map(wait).min_by(f64::total_cmp).unwrap_or(0.0)
            }
        }
    }
}

/// A cut with what its waits are found from.
pub(super) struct Look<'a> {
    pub step: usize,
    /// What lies across it, by seconds a byte of making it again.
    pub members: &'a [Member],
    /// The cut's number.
    pub cut: usize,
    /// The choices of its kernel.
    pub choices: &'a [Fitting],
    pub kernels: &'a Kernels<'a>,
    pub links: &'a Links,
    pub sizes: &'a Sizes,
}

impl Look<'_> {
    /// Whether not all of so many bytes can be there beside the kernel at its fastest.
    fn lacks(&self, bytes: f64) -> bool {
        self.choices.first().is_some_and(|fastest| bytes + fastest.bytes > self.kernels.room)
    }

    /// When its members are needed or ready, the earliest first, each with the number of its size in the lower half: so many are
    /// sorted, so often, that they are one number. Empty where all of them can be there.
    fn times(&self, of: impl Fn(&Member) -> Option<usize>) -> Vec<u64> {
        if !self.lacks(self.members.iter().map(|member| member.bytes).sum()) {
            return Vec::new();
        }
        let time = |member: &Member| of(member).map(|time| (time as u64) << 32 | u64::from(member.size));
        let mut times = Vec::with_capacity(self.members.len());
        times.extend(self.members.iter().filter_map(time));
        times.sort_unstable();
        times
    }
}

/// The returns of one cut.
pub(super) fn returns(look: &Look<'_>) -> Vec<Wait> {
    let Look { step, members, cut, choices, kernels, links, sizes } = *look;
    let mut waits = Vec::new();
    sampled(&look.times(|member| member.need), sizes, |need, needed| {
        if !look.lacks(needed.bytes()) {
            return;
        }
        let lacks = |choice: &Fitting| needed.bytes() + choice.bytes - kernels.room;
        let (whole, between) = (needed.whole(), kernels.between(step + 1, need));
        let absent = |choice: &Fitting| whole.at_least(lacks(choice));
        let of_choice = |choice: &Fitting| {
            let (seconds, recomputed) = shortest(members, need, absent(choice), between, links.h2d);
            (choice.extra + seconds, recomputed)
        };
        let least = choices.iter().map(of_choice).min_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((seconds, recomputed)) = least.filter(|least| least.0 > 0.0) {
            let (absent, kind) = (absent(&choices[0]), Kind::Return { seconds, recomputed });
            waits.push(Wait { from: start(step), to: start(need), cut, absent, kind });
        }
    });
    waits
}

/// Looks at some of the times in the order given, each with all members up to it.
fn sampled(times: &[u64], sizes: &Sizes, mut look: impl FnMut(usize, &Gathered<'_>)) {
    let at_once: Vec<&[u64]> = times.chunk_by(|a, b| a >> 32 == b >> 32).collect();
    let (mut gathered, mut next) = (Gathered::of(sizes), 0);
    for at in sample(at_once.len()) {
        let more = at_once[next..=at].iter().copied().flatten();
        more.for_each(|&time| gathered.add(time as u32));
        next = at + 1;
        look((at_once[at][0] >> 32) as usize, &gathered);
    }
}

/// The least wait in which `absent` bytes, of what is read by step `need`, are made again or come up during kernels of
/// `between` seconds; with the bytes made again. Cheapest first; the two balance where kernels again take as long as the
/// link is behind.
fn shortest(members: &[Member], need: usize, absent: f64, between: f64, rate: f64) -> (f64, f64) {
    let behind = |made: f64| (absent - made) / rate - between;
    let (mut made, mut seconds) = (0.0, 0.0);
    if behind(0.0) <= 0.0 {
        return (0.0, 0.0);
    }
    for member in members.iter().filter(|member| member.need.is_some_and(|other| other <= need)) {
        if seconds + member.again >= behind(made + member.bytes) {
            let a_byte = member.again / member.bytes;
            let part = ((behind(made) - seconds) / (a_byte + 1.0 / rate)).max(0.0);
            return (seconds + part * a_byte, made + part);
        }
        made += member.bytes;
        seconds += member.again;
    }
    (seconds, made)
}

/// The departures of one cut: up to its start with the least it can hold, and through it with each choice of its kernel.
pub(super) fn departures(look: &Look<'_>) -> Vec<Wait> {
    let Look { step, cut, choices, kernels, links, sizes, .. } = *look;
    let mut readies = look.times(|member| member.ready);
    readies.reverse();
    let mut waits = Vec::new();
    sampled(&readies, sizes, |ready, since| {
        if !look.lacks(since.bytes()) {
            return;
        }
        let lacks = |choice: &Fitting| since.bytes() + choice.bytes - kernels.room;
        let (whole, hidden) = (since.whole(), links.d2h * kernels.between(ready + 1, step));
        let absent = |choice: &Fitting| whole.at_least(lacks(choice));
        let over = |choice: &Fitting| absent(choice) - hidden;
        let beside_fastest = absent(&choices[0]);
        if beside_fastest <= hidden {
            return;
        }
        let through: Vec<(f64, f64)> = choices.iter().map(|choice| (choice.extra, over(choice))).collect();
        let up_to: Vec<(f64, f64)> = choices.last().map(|least| (0.0, over(least))).into_iter().collect();
        for (to, choices) in [(start(step), up_to), (end(step), through)] {
            let kind = Kind::Departure { choices };
            if kind.seconds(0.0, links) > 0.0 {
                waits.push(Wait { from: end(ready), to, cut, absent: beside_fastest, kind });
            }
        }
    });
    waits
}
