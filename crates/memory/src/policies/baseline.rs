//! `baseline`: the network-wide allocation the paper measures against.
//!
//! Every feature map lives for the whole iteration; gradients share as many buffers of the largest size as gradients live
//! at once (two in a chain); one workspace serves the largest request.

use super::{Algorithms, MemoryPolicy};
use crate::{Allocation, Infeasible, MemoryPlan, Problem, fit_to_budget};

/// Network-wide allocation.
#[derive(Clone, Copy, Debug)]
pub struct Baseline {
    /// Which algorithms.
    pub algorithms: Algorithms,
}

impl MemoryPolicy for Baseline {
    fn name(&self) -> &str {
        self.algorithms.suffixed("baseline", "baseline-m")
    }

    fn plan(&self, problem: &Problem<'_>) -> Result<MemoryPlan, Infeasible> {
        let plan = MemoryPlan { allocation: Allocation::NetworkWide, ..self.algorithms.plan(problem) };
        Ok(fit_to_budget(problem, self.name(), &plan, &[])?.plan)
    }
}
