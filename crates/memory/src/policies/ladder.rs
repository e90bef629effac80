//! `hybrid-ladder`: `hybrid` at a fixed ladder of budgets, of which a larger budget only has more rungs.
//!
//! ```text
//!   floor  × 12/11  …              budget                peak of `none`
//!     ├──────┼───────┼───────┼───────┼──╳ ·  ·  ·  ·  ·  ·  ·  ┤      the fastest plan of all rungs up to the budget
//!                         ◄──┴── planned from the top down, until the bound says that no rung below is faster
//! ```
//! What `hybrid` finds in one budget has no order to what it finds in another: a search that is limited by counts may take a worse
//! turn with more room. Rungs depend on the problem without its budget, and a plan for fewer bytes is one for more, with the same
//! times. So more budget is never slower here.
//!
//! The price: bytes between a rung and the budget are not used (a twelfth at most), and where `hybrid` is far from the bound, as near its
//! floor, many rungs are planned. Left to [`Hybrid`]: all else.

use super::streaming::seconds;
use super::{Algorithms, Hybrid, MemoryPolicy, None as KeepAll};
use crate::{Budgets, Infeasible, MemoryPlan, Problem, step_time_bound};
use vdnn_tensor::Bytes;

/// A rung is so much larger than the one below: one part in so many.
const PARTS: Bytes = 11;
/// Seconds that differ less, as a share, are equal: sums in another order.
const EQUAL: f64 = 1e-9;

/// The joint policy on a ladder of budgets.
#[derive(Clone, Copy, Debug)]
pub struct Ladder;

impl MemoryPolicy for Ladder {
    fn name(&self) -> &str {
        "hybrid-ladder"
    }

    fn takes_pieces(&self) -> bool {
        true
    }

    fn takes_encodings(&self) -> bool {
        true
    }

    fn plan(&self, problem: &Problem<'_>) -> Result<MemoryPlan, Infeasible> {
        let Some(budget) = problem.budgets.device else { return Hybrid.plan(problem) };
        let refusal = match Hybrid.plan(&within(problem, 0)) {
            Ok(plan) => return Ok(plan),
            Err(refusal) => Infeasible { policy: self.name().to_string(), budget, ..refusal },
        };
        if budget < refusal.floor {
            return Err(refusal);
        }
        let mut best: Option<(f64, MemoryPlan)> = None;
        for rung in rungs(refusal.floor, top(problem)).into_iter().rev().filter(|&rung| rung <= budget) {
            let problem = &within(problem, rung);
            let least = best.as_ref().map_or(f64::INFINITY, |(least, _)| *least);
            // No plan for this rung or for one below is faster than the bound.
            if least <= step_time_bound(problem).seconds * (1.0 + EQUAL) {
                break;
            }
            let Ok(plan) = Hybrid.plan(problem) else { continue };
            let seconds = seconds(problem, &plan);
            if seconds < least {
                best = Some((seconds, plan));
            }
        }
        best.map_or_else(|| Hybrid.plan(problem), |(_, plan)| Ok(plan))
    }
}

fn within<'a>(problem: &Problem<'a>, budget: Bytes) -> Problem<'a> {
    Problem { budgets: Budgets { device: Some(budget), ..problem.budgets }, ..*problem }
}

/// What keeping everything takes: from there on more bytes change nothing.
fn top(problem: &Problem<'_>) -> Bytes {
    let keep = KeepAll { algorithms: Algorithms::PerformanceOptimal };
    keep.plan(&within(problem, 0)).err().map_or(0, |refusal| refusal.floor)
}

/// The rungs from the floor to the top, both included, lowest first.
fn rungs(floor: Bytes, top: Bytes) -> Vec<Bytes> {
    let next = |rung: &Bytes| Some(rung.saturating_add((rung / PARTS).max(1)));
    let below = std::iter::successors(Some(floor), next).take_while(|&rung| rung < top);
    let mut rungs: Vec<Bytes> = below.collect();
    rungs.push(top.max(floor));
    rungs
}

#[cfg(test)]
mod tests {
    use super::rungs;

    #[test]
    fn rungs_begin_at_the_floor_and_end_at_the_top() {
        assert_eq!(rungs(110, 150), [110, 120, 130, 141, 150]);
        assert_eq!(rungs(5, 7), [5, 6, 7]);
        assert_eq!((rungs(5, 5), rungs(5, 3)), (vec![5], vec![5]));
    }
}
