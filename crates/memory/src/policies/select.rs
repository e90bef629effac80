//! Which gaps the paper's policies look at: the input X of each feature layer, idle from its last use in forward to its
//! first use in backward.
//!
//! Left out, as in the paper: the classifier (from the first linear layer on), the last feature layer (its X is needed at
//! once), in-place activations (they own no buffer), the batch itself (it can be read again), and what is smaller than
//! the least size worth a copy.

use crate::{Gap, Problem};
use vdnn_graph::{LayerId, Op, Phase, Role, Step};

/// The gap of a feature layer's input between forward and backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGap {
    /// The gap.
    pub gap: Gap,
    /// True when a convolution reads the storage in forward.
    pub read_by_convolution: bool,
}

/// All feature gaps, in the order in which they begin.
pub fn feature_gaps(problem: &Problem<'_>) -> Vec<FeatureGap> {
    let graph = &problem.program.graph;
    let liveness = problem.liveness();
    let classifier = classifier_start(problem);
    let last_feature = last_feature_layer(problem, classifier);
    let convolved = read_by_convolution(problem);
    let mut gaps: Vec<FeatureGap> = liveness
        .roots()
        .iter()
        .filter(|&&root| graph.value(root).role == Role::FeatureMap)
        .filter(|&&root| problem.program.aliases.storage_bytes(root) >= problem.options.min_offload.max(1))
        .filter_map(|&root| liveness.gaps(root).find(|gap| problem.crosses(gap)))
        .filter(|gap| gap.from.step < classifier && Some(problem.layer(gap.from.step)) != last_feature)
        .map(|gap| FeatureGap { gap, read_by_convolution: convolved[gap.root.index()] })
        .collect();
    gaps.sort_by_key(|feature| (feature.gap.from.step, feature.gap.root));
    gaps
}

/// The first step of the classifier: of the flatten or linear layer that comes first.
fn classifier_start(problem: &Problem<'_>) -> Step {
    let n = problem.program.n_steps();
    let is_classifier = |&i: &usize| matches!(problem.program.node_at(Step(i as u32)).op, Op::Flatten | Op::Linear);
    Step((0..n).find(is_classifier).unwrap_or(n) as u32)
}

fn last_feature_layer(problem: &Problem<'_>, classifier: Step) -> Option<LayerId> {
    let before = (0..classifier.0).rev().map(Step);
    before.filter(|&step| problem.phase(step) == Phase::Forward).map(|step| problem.layer(step)).next()
}

/// By value id: whether the storage it names is the X of a convolution.
fn read_by_convolution(problem: &Problem<'_>) -> Vec<bool> {
    let graph = &problem.program.graph;
    let mut read = vec![false; graph.values().len()];
    let is_convolution = |op: &Op| matches!(op, Op::Conv2d(_) | Op::Conv2dRelu(_) | Op::Conv2dStats(_));
    for node in graph.nodes().iter().filter(|node| is_convolution(&node.op)) {
        read[problem.program.aliases.root(node.inputs[0]).index()] = true;
    }
    read
}
