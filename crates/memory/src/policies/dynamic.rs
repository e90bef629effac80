//! `dyn`: the paper's passes, in order; the first that fits wins.
//!
//! ```text
//!  1 all(m)   does it fit? else untrainable         4 all(p)
//!  2 none(p)                                        5 conv, greedy algorithms
//!  3 conv(p)                                        6 all, greedy algorithms      else all(m)
//! ```
//! The greedy walk starts each kernel at its fastest algorithm and steps down to the next smaller workspace while the step
//! does not fit. Where (m) allows some workspace, pass 1 asks for `all` with the least workspace of each kernel instead, so
//! that no budget is refused for speed. The floor is the least of passes 1 to 4: in networks so small that moving costs more
//! memory than keeping, a later pass may fit where the first does not.

use super::{Algorithms, MemoryPolicy, all, conv};
use crate::algorithms::{Offered, choose_beside, least_workspace};
use crate::estimate::estimated_seconds;
use crate::fit::fits;
use crate::held::Held;
use crate::{Gap, Infeasible, MemoryPlan, Problem, fit_to_budget};
use vdnn_tensor::Bytes;

/// Walks of the greedy pass, each leaving more room for fragmentation.
const WALKS: usize = 4;

/// Shares of the room that a walk tries to leave free for copies under way.
const RESERVES: [f64; 6] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5];

/// The paper's dynamic policy.
#[derive(Clone, Copy, Debug)]
pub struct Dynamic;

impl MemoryPolicy for Dynamic {
    fn name(&self) -> &str {
        "dyn"
    }

    fn plan(&self, problem: &Problem<'_>) -> Result<MemoryPlan, Infeasible> {
        found(problem).ok_or_else(|| refusal(problem))
    }
}

/// The plan, if there is one.
pub(super) fn found(problem: &Problem<'_>) -> Option<MemoryPlan> {
    let fastest = Algorithms::PerformanceOptimal.plan(problem);
    let (convolutions, features) = (conv::gaps(problem), all::gaps(problem));
    let fixed = [&[][..], &convolutions, &features].into_iter().find_map(|gaps| fits(problem, &fastest, gaps));
    if fixed.is_some() {
        return fixed;
    }
    let memory_optimal = fits(problem, &Algorithms::MemoryOptimal.plan(problem), &features);
    let last_resort = memory_optimal.or_else(|| fits(problem, &leanest(problem), &features))?;
    let greedy = [convolutions, features].iter().find_map(|gaps| greedy_plan(problem, gaps));
    Some(greedy.unwrap_or(last_resort))
}

/// Why there is none: the least of the floors of the passes with one choice of algorithms.
pub(super) fn refusal(problem: &Problem<'_>) -> Infeasible {
    let features = all::gaps(problem);
    let refused = |plan: &MemoryPlan, gaps: &[Gap]| fit_to_budget(problem, "dyn", plan, gaps).err();
    let fastest = Algorithms::PerformanceOptimal.plan(problem);
    let floors = [
        refused(&leanest(problem), &features),
        refused(&fastest, &[]),
        refused(&fastest, &conv::gaps(problem)),
        refused(&fastest, &features),
        refused(&Algorithms::MemoryOptimal.plan(problem), &features),
    ];
    let least = floors.into_iter().flatten().reduce(|a, b| if b.floor < a.floor { b } else { a });
    least.unwrap_or_else(|| panic!("dyn refuses what one of its passes fits"))
}

/// Everything kept, with the least workspace of each kernel.
fn leanest(problem: &Problem<'_>) -> MemoryPlan {
    MemoryPlan { algos: least_workspace(problem, Offered::Whole), ..MemoryPlan::keep_all(problem.program) }
}

/// Offloads `gaps` and gives each kernel the fastest algorithm whose workspace fits beside what its step holds. Of walks
/// that leave more or less room for copies under way, the one with the shortest estimated iteration.
fn greedy_plan(problem: &Problem<'_>, gaps: &[Gap]) -> Option<MemoryPlan> {
    let candidates = RESERVES.iter().filter_map(|&reserve| greedy_plan_beside(problem, gaps, reserve));
    let timed = candidates.map(|plan| (estimated_seconds(problem, &plan), plan));
    timed.reduce(|best, next| if next.0 < best.0 { next } else { best }).map(|(_, plan)| plan)
}

fn greedy_plan_beside(problem: &Problem<'_>, gaps: &[Gap], reserve: f64) -> Option<MemoryPlan> {
    let budget = problem.budgets.device?;
    let mut room = budget.checked_sub(problem.homes.extent())?;
    let (kept, liveness) = (MemoryPlan::keep_all(problem.program), problem.liveness());
    let held = Held::of(problem, &kept, &liveness)?;
    for _ in 0..WALKS {
        let reserve = (room as f64 * reserve) as Bytes;
        let plan = choose_beside(problem, &kept, (&liveness, &held), gaps, (room, reserve), Offered::Whole)?;
        match fit_to_budget(problem, "dyn", &plan, gaps) {
            Ok(fitted) => return Some(fitted.plan),
            Err(refusal) => room = room.checked_sub(refusal.floor - budget)?,
        }
    }
    None
}
