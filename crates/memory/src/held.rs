//! Bytes held on the device at each step, as differences from step to step: windows are taken off what is held without
//! them, so that a search need not cut every storage's life again for each choice of windows.

use crate::stretch::{Window, check_drop};
use crate::takeover::taken_over;
use crate::{Gap, Liveness, MemoryPlan, Problem};
use vdnn_graph::{Use, ValueId};
use vdnn_tensor::Bytes;

/// Bytes held while nothing leaves but what a plan drops: homes and workspaces not counted.
///
/// Differences and sums wrap: only the sums, which are counts of bytes, are looked at.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    change: Vec<Bytes>,
}

impl Held {
    /// Those of a plan that decides nothing but drops. `None` when its drops are not legal.
    pub fn of(problem: &Problem<'_>, plan: &MemoryPlan, liveness: &Liveness) -> Option<Self> {
        let mut change = vec![0; plan.order.len() + 1];
        let bytes = |root: ValueId| problem.program.aliases.storage_bytes(root);
        for &root in liveness.roots() {
            if let [first, .., last] | [first @ last] = liveness.accesses(root) {
                add(&mut change, first.step.index()..last.step.index() + 1, bytes(root));
            }
        }
        let decided: Vec<(ValueId, Use)> = plan.gaps.keys().copied().collect();
        for own in decided.chunk_by(|one, other| one.0 == other.0) {
            let root = own[0].0;
            let ends = |gap: &Gap| own.binary_search(&(root, plan.order[gap.to.step.index()])).is_ok();
            for gap in liveness.gaps(root).filter(ends) {
                check_drop(problem, &gap).ok()?;
                add(&mut change, gap.from.step.index() + 1..gap.to.step.index(), bytes(root).wrapping_neg());
            }
        }
        for (step, pair) in taken_over(plan, liveness) {
            add(&mut change, step.index()..step.index() + 1, bytes(pair.to).wrapping_neg());
        }
        Some(Held { change })
    }

    /// Bytes held at each step under `windows` of the plan's gaps.
    pub fn under(&self, problem: &Problem<'_>, windows: &[Window]) -> Vec<Bytes> {
        let mut change = self.change.clone();
        for window in windows.iter().filter(|window| !window.is_empty()) {
            let bytes = problem.program.aliases.storage_bytes(window.gap.root);
            if window.gap.wraps() {
                // Undecided it is there from its first use to its last.
                add(&mut change, window.fetch.index()..window.gap.to.step.index(), bytes);
                add(&mut change, window.gap.from.step.index() + 1..window.release.index(), bytes);
            } else {
                add(&mut change, window.release.index()..window.fetch.index(), bytes.wrapping_neg());
            }
        }
        change.pop();
        let mut live: Bytes = 0;
        for bytes in &mut change {
            live = live.wrapping_add(*bytes);
            *bytes = live;
        }
        change
    }
}

/// Adds `bytes` in the steps of a range.
fn add(change: &mut [Bytes], steps: std::ops::Range<usize>, bytes: Bytes) {
    change[steps.start] = change[steps.start].wrapping_add(bytes);
    change[steps.end] = change[steps.end].wrapping_sub(bytes);
}
