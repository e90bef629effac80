//! Stretches of time in which bytes that cannot stay must pass the link, however the plan is made.
//!
//! ```text
//!   departure   end of p ├──── copies down of what is written from p on ────┤ start of t
//!   return      start of t ├ t ├── copies up, or kernels again, of what is read by n ──┤ start of n
//! ```
//! Positions on the time axis are starts (2·step) and ends (2·step + 1) of steps. A stretch's wait is what it lasts beyond
//! the least times of the kernels in it; waits of stretches that do not overlap add up.

use super::cuts::{Across, Member, sample};
use super::kernels::{Fitting, Kernels};
use super::whole::Whole;
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

/// The returns of one cut.
pub(super) fn returns(across: &Across, kernels: &Kernels<'_>, links: &Links, cut: usize) -> Vec<Wait> {
    let step = across.step;
    let choices = kernels.fitting(step);
    let mut needs: Vec<usize> = across.members.iter().filter_map(|member| member.need).collect();
    needs.sort_unstable();
    needs.dedup();
    let mut waits = Vec::new();
    for need in sample(needs.len()).map(|i| needs[i]) {
        let needed = |member: &&Member| member.need.is_some_and(|other| other <= need);
        let later: f64 = across.members.iter().filter(|m| !needed(m)).map(|m| m.bytes).sum();
        let kernels_between = kernels.between(step + 1, need);
        let whole = Whole::of(across.members.iter().filter(needed));
        let absent = |choice: &Fitting| whole.at_least(across.bytes - later + choice.bytes - kernels.room);
        let of_choice = |choice: &Fitting| {
            let (seconds, recomputed) = shortest(across, need, absent(choice), kernels_between, links.h2d);
            (choice.extra + seconds, recomputed)
        };
        let absent = choices.first().map_or(0.0, absent);
        let least = choices.iter().map(of_choice).min_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((seconds, recomputed)) = least.filter(|least| least.0 > 0.0) {
            let kind = Kind::Return { seconds, recomputed };
            waits.push(Wait { from: start(step), to: start(need), cut, absent, kind });
        }
    }
    waits
}

/// The least wait in which `absent` bytes, of what is read by step `need`, are made again or come up during kernels of
/// `between` seconds; with the bytes made again. Cheapest first; the two balance where kernels again take as long as the
/// link is behind.
fn shortest(across: &Across, need: usize, absent: f64, between: f64, rate: f64) -> (f64, f64) {
    let behind = |made: f64| (absent - made) / rate - between;
    let (mut made, mut seconds) = (0.0, 0.0);
    if behind(0.0) <= 0.0 {
        return (0.0, 0.0);
    }
    for member in across.members.iter().filter(|member| member.need.is_some_and(|other| other <= need)) {
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
pub(super) fn departures(across: &Across, kernels: &Kernels<'_>, links: &Links, cut: usize) -> Vec<Wait> {
    let step = across.step;
    let choices = kernels.fitting(step);
    let mut readies: Vec<usize> = across.members.iter().filter_map(|member| member.ready).collect();
    readies.sort_unstable_by(|a, b| b.cmp(a));
    readies.dedup();
    let mut waits = Vec::new();
    for ready in sample(readies.len()).map(|i| readies[i]) {
        let since = |member: &&Member| member.ready.is_some_and(|other| other >= ready);
        let later: f64 = across.members.iter().filter(since).map(|m| m.bytes).sum();
        let hidden = links.d2h * kernels.between(ready + 1, step);
        let whole = Whole::of(across.members.iter().filter(since));
        let absent = |choice: &Fitting| whole.at_least(later + choice.bytes - kernels.room);
        let over = |choice: &Fitting| absent(choice) - hidden;
        let beside_fastest = choices.first().map_or(0.0, absent);
        let through: Vec<(f64, f64)> = choices.iter().map(|choice| (choice.extra, over(choice))).collect();
        let up_to: Vec<(f64, f64)> = choices.last().map(|least| (0.0, over(least))).into_iter().collect();
        for (to, choices) in [(start(step), up_to), (end(step), through)] {
            let kind = Kind::Departure { choices };
            if kind.seconds(0.0, links) > 0.0 {
                waits.push(Wait { from: end(ready), to, cut, absent: beside_fastest, kind });
            }
        }
    }
    waits
}
