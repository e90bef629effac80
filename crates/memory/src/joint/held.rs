//! Bytes that every plan of some fates holds, step by step of the plain order: what says of most decisions near the floor that
//! they do not fit, before an order is made of them.
//!
//! ```text
//!   X1    ▓▓▓─────────────────▓▓▓      kept: there from its first use to its last
//!   X2    ▓▓▓─ ─ ─ ▓▓        ▓▓▓      not kept: there to its last use in forward, and in its uses
//! ```
//! At the first run of a step its operands and its least workspace are there besides, but for bytes that an output may take over.
//! Not counted: what is made again or under
//! way, and what a later run of a node with several outputs may bring along.

use super::{Candidate, Fate, Joint};
use crate::algorithms::fastest_within;
use crate::takeover::{most_bytes, undivided};
use crate::{Liveness, Problem};
use std::collections::BTreeMap;
use std::ops::Range;
use vdnn_graph::{NodeId, Phase, ValueId};
use vdnn_tensor::Bytes;

/// By step of the plain order, as differences that wrap: only sums, which are counts of bytes, are looked at.
pub(super) struct HeldAnyway {
    /// Whatever the fates.
    change: Vec<Bytes>,
    /// By candidate: the steps between its uses in which it is there besides when it is kept, and its bytes.
    kept: Vec<(Vec<Range<u32>>, Bytes)>,
}

impl HeldAnyway {
    /// With the choices of the `leanest` workspaces.
    pub fn of(
        problem: &Problem<'_>,
        liveness: &Liveness,
        candidates: &[Candidate],
        leanest: &BTreeMap<NodeId, usize>,
    ) -> Self {
        let mut held = HeldAnyway { change: vec![0; problem.program.n_steps() + 1], kept: Vec::new() };
        let mut last_in_forward = vec![None; problem.program.graph.values().len()];
        for candidate in candidates {
            last_in_forward[candidate.root.index()] = Some(candidate.gap.from.step);
        }
        for &root in liveness.roots() {
            let bytes = problem.program.aliases.storage_bytes(root);
            let stays = !brought_along(problem, root) && liveness.wrap(root).is_none();
            liveness.accesses(root).iter().for_each(|access| held.add(access.step.0..access.step.0 + 1, bytes));
            for gap in liveness.gaps(root).filter(|_| stays) {
                if last_in_forward[root.index()].is_none_or(|last| gap.to.step <= last) {
                    held.add(gap.from.step.0 + 1..gap.to.step.0, bytes);
                }
            }
        }
        let undivided = undivided(problem.program);
        for (step, id) in (0..).zip(&problem.program.order) {
            let choice = problem.kernels.get(*id, leanest[id]);
            let taken = most_bytes(problem.program, problem.program.graph.node(*id), &undivided);
            held.add(step..step + 1, choice.map_or(0, |choice| choice.workspace).wrapping_sub(taken));
        }
        let between = |candidate: &Candidate| {
            let stays = !brought_along(problem, candidate.root);
            let later = liveness.gaps(candidate.root).filter(|gap| stays && gap.to.step > candidate.gap.from.step);
            (later.map(|gap| gap.from.step.0 + 1..gap.to.step.0).collect(), candidate.bytes)
        };
        held.kept = candidates.iter().map(between).collect();
        held
    }

    fn add(&mut self, steps: Range<u32>, bytes: Bytes) {
        add(&mut self.change, &steps, bytes);
    }

    fn anyway(&self) -> Vec<Bytes> {
        let sum = |held: &mut Bytes, change: &Bytes| {
            *held = held.wrapping_add(*change);
            Some(*held)
        };
        self.change[..self.change.len() - 1].iter().scan(0, sum).collect()
    }

    /// Whether fates hold more than `room` bytes in some step.
    pub fn exceeds(&self, fates: &[Fate], room: Bytes) -> bool {
        let mut change = self.change.clone();
        for (steps, bytes) in self.kept.iter().zip(fates).filter(|(_, fate)| **fate == Fate::Keep).map(|(kept, _)| kept)
        {
            steps.iter().for_each(|steps| add(&mut change, steps, *bytes));
        }
        let mut held: Bytes = 0;
        change.iter().any(|change| {
            held = held.wrapping_add(*change);
            held > room
        })
    }
}

impl Joint<'_> {
    /// By step of the plain order: bytes that it holds whatever the fates, with the workspace of the fastest choice that wants no
    /// more than `workspace`.
    pub fn demand(&self, workspace: Bytes) -> Vec<Bytes> {
        let mut demand = self.held.anyway();
        for (demand, &node) in demand.iter_mut().zip(&self.problem.program.order) {
            let of = |number: usize| self.problem.kernels.get(node, number).map_or(0, |choice| choice.workspace);
            let least = of(self.leanest[&node]);
            let more = fastest_within(self.problem, node, self.offered, workspace).map_or(least, of);
            *demand += more.saturating_sub(least);
        }
        demand
    }
}

/// Adds `bytes` in the steps of a range.
fn add(change: &mut [Bytes], steps: &Range<u32>, bytes: Bytes) {
    let (start, end) = (steps.start as usize, steps.end as usize);
    change[start] = change[start].wrapping_add(bytes);
    change[end] = change[end].wrapping_sub(bytes);
}

/// Whether a storage may be written again, though it is there, because another output of a node in forward is.
fn brought_along(problem: &Problem<'_>, root: ValueId) -> bool {
    let graph = &problem.program.graph;
    let several = |id| {
        let node = graph.node(id);
        node.phase == Phase::Forward && node.outputs.len() > 1
    };
    graph.value(root).producer.is_some_and(several)
}
