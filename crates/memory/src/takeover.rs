//! Storages that begin in the bytes of another one: where a kernel may overwrite what it reads for the last time.
//!
//! ```text
//!   in every order                x ──relu──► y            one storage, by the program's aliases
//!   in an order that makes        x  ▓▓▓▓▓▓┐               x is read by its gradient as well, but forgotten before
//!   x again later                 y        └▓▓▓▓▓▓▓        and made again for it: y takes x's bytes over
//!                                 x'                ▓▓▓
//! ```
//! Which pairs may is a fact of the program (`Op::in_place`); whether x ends there is one of the plan. Not done here: deciding
//! that it does.

use crate::homes::is_home;
use crate::stretch::Stretch;
use crate::{Liveness, MemoryPlan, Residency};
use vdnn_graph::{Node, Program, Step, ValueId};
use vdnn_tensor::Bytes;

/// A storage and the one that may take its bytes over when a node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Takeover {
    pub from: ValueId,
    pub to: ValueId,
}

/// By root: whether all values of the storage fill it. Where one is a part, both storages would have to be cut alike.
pub(crate) fn undivided(program: &Program) -> Vec<bool> {
    let mut undivided = vec![true; program.graph.values().len()];
    for value in program.graph.value_ids() {
        let place = program.aliases.location(value);
        let fills = place.rows == 1 && place.row_bytes == program.aliases.storage_bytes(place.root);
        undivided[place.root.index()] &= fills;
    }
    undivided
}

/// The pairs of a node, those that are to be tried first at the beginning. An input that is read twice is in none.
pub(crate) fn takeovers<'a>(
    program: &'a Program,
    node: &'a Node,
    undivided: &'a [bool],
) -> impl Iterator<Item = Takeover> + 'a {
    let root = |id: ValueId| program.aliases.root(id);
    let times =
        move |wanted: ValueId| node.inputs.iter().chain(&node.outputs).filter(|&&value| root(value) == wanted).count();
    let pair = move |&(input, output): &(usize, usize)| {
        let (from, to) = (root(*node.inputs.get(input)?), root(*node.outputs.get(output)?));
        Some(Takeover { from, to })
    };
    let alike = move |pair: &Takeover| {
        let [from, to] = [pair.from, pair.to].map(|root| program.graph.value(root));
        let same = from.ty.rows() == to.ty.rows() && from.ty.bytes() == to.ty.bytes();
        let whole = undivided[pair.from.index()] && undivided[pair.to.index()];
        same && whole && !is_home(from.role) && !is_home(to.role)
    };
    let single = move |pair: &Takeover| times(pair.from) == 1 && times(pair.to) == 1;
    node.op.in_place().iter().filter_map(pair).filter(move |pair| alike(pair) && single(pair))
}

/// The most bytes that a node's outputs may take over from its inputs.
pub(crate) fn most_bytes(program: &Program, node: &Node, undivided: &[bool]) -> Bytes {
    let mut taken: Vec<ValueId> = takeovers(program, node, undivided).map(|pair| pair.to).collect();
    taken.sort_unstable();
    taken.dedup();
    taken.into_iter().map(|root| program.aliases.storage_bytes(root)).sum()
}

/// Where a plan has a storage take over another one: what is written there for the first time, or anew, and what is read for the last
/// time or before it is written anew. Each takes over one at most. What leaves for host memory does not end so: its copy may still be
/// under way when the kernel writes.
pub(crate) fn taken_over(plan: &MemoryPlan, liveness: &Liveness) -> Vec<(Step, Takeover)> {
    let dropped = |root: ValueId, step: Step| {
        plan.gaps.get(&(root, plan.order[step.index()])).is_some_and(|residency| *residency == Residency::Drop)
    };
    let begins = |root: ValueId, step: Step| liveness.accesses(root)[0].step == step || dropped(root, step);
    let ends = |root: ValueId, step: Step| {
        let accesses = liveness.accesses(root);
        let next = accesses.partition_point(|access| access.step <= step);
        accesses.get(next).is_none_or(|next| dropped(root, next.step))
    };
    let mut taken: Vec<(Step, Takeover)> = Vec::new();
    for &(step, pair) in liveness.takeovers() {
        let same_step = taken.iter().rev().take_while(|other| other.0 == step);
        let free = !same_step.map(|other| other.1).any(|other| other.from == pair.from || other.to == pair.to);
        if free && begins(pair.to, step) && ends(pair.from, step) {
            taken.push((step, pair));
        }
    }
    taken
}

/// Has stretches lie in the bytes of those that they take over. `stretches` are in the order of their roots, and in time order within
/// one.
pub(crate) fn take_over(stretches: &mut [Stretch], pairs: &[(Step, Takeover)]) {
    let held = |stretches: &[Stretch], root: ValueId, step: Step| {
        let after = stretches.partition_point(|stretch| (stretch.root, stretch.start) <= (root, step));
        after.checked_sub(1).filter(|&at| stretches[at].root == root)
    };
    for &(step, Takeover { from, to }) in pairs {
        let both = held(stretches, from, step).zip(held(stretches, to, step));
        if let Some((from, to)) = both {
            (stretches[from].next, stretches[to].over) = (Some(to as u32), Some(from as u32));
        }
    }
}
