//! Seeds whose copies keep the link busy through forward and that make again only what then has no room: the least that a fluid
//! would have to.
//!
//! ```text
//!   made      ███████▆▆▆▅▅▄▄▃▂▁ bytes a second        spare: what the link is busy without
//!   link      ─────────────────── carries so many     of the spare, the cheapest are made again, as many as
//!   waiting   ▁▂▃▅▆▇██████████▇ within the room       the room demands when it demands it
//! ```
//! Room and link are taken in shares, since copies free their bytes whole and windows and addresses lose some. Not done here:
//! finding the shares.

use crate::MemoryPlan;
use crate::joint::{Fate, Joint};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use vdnn_graph::{Phase, Step};
use vdnn_tensor::Bytes;

/// A part of the room that a kernel's workspace may take without being short of it.
const COMFORT: Bytes = 4;

/// How much of the room may be filled and how much the link is expected to carry, as shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fill {
    pub room: f64,
    pub rate: f64,
}

/// The fates that fill room and link so far.
pub(super) fn filled(joint: &Joint<'_>, room: Bytes, fill: Fill) -> Vec<Fate> {
    let pass = Pass::of(joint, fill.rate);
    let room = fill.room * room as f64;
    let (spare, carried) = pass.spare();
    let again = pass.made_again(&spare, &carried, room);
    let mut fates = vec![Fate::Keep; joint.candidates.len()];
    let mut free = 0.0f64;
    for (i, fate) in fates.iter_mut().enumerate() {
        if again[i] {
            *fate = Fate::Recompute;
        } else if free < pass.starts[pass.turn] {
            free = free.max(pass.ready(i)) + pass.seconds(i);
            *fate = Fate::Offload;
        }
    }
    fates
}

/// Forward at its fastest, and the link beside it.
struct Pass<'a, 'b> {
    joint: &'b Joint<'a>,
    /// By step of the plain order: when it begins, with the end of the last one.
    starts: Vec<f64>,
    /// The first step after forward.
    turn: usize,
    /// Bytes a second.
    rate: f64,
}

impl<'a, 'b> Pass<'a, 'b> {
    fn of(joint: &'b Joint<'a>, share: f64) -> Self {
        let problem = joint.problem;
        let starts = problem.step_starts(&MemoryPlan::keep_all(problem.program));
        let forward = |step: &usize| problem.phase(Step(*step as u32)) == Phase::Forward;
        let turn = (0..problem.program.n_steps()).take_while(forward).count();
        Pass { joint, starts, turn, rate: share * joint.links.d2h }
    }

    /// When the copy of a candidate may begin.
    fn ready(&self, i: usize) -> f64 {
        let from = self.joint.candidates[i].gap.from;
        self.starts[from.step.index() + usize::from(from.writes)]
    }

    /// Seconds that its copy takes.
    fn seconds(&self, i: usize) -> f64 {
        self.joint.candidates[i].bytes as f64 / self.rate
    }

    /// The candidates that the link is busy without, and by step the bytes that it has carried before if only the others leave.
    fn spare(&self) -> (Vec<bool>, Vec<f64>) {
        let candidates = &self.joint.candidates;
        let end = self.starts[self.turn];
        let mut busy: Vec<(f64, f64)> = Vec::new();
        let mut free = 0.0f64;
        let spare = |i: usize| {
            let next = if i + 1 < candidates.len() { self.ready(i + 1) } else { end };
            let spare = candidates[i].repeatable && !candidates[i].light && free >= next;
            if !spare {
                let begin = free.max(self.ready(i));
                free = begin + self.seconds(i);
                busy.push((begin, free));
            }
            spare
        };
        let spare = (0..candidates.len()).map(spare).collect();
        // What then still waits keeps it busy after forward.
        busy.push((free.max(end), f64::INFINITY));
        let (mut first, mut before) = (0, 0.0);
        let carried = |&now: &f64| {
            while busy[first].1 <= now {
                before += busy[first].1 - busy[first].0;
                first += 1;
            }
            (before + (now - busy[first].0).max(0.0)) * self.rate
        };
        (spare, self.starts.iter().map(carried).collect())
    }

    /// Which of the spare are made again: the cheapest of what was made, whenever a step lacks room.
    fn made_again(&self, spare: &[bool], carried: &[f64], room: f64) -> Vec<bool> {
        let candidates = &self.joint.candidates;
        let ranks = self.ranks(spare);
        let demand = self.joint.demand(room as Bytes / COMFORT);
        let mut by_need: Vec<usize> = (0..candidates.len()).collect();
        by_need.sort_by_key(|&i| candidates[i].gap.to.step);
        let (mut made, mut needed) = (0, by_need.into_iter().peekable());
        let mut again = vec![false; candidates.len()];
        let mut waiting = 0.0;
        let mut cheapest = BinaryHeap::new();
        for (step, &demand) in demand.iter().enumerate() {
            while made < candidates.len() && candidates[made].gap.from.step.index() < step {
                waiting += candidates[made].bytes as f64;
                if spare[made] {
                    cheapest.push(Reverse((ranks[made], made)));
                }
                made += 1;
            }
            while let Some(i) = needed.next_if(|&i| candidates[i].gap.to.step.index() <= step) {
                waiting -= if again[i] { 0.0 } else { candidates[i].bytes as f64 };
            }
            let mut excess = demand as f64 + (waiting - carried[step]).max(0.0) - room;
            while excess > 0.0
                && let Some(Reverse((_, i))) = cheapest.pop()
            {
                if candidates[i].gap.to.step.index() <= step {
                    continue;
                }
                again[i] = true;
                waiting -= candidates[i].bytes as f64;
                excess -= candidates[i].bytes as f64;
            }
        }
        again
    }

    /// The order in which the spare are made again: fewest seconds a byte first, equals as far from each other as can be, so that
    /// chains stay short.
    fn ranks(&self, spare: &[bool]) -> Vec<usize> {
        let candidates = &self.joint.candidates;
        let price = |i: usize| candidates[i].rerun_seconds / candidates[i].bytes as f64;
        let mut order: Vec<usize> = (0..candidates.len()).filter(|&i| spare[i]).collect();
        let numbers: Vec<(usize, u32)> = order.iter().copied().zip(0u32..).collect();
        let mut spread = vec![0; candidates.len()];
        numbers.into_iter().for_each(|(i, number)| spread[i] = number.reverse_bits());
        order.sort_by(|&a, &b| price(a).total_cmp(&price(b)).then(spread[a].cmp(&spread[b])));
        let mut ranks = vec![0; candidates.len()];
        order.into_iter().enumerate().for_each(|(rank, i)| ranks[i] = rank);
        ranks
    }
}
