//! `conv`: offload the inputs of convolutions, which run long enough to hide the copy.

use super::{Algorithms, MemoryPolicy, feature_gaps};
use crate::{Gap, Infeasible, MemoryPlan, Problem, fit_to_budget};

/// Offloads X of convolutions.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    /// Which algorithms.
    pub algorithms: Algorithms,
}

impl MemoryPolicy for Conv {
    fn name(&self) -> &str {
        self.algorithms.suffixed("conv", "conv-m")
    }

    fn plan(&self, problem: &Problem<'_>) -> Result<MemoryPlan, Infeasible> {
        Ok(fit_to_budget(problem, self.name(), &self.algorithms.plan(problem), &gaps(problem))?.plan)
    }
}

/// The gaps of convolutions' inputs.
pub(super) fn gaps(problem: &Problem<'_>) -> Vec<Gap> {
    let convolutions = feature_gaps(problem).into_iter().filter(|feature| feature.read_by_convolution);
    convolutions.map(|feature| feature.gap).collect()
}
