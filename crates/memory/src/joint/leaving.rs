//! In which gaps of an order values leave for host memory, as their fates have it.
//!
//! ```text
//!   forward ├─────────┤ backward    ├── gap 1 ──┤ near ├──── far ────┤
//!   offload                          leaves       stays   stays
//!   offload apart                    leaves       stays   leaves
//!   offload each                     leaves       leaves  leaves
//! ```
//! Not done here: windows, which say for how much of a gap the bytes are away.

use super::{Decision, Fate, Joint};
use crate::{Gap, Liveness, MemoryPlan};
use vdnn_graph::{Phase, Step, Use};

impl Joint<'_> {
    /// The gaps of what is copied, from the first use in backward on. `None` where nothing follows forward.
    pub(super) fn leaving(&self, plan: &MemoryPlan, liveness: &Liveness, decision: &Decision) -> Option<Vec<Gap>> {
        let graph = &self.problem.program.graph;
        let turns = plan.order.iter().position(|u| u.run > 0 || graph.node(u.node).phase != Phase::Forward)?;
        let turns = Step(turns as u32);
        // By run: first runs before it, the steps that patience counts.
        let first_runs = |before: &mut u32, u: &Use| {
            let now = *before;
            *before += u32::from(u.run == 0);
            Some(now)
        };
        let steps: Vec<u32> = plan.order.iter().scan(0, first_runs).collect();
        let far = |gap: &Gap| steps[gap.to.step.index()] > steps[gap.from.step.index()] + decision.patience;
        let mut gaps = Vec::new();
        for (candidate, &fate) in self.candidates.iter().zip(&decision.fates).filter(|(_, fate)| fate.copies()) {
            let root = candidate.root;
            let made_again = |gap: &Gap| plan.gaps.contains_key(&(root, plan.order[gap.to.step.index()]));
            let idle = |gap: &Gap| turns <= gap.to.step && gap.to.step.0 > gap.from.step.0 + 1 && !made_again(gap);
            let again = |gap: &Gap| fate == Fate::OffloadEach || (fate == Fate::OffloadApart && far(gap));
            let mut idle = liveness.gaps(root).filter(idle);
            gaps.extend(idle.next());
            gaps.extend(idle.filter(again));
        }
        Some(gaps)
    }
}
