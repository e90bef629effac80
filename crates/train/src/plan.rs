//! From a program to a checked schedule, without a device.

use crate::TrainError;
use std::collections::BTreeSet;
use std::sync::Arc;
use vdnn_graph::{Graph, NodeId, Program};
use vdnn_memory::{
    Budgets, HomeLayout, MemoryPlan, MemoryPolicy, Options, PlanError, Problem, State, compile_with_policy,
};
use vdnn_schedule::{Action, AlgoId, KernelTable, Schedule, Space};
use vdnn_sim::Links;

/// How to plan.
pub struct Settings {
    /// The policy.
    pub policy: Box<dyn MemoryPolicy>,
    /// Choices of method.
    pub options: Options,
    /// The limits.
    pub budgets: Budgets,
    /// What copies cost.
    pub links: Links,
    /// Take each node's algorithm from this schedule, by name.
    pub algos_from: Option<Schedule>,
}

impl Settings {
    /// A policy without limits, everything else as usual.
    pub fn new(policy: Box<dyn MemoryPolicy>, links: Links) -> Self {
        Settings { policy, options: Options::default(), budgets: Budgets::default(), links, algos_from: None }
    }
}

/// A program with its plan and schedule.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The program.
    pub program: Arc<Program>,
    /// What the policy decided.
    pub plan: MemoryPlan,
    /// The checked schedule.
    pub schedule: Arc<Schedule>,
    /// The choices it was planned from.
    pub kernels: KernelTable,
    /// Where homes lie under this plan: what other schedules of the same run are planned with.
    pub homes: HomeLayout,
}

impl Planned {
    /// The schedule with another algorithm, by name, wherever that is offered: for [`Settings::algos_from`], not to run.
    pub fn with_algorithm(&self, name: &str) -> Schedule {
        let mut schedule = (*self.schedule).clone();
        let added = AlgoId(schedule.algorithms.len() as u32);
        schedule.algorithms.push(name.to_string());
        let offered = |node: NodeId| self.kernels.of(node).iter().any(|choice| choice.algorithm == name);
        for command in &mut schedule.commands {
            match &mut command.action {
                Action::Launch { node, algo, .. } if offered(*node) => *algo = added,
                _ => {}
            }
        }
        schedule
    }

    /// Bytes of parameters and states that this plan has in host memory between iterations.
    pub fn streamed_bytes(&self) -> u64 {
        let homes = self.schedule.homes.iter().map(|home| self.schedule.buffer(home.buffer));
        homes.filter(|home| home.space == Space::Host).map(|home| home.bytes).sum()
    }

    /// Time of the runs that make again what had been made, in seconds.
    pub fn recompute_seconds(&self) -> f64 {
        let again = self.plan.order.iter().filter(|u| u.run > 0);
        again.fold(0.0, |sum, u| sum + self.kernels.of(u.node)[self.plan.choice(u.node)].seconds)
    }
}

/// Plans, compiles and checks one program.
///
/// # Errors
/// [`TrainError::Plan`] when a budget cannot be kept, [`TrainError::Refused`] when the schedule does not pass its check,
/// [`TrainError::OtherNetwork`] or [`TrainError::UnknownAlgorithm`] when `algos_from` is of another network or names what is
/// not there.
pub fn plan(
    program: Arc<Program>,
    kernels: KernelTable,
    homes: &HomeLayout,
    settings: &Settings,
) -> Result<Planned, TrainError> {
    plan_with(program, kernels, homes, settings, settings.options)
}

/// The same for another program of a run, with homes that were settled by the first.
///
/// # Errors
/// As [`plan`].
pub fn plan_beside(
    program: Arc<Program>,
    kernels: KernelTable,
    homes: &HomeLayout,
    settings: &Settings,
) -> Result<Planned, TrainError> {
    plan_with(program, kernels, homes, settings, Options { state: State::Device, ..settings.options })
}

fn plan_with(
    program: Arc<Program>,
    kernels: KernelTable,
    homes: &HomeLayout,
    settings: &Settings,
    options: Options,
) -> Result<Planned, TrainError> {
    let kernels = match &settings.algos_from {
        Some(schedule) => restrict(&program, kernels, schedule)?,
        None => kernels,
    };
    let problem = Problem { options, ..problem(&program, &kernels, homes, settings) };
    let (schedule, plan) = compile_with_policy(&problem, settings.policy.as_ref())?;
    let mut violations = vdnn_check::check(&schedule, &program);
    violations.extend(vdnn_check::kernels(&schedule, &kernels));
    if !violations.is_empty() {
        return Err(TrainError::Refused { policy: settings.policy.name().to_string(), violations });
    }
    let names: BTreeSet<&str> = plan.streamed.iter().map(|&id| program.graph.value(id).name.as_str()).collect();
    let homes = if names.is_empty() { homes.clone() } else { homes.streaming(&names) };
    Ok(Planned { plan, schedule: Arc::new(schedule), kernels, program, homes })
}

/// The homes of programs that run in turn on the same weights, before any of them is planned.
pub fn layout(graphs: &[&Graph], options: &Options) -> HomeLayout {
    let homes = HomeLayout::for_graphs(graphs, options.alignment);
    match options.state {
        State::Host => homes.streaming_from(options.min_offload.max(1)),
        State::Device | State::Auto => homes,
    }
}

/// The planning problem of a program under settings.
pub fn problem<'a>(
    program: &'a Program,
    kernels: &'a KernelTable,
    homes: &'a HomeLayout,
    settings: &Settings,
) -> Problem<'a> {
    Problem { program, kernels, links: settings.links, homes, budgets: settings.budgets, options: settings.options }
}

/// The least device budget at which the settings' policy returns a plan, as its refusal states it.
///
/// # Errors
/// [`PlanError`] for a plan that is refused for other reasons than the budget.
pub fn floor(
    program: &Program,
    kernels: &KernelTable,
    homes: &HomeLayout,
    settings: &Settings,
) -> Result<u64, PlanError> {
    let mut problem = problem(program, kernels, homes, settings);
    problem.budgets.device = Some(0);
    match settings.policy.plan(&problem) {
        Err(refusal) => Ok(refusal.floor),
        Ok(_) => Ok(0),
    }
}

/// Keeps, of each node's choices, the one that `schedule` uses. Nodes it does not have keep all.
fn restrict(program: &Program, mut kernels: KernelTable, schedule: &Schedule) -> Result<KernelTable, TrainError> {
    if schedule.name != program.graph.name {
        let (expected, found) = (program.graph.name.clone(), schedule.name.clone());
        return Err(TrainError::OtherNetwork { expected, found });
    }
    let wanted = schedule.algorithms_by_node();
    for (node, choices) in program.graph.nodes().iter().zip(&mut kernels.choices) {
        let Some(&algorithm) = wanted.get(node.name.as_str()) else { continue };
        let available: Vec<&str> = choices.iter().map(|choice| choice.algorithm.as_str()).collect();
        if !available.contains(&algorithm) {
            return Err(TrainError::UnknownAlgorithm {
                node: node.name.clone(),
                algorithm: algorithm.to_string(),
                available: available.join(", "),
            });
        }
        choices.retain(|choice| choice.algorithm == algorithm);
    }
    Ok(kernels)
}
