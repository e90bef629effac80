//! Where a decision holds most, and what lies there idle: what makes a decision that does not fit one that does.
//!
//! ```text
//!   held  ▁▂▄▅▆▇█▇▆▅▆▇▆▄▂▁          step p, the fullest
//!   X1    ├──────────────────┤      idle at p: may leave
//!   X2         ├──p──┤              used at p: may only come from elsewhere
//! ```
//! Copies' windows are as short as can be and workspaces the least, so what is too much here is too much under any windows.
//! Not done here: choosing what leaves.

use super::{Arranged, Decision, Joint};
use crate::estimate::Pace;
use crate::stream::with_streamed;
use crate::stretch::Window;
use crate::window::tight;
use crate::{Gap, Liveness, MemoryPlan};
use std::collections::BTreeSet;
use vdnn_graph::{Step, ValueId};
use vdnn_tensor::Bytes;

/// The fullest step of a decision that does not fit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crowd {
    /// Bytes over the room there; 0 where everything fits.
    pub excess: Bytes,
    /// Bytes over the room, summed over steps.
    pub overflow: f64,
    /// Seconds of kernels and copies.
    pub seconds: f64,
    /// Candidates that are there unused.
    pub idle: Vec<usize>,
    /// Candidates that the step reads or writes.
    pub used: Vec<usize>,
    /// Candidates that something is made again for.
    pub wanted: Vec<usize>,
}

impl Joint<'_> {
    /// The fullest step of a decision within `room`. `None` where something cannot be made again.
    pub fn crowd(&self, decision: &Decision, room: Bytes) -> Option<Crowd> {
        let Arranged { plan, liveness, held, gaps } = &self.arrange_with_least_workspace(decision)?;
        let gaps = &*with_streamed(self.problem, plan, liveness, gaps);
        let windows = tight(self.problem, &Pace::of(self.problem, plan), gaps);
        let mut live = held.under(self.problem, &windows);
        let workspaces = self.problem.by_step(plan, |choice| choice.workspace);
        live.iter_mut().zip(workspaces).for_each(|(live, workspace)| *live += workspace);
        let most = live.iter().copied().max().unwrap_or(0);
        let seconds = self.seconds_without_waits(plan, gaps);
        if most <= room {
            return Some(Crowd { seconds, ..Crowd::default() });
        }
        let fullest = Step(live.iter().position(|&bytes| bytes == most).unwrap_or(0) as u32);
        let overflow = live.iter().map(|bytes| bytes.saturating_sub(room) as f64).sum();
        let there = self.there(plan, liveness, &windows, fullest);
        let (used, idle) = there.into_iter().partition(|&i| {
            let accesses = liveness.accesses(self.candidates[i].root);
            accesses.binary_search_by_key(&fullest, |access| access.step).is_ok()
        });
        Some(Crowd { excess: most - room, overflow, seconds, idle, used, wanted: self.wanted(plan, fullest) })
    }

    /// The candidates that are on the device in a step.
    fn there(&self, plan: &MemoryPlan, liveness: &Liveness, windows: &[Window], step: Step) -> Vec<usize> {
        let mut away = vec![false; self.candidates.len()];
        let open = windows.iter().filter(|window| window.release <= step && step < window.fetch);
        open.filter_map(|window| self.number(window.gap.root)).for_each(|i| away[i] = true);
        let is_there = |&i: &usize| {
            let root = self.candidates[i].root;
            let accesses = liveness.accesses(root);
            let next = accesses.partition_point(|access| access.step < step);
            let Some(ends) = accesses.get(next).map(|access| access.step) else { return false };
            let dropped = || plan.gaps.contains_key(&(root, plan.order[ends.index()]));
            ends == step || (next > 0 && !away[i] && !dropped())
        };
        (0..self.candidates.len()).filter(is_there).collect()
    }

    /// Seconds of the kernels at their fastest, and of the copies that links do not carry beside them.
    fn seconds_without_waits(&self, plan: &MemoryPlan, gaps: &[Gap]) -> f64 {
        let kernels: f64 = plan.order.iter().map(|u| self.problem.kernels.of(u.node)[0].seconds).sum();
        let copied: Bytes = gaps.iter().map(|gap| self.problem.program.aliases.storage_bytes(gap.root)).sum();
        kernels + (copied as f64 - self.carries()).max(0.0) * self.seconds_a_byte()
    }

    /// What a step makes again is wanted by the next first run: the candidates that this one reads.
    fn wanted(&self, plan: &MemoryPlan, step: Step) -> Vec<usize> {
        let runs = &plan.order[step.index()..];
        let first = runs.iter().find(|u| u.run == 0).filter(|_| runs[0].run > 0);
        let inputs = first.map_or(&[][..], |u| &self.problem.program.graph.node(u.node).inputs);
        inputs.iter().filter_map(|&value| self.number(self.problem.program.aliases.root(value))).collect()
    }

    fn number(&self, root: ValueId) -> Option<usize> {
        self.numbers[root.index()].map(|number| number as usize)
    }

    /// Bytes that the links carry beside the kernels.
    pub fn carries(&self) -> f64 {
        let links = &self.problem.links;
        (links.d2h * self.halves[0]).min(links.h2d * self.halves[1])
    }

    /// Seconds that a byte takes down and up again, at half of each: the two directions run beside each other.
    pub fn seconds_a_byte(&self) -> f64 {
        0.5 / self.problem.links.d2h + 0.5 / self.problem.links.h2d
    }

    /// By candidate: the candidates that it is made of, as far back as one is met each way.
    pub fn sources(&self) -> Vec<Vec<usize>> {
        (0..self.candidates.len()).map(|i| self.sources_of(i)).collect()
    }

    fn sources_of(&self, i: usize) -> Vec<usize> {
        let (graph, aliases) = (&self.problem.program.graph, &self.problem.program.aliases);
        let (mut found, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut stack = vec![self.candidates[i].root];
        while let Some(node) = stack.pop().map(|value| graph.value(value).producer) {
            for &input in node.map_or(&[][..], |node| &graph.node(node).inputs) {
                match self.number(aliases.root(input)) {
                    Some(other) if other != i => {
                        found.insert(other);
                    }
                    _ if seen.insert(input) => stack.push(input),
                    _ => {}
                }
            }
        }
        found.into_iter().collect()
    }
}
