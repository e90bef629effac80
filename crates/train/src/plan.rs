//! From a program to a checked schedule, without a device.

use crate::TrainError;
use std::sync::Arc;
use vdnn_graph::{Node, NodeId, Program, Use};
use vdnn_memory::{Budgets, HomeLayout, MemoryPlan, MemoryPolicy, Options, PlanError, Problem, compile_with_policy};
use vdnn_schedule::{Action, AlgoId, Choice, KernelTable, Schedule, split_pieces};
use vdnn_sim::Links;
use vdnn_tensor::Bytes;

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

    /// For which budget kernels in pieces of the batch are wanted, if at all: by a policy that takes them, or by the schedule
    /// whose algorithms are to be used.
    pub fn pieces_within(&self) -> Option<Bytes> {
        let named = |schedule: &Schedule| schedule.algorithms.iter().any(|name| split_pieces(name).1 > 1);
        match &self.algos_from {
            Some(schedule) => named(schedule).then_some(0),
            None => self.budgets.device.filter(|_| self.policy.takes_pieces()),
        }
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
}

impl Planned {
    /// The schedule with another algorithm, by name, wherever that is offered: for [`Settings::algos_from`], not to run.
    pub fn with_algorithm(&self, name: &str) -> Schedule {
        let mut schedule = (*self.schedule).clone();
        let added = AlgoId(schedule.algorithms.len() as u32);
        schedule.algorithms.push(name.to_string());
        let offered = |node: NodeId| self.kernels.find(node, name).is_some();
        for command in &mut schedule.commands {
            match &mut command.action {
                Action::Launch { node, algo, .. } if offered(*node) => *algo = added,
                _ => {}
            }
        }
        schedule
    }

    /// Time of the runs that make again what had been made, in seconds.
    pub fn recompute_seconds(&self) -> f64 {
        let again = self.plan.order.iter().filter(|u| u.run > 0);
        let seconds = |u: &Use| self.kernels.get(u.node, self.plan.choice(u.node)).map_or(0.0, |choice| choice.seconds);
        again.fold(0.0, |sum, u| sum + seconds(u))
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
    let kernels = match &settings.algos_from {
        Some(schedule) => restrict(&program, kernels, schedule)?,
        None => kernels,
    };
    let problem = problem(&program, &kernels, homes, settings);
    let (schedule, plan) = compile_with_policy(&problem, settings.policy.as_ref())?;
    let mut violations = vdnn_check::check(&schedule, &program);
    violations.extend(vdnn_check::kernels(&schedule, &kernels));
    if !violations.is_empty() {
        return Err(TrainError::Refused { policy: settings.policy.name().to_string(), violations });
    }
    Ok(Planned { plan, schedule: Arc::new(schedule), kernels, program })
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
    for (id, node) in program.graph.node_ids().zip(program.graph.nodes()) {
        let Some(&algorithm) = wanted.get(node.name.as_str()) else { continue };
        let Some(choice) = wanted_choice(&kernels, id, algorithm, samples(program, node)).cloned() else {
            let available: Vec<&str> = kernels.all(id).map(|choice| choice.algorithm.as_str()).collect();
            return Err(TrainError::UnknownAlgorithm {
                node: node.name.clone(),
                algorithm: algorithm.to_string(),
                available: available.join(", "),
            });
        };
        // Also a choice in pieces is then the node's only one.
        kernels.choices[id.index()] = vec![choice];
        if let Some(pieces) = kernels.pieces.get_mut(id.index()) {
            pieces.clear();
        }
    }
    Ok(kernels)
}

/// The choice of this name. In pieces that the samples do not divide into (another batch than the schedule's) the same kernel
/// for the whole batch.
fn wanted_choice<'a>(kernels: &'a KernelTable, id: NodeId, algorithm: &str, samples: u64) -> Option<&'a Choice> {
    let (whole, pieces) = split_pieces(algorithm);
    let name = if samples.is_multiple_of(pieces) && samples > 0 { algorithm } else { whole };
    kernels.find(id, name)
}

fn samples(program: &Program, node: &Node) -> u64 {
    node.inputs.first().map_or(1, |&id| program.graph.value(id).ty.shape.samples())
}
