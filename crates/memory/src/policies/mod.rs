//! The policies, one file each, and their registry.
//!
//! A policy is a pure function from a [`Problem`] to a [`MemoryPlan`]. The helpers it stands on are public, so that a policy
//! can be written outside this crate: [`feature_gaps`], [`Problem::memory_optimal`], [`crate::fit_to_budget`].

mod all;
mod baseline;
mod checkpoint;
mod conv;
mod dynamic;
mod hybrid;
mod ladder;
mod none;
mod optimal;
mod select;
mod streaming;

pub use all::All;
pub use baseline::Baseline;
pub use checkpoint::Checkpoint;
pub use conv::Conv;
pub use dynamic::Dynamic;
pub use hybrid::Hybrid;
pub use ladder::Ladder;
pub use none::None;
pub use optimal::Optimal;
pub use select::{FeatureGap, feature_gaps};

use crate::{Infeasible, MemoryPlan, Problem};

/// Decides what happens to every gap, and which algorithm each kernel uses.
pub trait MemoryPolicy: Send + Sync {
    /// Its name on the command line.
    fn name(&self) -> &str;

    /// Whether it may run a kernel in pieces of the batch, so that devices offer that. The paper's policies do not.
    fn takes_pieces(&self) -> bool {
        false
    }

    /// Plans. The same problem always gives the same plan.
    ///
    /// # Errors
    /// [`Infeasible`] with the policy's floor when the device budget is too small for it.
    fn plan(&self, problem: &Problem<'_>) -> Result<MemoryPlan, Infeasible>;

    /// Whether it looks at [`Problem::encoded`]; for others that need not be made or priced.
    fn takes_encodings(&self) -> bool {
        false
    }
}

/// Which algorithms a fixed policy uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithms {
    /// (m): the fastest within a small workspace limit.
    MemoryOptimal,
    /// (p): the fastest.
    PerformanceOptimal,
}

impl Algorithms {
    /// A plan that keeps everything and uses these algorithms.
    pub fn plan(self, problem: &Problem<'_>) -> MemoryPlan {
        let mut plan = MemoryPlan::keep_all(problem.program);
        if self == Algorithms::MemoryOptimal {
            plan.algos = problem.program.graph.node_ids().map(|id| (id, problem.memory_optimal(id))).collect();
        }
        plan
    }

    fn suffixed(self, performance: &'static str, memory: &'static str) -> &'static str {
        match self {
            Algorithms::PerformanceOptimal => performance,
            Algorithms::MemoryOptimal => memory,
        }
    }
}

/// One registered policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyEntry {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for lists.
    pub description: &'static str,
}

/// All policies by name, for lists.
pub const REGISTRY: [PolicyEntry; 12] = [
    entry("none", "keep everything, release after the last use; fastest algorithms (also none-p)"),
    entry("none-m", "keep everything; memory-optimal algorithms"),
    entry("baseline", "the paper's network-wide allocation; fastest algorithms (also baseline-p)"),
    entry("baseline-m", "the paper's network-wide allocation; memory-optimal algorithms"),
    entry("all", "offload the inputs of all feature layers; fastest algorithms (also all-p)"),
    entry("all-m", "offload the inputs of all feature layers; memory-optimal algorithms"),
    entry("conv", "offload the inputs of convolutions; fastest algorithms (also conv-p)"),
    entry("conv-m", "offload the inputs of convolutions; memory-optimal algorithms"),
    entry("dyn", "the paper's passes: the first of none, conv, all and their greedy forms that fits"),
    entry("checkpoint", "recompute by segments (about the square root of the depth), to a budget the cheapest of them"),
    entry("hybrid", "offload, recompute, algorithms and addresses chosen together, to any budget (also hybrid-ladder)"),
    entry("optimal", "the same, proved shortest (mixed-integer programs); small programs only, others are refused"),
];

const fn entry(name: &'static str, description: &'static str) -> PolicyEntry {
    PolicyEntry { name, description }
}

/// The policy of this name.
pub fn find(name: &str) -> Option<Box<dyn MemoryPolicy>> {
    let (family, algorithms) = match name.rsplit_once('-') {
        Some((family, "m")) => (family, Algorithms::MemoryOptimal),
        Some((family, "p")) => (family, Algorithms::PerformanceOptimal),
        _ => (name, Algorithms::PerformanceOptimal),
    };
    match family {
        "none" => Some(Box::new(None { algorithms })),
        "baseline" => Some(Box::new(Baseline { algorithms })),
        "all" => Some(Box::new(All { algorithms })),
        "conv" => Some(Box::new(Conv { algorithms })),
        "dyn" if family == name => Some(Box::new(Dynamic)),
        "checkpoint" if family == name => Some(Box::new(Checkpoint)),
        "hybrid" if family == name => Some(Box::new(Hybrid)),
        "hybrid-ladder" => Some(Box::new(Ladder)),
        "optimal" if family == name => Some(Box::new(Optimal)),
        _ => Option::None,
    }
}
