//! Layers as runs of steps: where a layer's forward or backward begins and ends in a plan's order. What runs again belongs to
//! the backward that it runs for.

use crate::{MemoryPlan, Problem};
use vdnn_graph::{LayerId, Phase, Step};

/// Runs of consecutive steps of one layer in one direction.
pub(crate) struct LayerSpans {
    /// First and last step of the run each step belongs to.
    spans: Vec<(Step, Step)>,
    /// The layer of each step.
    layers: Vec<LayerId>,
    /// Layers in the order of their backward, with the step it starts at.
    backward: Vec<(LayerId, Step)>,
}

impl LayerSpans {
    /// Finds the runs of a plan's order.
    pub fn of(problem: &Problem<'_>, plan: &MemoryPlan) -> Self {
        let n = plan.order.len();
        let mut keys: Vec<(LayerId, bool)> = Vec::with_capacity(n);
        for u in plan.order.iter().rev() {
            let node = problem.program.graph.node(u.node);
            let own = (node.layer, node.phase == Phase::Forward);
            keys.push(if u.run == 0 { own } else { keys.last().copied().unwrap_or(own) });
        }
        keys.reverse();
        let key = |i: usize| keys[i];
        let mut spans = Vec::with_capacity(n);
        let mut backward: Vec<(LayerId, Step)> = Vec::new();
        let mut start = 0;
        while start < n {
            let mut end = start;
            while end + 1 < n && key(end + 1) == key(start) {
                end += 1;
            }
            spans.extend(std::iter::repeat_n((Step(start as u32), Step(end as u32)), end + 1 - start));
            if !key(start).1 {
                backward.push((key(start).0, Step(start as u32)));
            }
            start = end + 1;
        }
        LayerSpans { spans, layers: keys.iter().map(|&(layer, _)| layer).collect(), backward }
    }

    /// The layer that `step` belongs to.
    pub fn layer(&self, step: Step) -> LayerId {
        self.layers[step.index()]
    }

    /// Last step of the run that `step` belongs to.
    pub fn end(&self, step: Step) -> Step {
        self.spans[step.index()].1
    }

    /// First step of the run that `step` belongs to.
    pub fn start(&self, step: Step) -> Step {
        self.spans[step.index()].0
    }

    /// Layers in the order of their backward.
    pub fn backward_starts(&self) -> impl Iterator<Item = (LayerId, Step)> + '_ {
        self.backward.iter().copied()
    }

    /// Start of the backward of the layer `n` backward layers before the one that `step` belongs to.
    pub fn backward_before(&self, step: Step, n: u32) -> Step {
        let own = self.backward.partition_point(|&(_, start)| start <= step);
        let earlier = own.saturating_sub(1 + n as usize);
        self.backward.get(earlier).map_or(step, |&(_, start)| start.min(step))
    }
}
