//! From a plan to a schedule: place the intervals, then emit the commands.

use crate::address::{Addresses, place, place_host};
use crate::emit::emit;
use crate::peak::largest_at_peak;
use crate::stretch::Intervals;
use crate::{Allocation, Liveness, MemoryPlan, MemoryPolicy, PlanError, Problem, Residency};
use std::collections::BTreeSet;
use vdnn_schedule::Schedule;

/// Plans with `policy` and compiles the result.
///
/// # Errors
/// [`PlanError`] when a budget cannot be kept, or the policy's plan is not legal.
pub fn compile_with_policy(
    problem: &Problem<'_>,
    policy: &dyn MemoryPolicy,
) -> Result<(Schedule, MemoryPlan), PlanError> {
    let plan = policy.plan(problem)?;
    let schedule = compile(problem, &plan, policy.name())?;
    Ok((schedule, plan))
}

/// Compiles a plan: every address, wait and copy becomes explicit.
///
/// # Errors
/// [`PlanError::IllegalPlan`] for a plan that breaks a rule, [`PlanError::HostBudget`] and [`PlanError::Infeasible`] for one
/// that breaks a budget.
pub fn compile(problem: &Problem<'_>, plan: &MemoryPlan, policy: &str) -> Result<Schedule, PlanError> {
    let homes = problem.homes.with(&problem.program.graph, &plan.streamed);
    let problem = &Problem { homes: &homes, ..*problem };
    check_plan(problem, plan)?;
    let liveness = Liveness::of(problem, &plan.order);
    check_gaps(problem, plan, &liveness)?;
    let intervals = Intervals::of(problem, plan, &liveness)?;
    let addresses = place(problem, plan, &intervals);
    check_device_budget(problem, plan, policy, &intervals, &addresses)?;
    let host = place_host(problem, &intervals);
    if let Some(budget) = problem.budgets.host
        && host.extent > budget
    {
        return Err(PlanError::HostBudget { needed: host.extent, budget });
    }
    Ok(emit(problem, plan, policy, &intervals, &addresses, &host))
}

fn check_plan(problem: &Problem<'_>, plan: &MemoryPlan) -> Result<(), PlanError> {
    let illegal = |reason: String| Err(PlanError::IllegalPlan { reason });
    let graph = &problem.program.graph;
    let mut runs = vec![0u32; graph.nodes().len()];
    for u in &plan.order {
        let node = graph.node(u.node);
        if u32::from(u.run) != runs[u.node.index()] {
            return illegal(format!("run {} of {} is out of turn", u.run, node.name));
        }
        runs[u.node.index()] += 1;
        if u.run > 0 && node.op.has_effect() {
            return illegal(format!("{} has an effect and may run only once", node.name));
        }
    }
    if let Some(missing) = graph.node_ids().find(|id| runs[id.index()] == 0) {
        return illegal(format!("{} never runs", graph.node(missing).name));
    }
    for (&node, &choice) in &plan.algos {
        if choice >= problem.kernels.of(node).len() {
            return illegal(format!("{} has no algorithm number {choice}", graph.node(node).name));
        }
    }
    match plan.variants.iter().find(|(_, variant)| variant.0 != 0) {
        Some((&node, variant)) => illegal(format!("{} has no variant {}", graph.node(node).name, variant.0)),
        None => Ok(()),
    }
}

/// What is not kept must be a gap, and the network-wide allocation keeps everything.
fn check_gaps(problem: &Problem<'_>, plan: &MemoryPlan, liveness: &Liveness) -> Result<(), PlanError> {
    let graph = &problem.program.graph;
    let mut left: BTreeSet<_> =
        plan.gaps.iter().filter(|(_, residency)| **residency != Residency::Keep).map(|(&key, _)| key).collect();
    if let (Allocation::NetworkWide, Some(&root)) = (plan.allocation, liveness.streamed().first()) {
        let name = &graph.value(root).name;
        let reason = format!("the network-wide allocation keeps everything, but {name} has its home in host memory");
        return Err(PlanError::IllegalPlan { reason });
    }
    if let (Allocation::NetworkWide, Some(&(root, _))) = (plan.allocation, left.first()) {
        let name = &graph.value(root).name;
        let reason = format!("the network-wide allocation keeps everything, but {name} is to leave in a gap");
        return Err(PlanError::IllegalPlan { reason });
    }
    for &root in liveness.roots() {
        for gap in liveness.gaps(root).chain(liveness.wrap(root)) {
            left.remove(&(root, plan.order[gap.to.step.index()]));
        }
    }
    match left.first() {
        Some(&(root, u)) => {
            let (value, node) = (&graph.value(root).name, &graph.node(u.node).name);
            let reason = format!("{value} has no gap that ends with run {} of {node}", u.run);
            Err(PlanError::IllegalPlan { reason })
        }
        None => Ok(()),
    }
}

fn check_device_budget(
    problem: &Problem<'_>,
    plan: &MemoryPlan,
    policy: &str,
    intervals: &Intervals,
    addresses: &Addresses,
) -> Result<(), PlanError> {
    let Some(budget) = problem.budgets.device else { return Ok(()) };
    if addresses.device_extent <= budget {
        return Ok(());
    }
    let (step, largest) = largest_at_peak(problem, intervals);
    Err(PlanError::Infeasible(crate::Infeasible {
        policy: policy.to_string(),
        budget,
        floor: addresses.device_extent,
        step: plan.order.get(step.index()).map(|u| problem.program.graph.node(u.node).name.clone()).unwrap_or_default(),
        largest,
    }))
}
