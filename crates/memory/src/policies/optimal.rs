//! `optimal`: the plan of which it is proved that none is shorter, for small programs.
//!
//! ```text
//!  space     orders × gaps kept or away in any window × algorithms                        (space)
//!  bound     a mixed-integer program an order: exact bytes, seconds without contention    (model)
//!  proof     solutions by rising bound, each with all its windows simulated               (search, windows)
//!  floor     the least extent over the same orders and windows                            (floor)
//! ```
//! *The space.* A feature map of at least `min_offload` bytes that crosses from forward to backward is kept, or forgotten
//! after forward once or after each use; `recompute` makes an order of that. In each order every gap of such a map that
//! ends after forward, lasts for a step and does not end with the map made anew may be kept or away, released and fetched at
//! any two steps. Each kernel takes any algorithm of its table than which no other is both as fast and as lean. First runs
//! keep the program's order; parameters and states stay where the problem has them, and between their uses if they stream.
//! Of a program and its encoded alternative, the better plan counts.
//!
//! *What is least* is the simulated time of the compiled schedule, addresses by the problem's placement within the budget. The
//! plans of the other policies lie in the space, save those in which parameters stream by `hybrid`'s choice.
//!
//! Beyond a number of steps or of maps the problem is refused, and where a proof does not end within fixed counts
//! as well: what is returned is always proved. Nothing looks at a clock. The argument: docs/decisions/0019.

mod floor;
mod model;
mod search;
mod space;
mod windows;

use super::{Algorithms, MemoryPolicy, None as KeepAll};
use crate::fit::infeasible;
use crate::{Budgets, Infeasible, MemoryPlan, Problem, TooLarge};
use search::Spent;
use space::Space;
use vdnn_tensor::Bytes;

/// What a proof may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    /// Steps of the program.
    steps: usize,
    /// Feature maps that may leave.
    maps: usize,
    /// Mixed-integer programs solved.
    programs: usize,
    /// Windows looked at.
    looks: usize,
    /// Plans simulated.
    plans: usize,
}

const LIMITS: Limits = Limits { steps: 28, maps: 5, programs: 1_000, looks: 2_000_000, plans: 50_000 };

/// Steps up to which other policies may leave a program to this one: a proof takes some thousandths of a second.
const TINY: usize = 16;

/// The exact policy.
#[derive(Clone, Copy, Debug)]
pub struct Optimal;

impl MemoryPolicy for Optimal {
    fn name(&self) -> &str {
        "optimal"
    }

    fn takes_pieces(&self) -> bool {
        true
    }

    fn takes_encodings(&self) -> bool {
        true
    }

    fn plan(&self, problem: &Problem<'_>) -> Result<MemoryPlan, Infeasible> {
        let keep = KeepAll { algorithms: Algorithms::PerformanceOptimal };
        let (plain, encoded) = (problem.plain(), problem.with_encodings());
        let Some(budget) = problem.budgets.device else { return keep.plan(&plain) };
        if let Some(plan) = kept(problem) {
            return Ok(plan);
        }
        let spaces: Vec<Space<'_>> = [Some(&plain), encoded.as_ref()].into_iter().flatten().map(Space::of).collect();
        let refused = |limit| too_large(problem, limit);
        spaces.iter().find_map(outsize).map_or(Ok(()), |limit| Err(refused(limit)))?;
        let spent = |spent: Spent| refused(TooLarge { what: spent.what, most: spent.most, found: None });
        let refusal = refusal(&spaces, budget).map_err(spent)?;
        if refusal.floor > budget {
            return Err(refusal);
        }
        let mut best = (f64::INFINITY, None);
        for (number, space) in spaces.iter().enumerate() {
            if let Some((seconds, plan)) = search::fastest(space, best.0, &LIMITS).map_err(spent)? {
                best = (seconds, Some((number, plan)));
            }
        }
        // What the floor is of is a plan, so there is one.
        let none = || refused(TooLarge { what: "programs", most: LIMITS.programs, found: None });
        let (number, plan) = best.1.ok_or_else(none)?;
        let variants = if number > 0 { problem.variants() } else { plan.variants.clone() };
        Ok(MemoryPlan { variants, ..plan })
    }
}

/// The proved plan, or the refusal, of a program so small that it takes no time; `None` for others. For policies that
/// search, which need not then.
pub(super) fn of_tiny(problem: &Problem<'_>, policy: &str) -> Option<Result<MemoryPlan, Infeasible>> {
    if problem.program.n_steps() > TINY || problem.budgets.device.is_none() {
        return None;
    }
    match Optimal.plan(problem) {
        Err(refusal) if refusal.too_large.is_some() => None,
        planned => Some(planned.map_err(|refusal| Infeasible { policy: policy.to_string(), ..refusal })),
    }
}

/// Everything kept by the quicker of the two programs, where that fits and no copies are made: then nothing is quicker.
fn kept(problem: &Problem<'_>) -> Option<MemoryPlan> {
    if problem.homes.host_extent() > 0 {
        return None;
    }
    keep_quicker(problem).ok()
}

fn keep_quicker(problem: &Problem<'_>) -> Result<MemoryPlan, Infeasible> {
    let keep = KeepAll { algorithms: Algorithms::PerformanceOptimal };
    let seconds = |problem: &Problem<'_>| -> f64 {
        problem.program.graph.node_ids().map(|node| problem.kernels.of(node)[0].seconds).sum()
    };
    let plain = problem.plain();
    match problem.with_encodings().filter(|encoded| seconds(encoded) < seconds(&plain)) {
        Some(encoded) => keep.plan(&encoded).map(|plan| MemoryPlan { variants: problem.variants(), ..plan }),
        None => keep.plan(&plain),
    }
}

/// What there is too much of for a proof.
fn outsize(space: &Space<'_>) -> Option<TooLarge> {
    let counts = [
        ("steps", LIMITS.steps, space.problem.program.n_steps()),
        ("feature maps that may leave", LIMITS.maps, space.candidates.len()),
    ];
    let (what, most, found) = counts.into_iter().find(|(_, most, found)| found > most)?;
    Some(TooLarge { what, most, found: Some(found) })
}

/// The refusal of a problem that is too large, of which everything is kept or nothing is planned.
fn too_large(problem: &Problem<'_>, limit: TooLarge) -> Infeasible {
    let budget = problem.budgets.device.unwrap_or(0);
    let nothing = Problem { budgets: Budgets { device: Some(0), ..problem.budgets }, ..*problem };
    let (policy, too_large) = ("optimal".to_string(), Some(Box::new(limit)));
    match keep_quicker(&nothing) {
        Err(refusal) => Infeasible { policy, budget, too_large, ..refusal },
        Ok(_) => Infeasible { policy, budget, floor: 0, step: String::new(), largest: Vec::new(), too_large },
    }
}

/// The refusal that names the lower of the programs' floors.
fn refusal(spaces: &[Space<'_>], budget: Bytes) -> Result<Infeasible, Spent> {
    let floors = spaces.iter().map(|space| {
        let (least, liveness) = floor::least(space, &LIMITS)?;
        Ok(infeasible(space.problem, "optimal", budget, &least, &liveness))
    });
    let floors: Vec<Infeasible> = floors.collect::<Result<_, Spent>>()?;
    let least = floors.into_iter().reduce(|a, b| if b.floor < a.floor { b } else { a });
    least.ok_or(Spent { what: "programs", most: LIMITS.programs })
}
