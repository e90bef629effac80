//! From a plan to a schedule: place the intervals, then emit the commands.

use crate::address::{Addresses, place, place_host};
use crate::emit::emit;
use crate::peak::largest_at_peak;
use crate::placement::Placed;
use crate::stretch::Intervals;
use crate::{Allocation, Liveness, MemoryPlan, MemoryPolicy, PlanError, Problem, Residency, VariantId};
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

/// Compiles a plan: every address, wait and copy becomes explicit. The schedule is one of the program of
/// [`Problem::of`] the plan.
///
/// # Errors
/// [`PlanError::IllegalPlan`] for a plan that breaks a rule, [`PlanError::HostBudget`] and [`PlanError::Infeasible`] for one
/// that breaks a budget.
pub fn compile(problem: &Problem<'_>, plan: &MemoryPlan, policy: &str) -> Result<Schedule, PlanError> {
    let problem = &problem_of(problem, plan)?;
    let homes = problem.homes.with(&problem.program.graph, &plan.streamed);
    let problem = &Problem { homes: &homes, ..*problem };
    let intervals = legal_intervals(problem, plan)?;
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

/// The commands of a plan without addresses: all that a simulation needs. The device budget is not looked at.
///
/// # Errors
/// As [`compile`].
pub(crate) fn compile_unplaced(problem: &Problem<'_>, plan: &MemoryPlan, policy: &str) -> Result<Schedule, PlanError> {
    if problem.budgets.host.is_some() {
        return compile(problem, plan, policy);
    }
    let problem = &problem_of(problem, plan)?;
    let homes = problem.homes.with(&problem.program.graph, &plan.streamed);
    let problem = &Problem { homes: &homes, ..*problem };
    let intervals = legal_intervals(problem, plan)?;
    let addresses = Addresses {
        stretches: vec![0; intervals.stretches.len()],
        workspaces: vec![0; intervals.workspaces.len()],
        device_extent: 0,
    };
    let host = Placed { offsets: vec![0; intervals.copies.len()], extent: 0 };
    Ok(emit(problem, plan, policy, &intervals, &addresses, &host))
}

/// The problem of the program that a plan is for.
fn problem_of<'a>(problem: &Problem<'a>, plan: &MemoryPlan) -> Result<Problem<'a>, PlanError> {
    check_variants(problem, plan)?;
    Ok(problem.of(plan))
}

fn legal_intervals(problem: &Problem<'_>, plan: &MemoryPlan) -> Result<Intervals, PlanError> {
    check_plan(problem, plan)?;
    let liveness = Liveness::of(problem, &plan.order);
    check_gaps(problem, plan, &liveness)?;
    Intervals::of(problem, plan, &liveness)
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
        if problem.kernels.get(node, choice).is_none() {
            return illegal(format!("{} has no algorithm number {choice}", graph.node(node).name));
        }
    }
    Ok(())
}

/// The encoded program is planned as a whole or not at all.
fn check_variants(problem: &Problem<'_>, plan: &MemoryPlan) -> Result<(), PlanError> {
    let known = problem.variants();
    let other = |node, variant: &VariantId| *variant != VariantId(0) && known.get(node) != Some(variant);
    let reason = match plan.variants.iter().find(|&(node, variant)| other(node, variant)) {
        Some((&node, variant)) => format!("{} has no variant {}", problem.program.graph.node(node).name, variant.0),
        None if plan.is_encoded() && plan.variants != known => {
            let missing = known.keys().find(|node| !plan.variants.contains_key(node));
            let name = missing.map_or("", |&node| &problem.program.graph.node(node).name);
            format!("expected all gradient rules encoded or none, found {name} plain")
        }
        None => return Ok(()),
    };
    Err(PlanError::IllegalPlan { reason })
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
        too_large: None,
    }))
}
