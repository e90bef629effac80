//! What passes one after the other make of a budget: each decides by itself, as far as bytes lack, and none is taken back.
//!
//! ```text
//!  offload     largest feature maps first      until it fits ─► stop
//!  recompute   cheapest seconds a byte first   until it fits ─► stop
//!  algorithms  largest workspace first         until it fits ─► stop, else no plan
//! ```

use std::collections::BTreeMap;
use vdnn_graph::{NodeId, Phase, Role, ValueId};
use vdnn_memory::{Forget, Gap, Liveness, MemoryPlan, Problem, fit_to_budget, recompute};

/// One pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    Offload,
    Recompute,
    Algorithms,
}

/// Every order of the three passes.
pub const ORDERS: [[Pass; 3]; 6] = [
    [Pass::Offload, Pass::Recompute, Pass::Algorithms],
    [Pass::Offload, Pass::Algorithms, Pass::Recompute],
    [Pass::Recompute, Pass::Offload, Pass::Algorithms],
    [Pass::Recompute, Pass::Algorithms, Pass::Offload],
    [Pass::Algorithms, Pass::Offload, Pass::Recompute],
    [Pass::Algorithms, Pass::Recompute, Pass::Offload],
];

/// What has been decided so far.
#[derive(Clone, Default)]
struct Decided {
    offloaded: Vec<ValueId>,
    again: BTreeMap<ValueId, Forget>,
    algos: BTreeMap<NodeId, usize>,
}

/// The plan of the passes in this order, the first that fits.
pub fn in_a_row(problem: &Problem<'_>, passes: [Pass; 3]) -> Option<MemoryPlan> {
    let mut decided = Decided::default();
    if let Some(plan) = fitted(problem, &decided) {
        return Some(plan);
    }
    for pass in passes {
        for next in steps(problem, pass, &decided) {
            let taken = decided.clone();
            next.apply(&mut decided);
            match fitted(problem, &decided) {
                Some(plan) => return Some(plan),
                // What cannot be made again stays.
                None if arranged(problem, &decided).is_none() => decided = taken,
                None => {}
            }
        }
    }
    None
}

/// One decision of a pass.
enum Next {
    Offload(ValueId),
    Again(ValueId),
    Algorithm(NodeId, usize),
}

impl Next {
    fn apply(&self, decided: &mut Decided) {
        match *self {
            Next::Offload(root) => decided.offloaded.push(root),
            Next::Again(root) => drop(decided.again.insert(root, Forget::Once)),
            Next::Algorithm(node, number) => drop(decided.algos.insert(node, number)),
        }
    }
}

/// What a pass would decide, in its order.
fn steps(problem: &Problem<'_>, pass: Pass, decided: &Decided) -> Vec<Next> {
    let free = |root: &ValueId| !decided.offloaded.contains(root) && !decided.again.contains_key(root);
    let mut roots = maps(problem);
    roots.retain(free);
    let bytes = |root: ValueId| problem.program.aliases.storage_bytes(root);
    match pass {
        Pass::Offload => {
            roots.sort_by_key(|&root| (std::cmp::Reverse(bytes(root)), root));
            roots.into_iter().map(Next::Offload).collect()
        }
        Pass::Recompute => {
            let price = |root: ValueId| rerun_seconds(problem, root) / bytes(root) as f64;
            roots.sort_by(|&a, &b| price(a).total_cmp(&price(b)).then(a.cmp(&b)));
            roots.into_iter().map(Next::Again).collect()
        }
        Pass::Algorithms => {
            let nodes = problem.program.graph.node_ids();
            let mut leaner: Vec<_> = nodes
                .flat_map(|node| {
                    let choices = problem.kernels.of(node);
                    (1..choices.len()).map(move |number| (choices[number - 1].workspace, node, number))
                })
                .collect();
            leaner.sort_by_key(|&(workspace, node, number)| (std::cmp::Reverse(workspace), node, number));
            leaner.into_iter().map(|(_, node, number)| Next::Algorithm(node, number)).collect()
        }
    }
}

/// Feature maps that cross from forward to backward.
fn maps(problem: &Problem<'_>) -> Vec<ValueId> {
    let (graph, liveness) = (&problem.program.graph, problem.liveness());
    let crosses =
        |gap: Gap| problem.phase(gap.from.step) == Phase::Forward && problem.phase(gap.to.step) != Phase::Forward;
    let roots = liveness.roots().iter().copied().filter(|&root| graph.value(root).role == Role::FeatureMap);
    roots.filter(|&root| liveness.gaps(root).any(crosses)).collect()
}

/// Seconds of the forward kernels that write a storage.
fn rerun_seconds(problem: &Problem<'_>, root: ValueId) -> f64 {
    let graph = &problem.program.graph;
    let writes = |id: &NodeId| {
        let node = graph.node(*id);
        node.phase == Phase::Forward && node.outputs.iter().any(|&v| problem.program.aliases.root(v) == root)
    };
    graph.node_ids().filter(writes).map(|id| problem.kernels.of(id)[0].seconds).sum()
}

/// The order, and the gaps that leave in it.
fn arranged(problem: &Problem<'_>, decided: &Decided) -> Option<(MemoryPlan, Vec<Gap>)> {
    let made = recompute(problem.program, &decided.again).ok()?;
    let keep = MemoryPlan::keep_all(problem.program);
    let plan = MemoryPlan { order: made.order, gaps: made.drops, algos: decided.algos.clone(), ..keep };
    let liveness = Liveness::of(problem, &plan.order);
    let longest = |&root: &ValueId| liveness.gaps(root).max_by_key(|gap| gap.to.step.0 - gap.from.step.0);
    let gaps = decided.offloaded.iter().filter_map(longest).collect();
    Some((plan, gaps))
}

fn fitted(problem: &Problem<'_>, decided: &Decided) -> Option<MemoryPlan> {
    let (plan, gaps) = arranged(problem, decided)?;
    fit_to_budget(problem, "greedy", &plan, &gaps).ok().map(|fitted| fitted.plan)
}
