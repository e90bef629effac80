//! From a plan to a schedule: place the intervals, then emit the commands.

use crate::address::{Addresses, Below, place, place_disk, place_host};
use crate::disk::{Care, rest_on_disk};
use crate::emit::emit;
use crate::peak::largest_at_peak;
use crate::placement::Placed;
use crate::stretch::Intervals;
use crate::{Allocation, Liveness, MemoryPlan, MemoryPolicy, PlanError, Problem, Residency, VariantId};
use std::borrow::Cow;
use std::collections::BTreeSet;
use vdnn_schedule::Schedule;
use vdnn_tensor::Bytes;

/// Plans with `policy` and compiles the result. The plan returned is the one compiled, with what rests on disk.
///
/// # Errors
/// [`PlanError`] when a budget cannot be kept, or the policy's plan is not legal.
pub fn compile_with_policy(
    problem: &Problem<'_>,
    policy: &dyn MemoryPolicy,
) -> Result<(Schedule, MemoryPlan), PlanError> {
    let plan = policy.plan(problem)?;
    let (schedule, plan) = compiled(problem, &plan, policy.name(), Care::Full)?;
    Ok((schedule, plan.into_owned()))
}

/// Compiles a plan: every address, wait and copy becomes explicit. The schedule is one of the program of
/// [`Problem::of`] the plan. Where the host budget does not hold the plan's copies and there is a disk budget, some rest on
/// disk.
///
/// # Errors
/// [`PlanError::IllegalPlan`] for a plan that breaks a rule, [`PlanError::HostBudget`], [`PlanError::LowerBudgets`] and
/// [`PlanError::Infeasible`] for one that breaks a budget, [`PlanError::NoDiskRate`] for a disk budget without a disk.
pub fn compile(problem: &Problem<'_>, plan: &MemoryPlan, policy: &str) -> Result<Schedule, PlanError> {
    compiled(problem, plan, policy, Care::Full).map(|(schedule, _)| schedule)
}

fn compiled<'p>(
    problem: &Problem<'_>,
    plan: &'p MemoryPlan,
    policy: &str,
    care: Care,
) -> Result<(Schedule, Cow<'p, MemoryPlan>), PlanError> {
    let problem = &problem_of(problem, plan)?;
    let homes = problem.homes.with(&problem.program.graph, &plan.streamed);
    let problem = &Problem { homes: &homes, ..*problem };
    let (plan, mut intervals) = legal_intervals(problem, plan, care)?;
    let addresses = place(problem, &plan, &mut intervals);
    check_device_budget(problem, &plan, policy, &intervals, &addresses)?;
    let below = Below { host: place_host(problem, &intervals), disk: place_disk(problem, &intervals) };
    check_lower_budgets(problem, &below)?;
    Ok((emit(problem, &plan, policy, &intervals, &addresses, &below), plan))
}

/// The commands of a plan without addresses: all that a simulation needs. The device budget is not looked at where there is
/// no host budget.
///
/// # Errors
/// As [`compile`].
pub(crate) fn compile_unplaced(problem: &Problem<'_>, plan: &MemoryPlan, policy: &str) -> Result<Schedule, PlanError> {
    if problem.budgets.host.is_some() {
        return compiled(problem, plan, policy, Care::Quick).map(|(schedule, _)| schedule);
    }
    let problem = &problem_of(problem, plan)?;
    let homes = problem.homes.with(&problem.program.graph, &plan.streamed);
    let problem = &Problem { homes: &homes, ..*problem };
    let (plan, intervals) = legal_intervals(problem, plan, Care::Quick)?;
    Ok(emit_unplaced(problem, &plan, policy, &intervals))
}

/// The commands of intervals that have no addresses.
pub(crate) fn emit_unplaced(problem: &Problem<'_>, plan: &MemoryPlan, policy: &str, intervals: &Intervals) -> Schedule {
    let addresses = Addresses {
        stretches: vec![0; intervals.stretches.len()],
        workspaces: vec![0; intervals.workspaces.len()],
        device_extent: 0,
    };
    let nowhere = |count: usize| Placed { offsets: vec![0; count], extent: 0 };
    let below = Below { host: nowhere(intervals.copies.len()), disk: nowhere(intervals.files.len()) };
    emit(problem, plan, policy, intervals, &addresses, &below)
}

/// The problem of the program that a plan is for.
fn problem_of<'a>(problem: &Problem<'a>, plan: &MemoryPlan) -> Result<Problem<'a>, PlanError> {
    check_variants(problem, plan)?;
    Ok(problem.of(plan))
}

/// The intervals of a legal plan, with what rests on disk where the host budget does not hold them.
fn legal_intervals<'p>(
    problem: &Problem<'_>,
    plan: &'p MemoryPlan,
    care: Care,
) -> Result<(Cow<'p, MemoryPlan>, Intervals), PlanError> {
    check_plan(problem, plan)?;
    let liveness = Liveness::of(problem, &plan.order);
    check_gaps(problem, plan, &liveness)?;
    let intervals = Intervals::of(problem, plan, &liveness)?;
    match rest_on_disk(problem, plan, &liveness, &intervals, care)? {
        Some((plan, intervals)) => Ok((Cow::Owned(plan), intervals)),
        None => Ok((Cow::Borrowed(plan), intervals)),
    }
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
        let reason = format!(
            "the network-wide allocation keeps everything on the device, but {name} has its home in host memory; use \
             --state device, or another policy"
        );
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

fn check_lower_budgets(problem: &Problem<'_>, below: &Below) -> Result<(), PlanError> {
    let (needed, disk_needed) = (below.host.extent, below.disk.extent);
    let (host, disk) = (problem.budgets.host, problem.budgets.disk);
    match (host.filter(|&budget| needed > budget), disk.filter(|&budget| disk_needed > budget)) {
        (Some(budget), None) => Err(PlanError::HostBudget { needed, budget }),
        (over, Some(disk_budget)) => {
            let host_budget = over.or(host).unwrap_or(Bytes::MAX);
            Err(PlanError::LowerBudgets { host_needed: needed, host_budget, disk_needed, disk_budget })
        }
        (None, None) => Ok(()),
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
