//! `none`: keep everything from its first to its last use. The reference, and the oracle when memory is unlimited.

use super::{Algorithms, MemoryPolicy};
use crate::{Infeasible, MemoryPlan, Problem, fit_to_budget};

/// Keeps everything.
#[derive(Clone, Copy, Debug)]
pub struct None {
    /// Which algorithms.
    pub algorithms: Algorithms,
}

impl MemoryPolicy for None {
    fn name(&self) -> &str {
        self.algorithms.suffixed("none", "none-m")
    }

    fn plan(&self, problem: &Problem<'_>) -> Result<MemoryPlan, Infeasible> {
        Ok(fit_to_budget(problem, self.name(), &self.algorithms.plan(problem), &[])?.plan)
    }
}
