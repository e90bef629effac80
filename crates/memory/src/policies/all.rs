//! `all`: offload the input of every feature layer.

use super::{Algorithms, MemoryPolicy, feature_gaps};
use crate::{Gap, Infeasible, MemoryPlan, Problem, fit_to_budget};

/// Offloads X of all feature layers.
#[derive(Clone, Copy, Debug)]
pub struct All {
    /// Which algorithms.
    pub algorithms: Algorithms,
}

impl MemoryPolicy for All {
    fn name(&self) -> &str {
        self.algorithms.suffixed("all", "all-m")
    }

    fn plan(&self, problem: &Problem<'_>) -> Result<MemoryPlan, Infeasible> {
        Ok(fit_to_budget(problem, self.name(), &self.algorithms.plan(problem), &gaps(problem))?.plan)
    }
}

/// The gaps of all feature layers' inputs.
pub(super) fn gaps(problem: &Problem<'_>) -> Vec<Gap> {
    feature_gaps(problem).into_iter().map(|feature| feature.gap).collect()
}
