//! `spill`: keep everything that fits, and offload what is largest and idle longest until the rest does.
//!
//! The paper's `conv` offloads a fixed kind of layer, however much memory there is. This one moves as few feature maps as
//! the budget asks for: none without a budget.
//!
//! ```text
//!  gaps by bytes × idle time:   ▓▓▓▓▓▓▓▓  ▓▓▓▓▓▓  ▓▓▓▓▓  ▓▓▓  ▓▓ …
//!                               └ offload the first n ┘ └ keep ┘      least n that fits
//! ```

use std::cmp::Reverse;
use vdnn::memory::Gap;
use vdnn::prelude::*;

/// Offloads the fewest feature maps that fit the budget, those with most bytes × time first.
pub struct Spill;

impl MemoryPolicy for Spill {
    fn name(&self) -> &str {
        "spill"
    }

    fn plan(&self, problem: &Problem<'_>) -> Result<MemoryPlan, Infeasible> {
        let keep = MemoryPlan::keep_all(problem.program);
        let gaps = by_bytes_and_time(problem, &keep);
        let mut least: Option<Infeasible> = None;
        for n in 0..=gaps.len() {
            match fit_to_budget(problem, self.name(), &keep, &gaps[..n]) {
                Ok(fitted) => return Ok(fitted.plan),
                Err(refusal) if least.as_ref().is_none_or(|least| refusal.floor < least.floor) => least = Some(refusal),
                Err(_) => {}
            }
        }
        Err(least.expect("at least one attempt was made"))
    }
}

/// The paper's gaps (inputs of feature layers, idle between forward and backward), the most worth moving first.
fn by_bytes_and_time(problem: &Problem<'_>, plan: &MemoryPlan) -> Vec<Gap> {
    let starts = problem.step_starts(plan); // seconds at which each step begins
    let mut gaps: Vec<Gap> = policies::feature_gaps(problem).into_iter().map(|feature| feature.gap).collect();
    gaps.sort_by_key(|gap| {
        let bytes = problem.program.aliases.storage_bytes(gap.root) as f64;
        let idle = starts[gap.to.step.index()] - starts[gap.from.step.index() + 1];
        (Reverse((bytes * idle) as u64), gap.root)
    });
    gaps
}
