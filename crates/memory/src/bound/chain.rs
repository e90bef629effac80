//! Waits one after the other: the longest chain of stretches of time that do not overlap.

use super::waits::{Kind, Wait};

/// All waits, by where they begin.
pub(super) struct Waits {
    pub all: Vec<Wait>,
    /// Indices of the waits that begin at each position; one position more than there are.
    from: Vec<Vec<u32>>,
}

/// The longest chain from every position on.
pub(super) struct Chain {
    pub seconds: Vec<f64>,
    /// The wait that the chain begins with, if one begins here.
    first: Vec<Option<u32>>,
}

impl Waits {
    /// Waits on the time axis of `n_steps` steps.
    pub fn new(all: Vec<Wait>, n_steps: usize) -> Self {
        let mut from = vec![Vec::new(); 2 * n_steps + 2];
        for (index, wait) in all.iter().enumerate() {
            from[wait.from].push(index as u32);
        }
        Waits { all, from }
    }

    /// The longest chain when waits are as long as `seconds` says.
    pub fn longest(&self, seconds: impl Fn(&Wait) -> f64) -> Chain {
        let n = self.from.len();
        let mut chain = Chain { seconds: vec![0.0; n], first: vec![None; n] };
        for at in (0..n - 1).rev() {
            chain.seconds[at] = chain.seconds[at + 1];
            for &index in &self.from[at] {
                let wait = &self.all[index as usize];
                let total = seconds(wait) + chain.seconds[wait.to];
                if total > chain.seconds[at] {
                    (chain.seconds[at], chain.first[at]) = (total, Some(index));
                }
            }
        }
        chain
    }

    /// The longest chain of returns alone.
    pub fn longest_of_returns(&self) -> Chain {
        self.longest(|wait| match wait.kind {
            Kind::Return { seconds, .. } => seconds,
            Kind::Departure { .. } => 0.0,
        })
    }

    /// The waits of a chain from position `at` on, in order.
    pub fn along(&self, chain: &Chain, mut at: usize) -> Vec<&Wait> {
        let mut waits = Vec::new();
        while at < chain.first.len() {
            match chain.first[at] {
                Some(index) => {
                    waits.push(&self.all[index as usize]);
                    at = self.all[index as usize].to;
                }
                None => at += 1,
            }
        }
        waits
    }
}
