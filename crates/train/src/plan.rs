//! From a program to a checked schedule, without a device.

use crate::TrainError;
use std::collections::BTreeSet;
use std::sync::Arc;
use vdnn_graph::{Graph, Node, NodeId, Program, Use};
use vdnn_memory::{
    Budgets, Encoded, HomeLayout, MemoryPlan, MemoryPolicy, Options, PlanError, Problem, State, compile_with_policy,
};
use vdnn_schedule::{Action, AlgoId, Choice, KernelTable, Schedule, Space, split_pieces};
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
    /// Whether the policy may have gradient rules read masks and indices.
    pub encodings: Encodings,
}

/// Whether gradient rules may read masks and indices in place of feature maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Encodings {
    /// Where a policy that takes them plans better with them.
    #[default]
    Auto,
    /// Every rule reads what it reads in the plain program.
    Never,
}

/// A program and what its kernels may run as.
#[derive(Clone, Debug)]
pub struct Priced {
    /// What runs.
    pub program: Arc<Program>,
    /// Its choices.
    pub kernels: Arc<KernelTable>,
}

/// What is planned: a program, and its encoded alternative where a policy may take that.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The program as it was differentiated.
    pub plain: Priced,
    /// The same iteration with encoded gradient rules.
    pub encoded: Option<Priced>,
}

impl Subject {
    /// A program without an alternative.
    pub fn new(program: Arc<Program>, kernels: KernelTable) -> Self {
        Subject { plain: Priced { program, kernels: Arc::new(kernels) }, encoded: None }
    }

    /// Prices a program, and with `encodings` its encoded alternative, if it has one and that can be priced.
    ///
    /// # Errors
    /// What `price` says of the program, and [`TrainError::Graph`] when a mask's name is taken.
    pub fn priced<E: From<TrainError>>(
        program: Arc<Program>,
        encodings: bool,
        mut price: impl FnMut(&Program) -> Result<KernelTable, E>,
    ) -> Result<Self, E> {
        let mut subject = Subject::new(Arc::clone(&program), price(&program)?);
        if encodings && let Some(encoded) = vdnn_autograd::encode(&program).map_err(TrainError::from)? {
            let program = Arc::new(encoded);
            subject.encoded = price(&program).ok().map(|kernels| Priced { program, kernels: Arc::new(kernels) });
        }
        Ok(subject)
    }

    /// With the algorithms of [`Settings::algos_from`] alone.
    ///
    /// # Errors
    /// [`TrainError::OtherNetwork`] or [`TrainError::UnknownAlgorithm`] when that is of another network or names what is not
    /// there.
    pub fn restricted(mut self, settings: &Settings) -> Result<Self, TrainError> {
        if let Some(schedule) = &settings.algos_from {
            restrict(&mut self.plain, schedule)?;
            self.encoded.as_mut().map_or(Ok(()), |encoded| restrict(encoded, schedule))?;
        }
        Ok(self)
    }
}

impl Settings {
    /// A policy without limits, everything else as usual.
    pub fn new(policy: Box<dyn MemoryPolicy>, links: Links) -> Self {
        let (options, budgets) = (Options::default(), Budgets::default());
        Settings { policy, options, budgets, links, algos_from: None, encodings: Encodings::Auto }
    }

    /// Whether an encoded alternative can make a difference.
    pub fn take_encodings(&self) -> bool {
        self.encodings == Encodings::Auto && self.policy.takes_encodings()
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
    /// The program that the policy decided for.
    pub program: Arc<Program>,
    /// What the policy decided.
    pub plan: MemoryPlan,
    /// The checked schedule.
    pub schedule: Arc<Schedule>,
    /// The choices it was planned from.
    pub kernels: Arc<KernelTable>,
    /// Where homes lie under this plan: what other schedules of the same run are planned with.
    pub homes: HomeLayout,
    /// What it was planned from: the program with its alternative, and homes before the plan had any stream.
    pub question: (Subject, HomeLayout),
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

    /// Number of gradient rules that read a mask or indices.
    pub fn encoded_nodes(&self) -> usize {
        self.plan.variants.len()
    }

    /// Bytes of parameters and states that this plan has in host memory between iterations.
    pub fn streamed_bytes(&self) -> u64 {
        let homes = self.schedule.homes.iter().map(|home| self.schedule.buffer(home.buffer));
        homes.filter(|home| home.space == Space::Host).map(|home| home.bytes).sum()
    }

    /// Time of the runs that make again what had been made, in seconds.
    pub fn recompute_seconds(&self) -> f64 {
        let again = self.plan.order.iter().filter(|u| u.run > 0);
        let seconds = |u: &Use| self.kernels.get(u.node, self.plan.choice(u.node)).map_or(0.0, |choice| choice.seconds);
        again.fold(0.0, |sum, u| sum + seconds(u))
    }
}

/// Plans, compiles and checks one program, or its encoded alternative where the policy plans better with that.
///
/// # Errors
/// [`TrainError::Plan`] when a budget cannot be kept, [`TrainError::Refused`] when the schedule does not pass its check,
/// and those of [`Subject::restricted`].
pub fn plan(subject: Subject, homes: &HomeLayout, settings: &Settings) -> Result<Planned, TrainError> {
    plan_with(subject, homes, settings, settings.options)
}

/// The same for another program of a run, with homes that were settled by the first.
///
/// # Errors
/// As [`plan`].
pub fn plan_beside(subject: Subject, homes: &HomeLayout, settings: &Settings) -> Result<Planned, TrainError> {
    plan_with(subject, homes, settings, Options { state: State::Device, ..settings.options })
}

fn plan_with(
    subject: Subject,
    homes: &HomeLayout,
    settings: &Settings,
    options: Options,
) -> Result<Planned, TrainError> {
    let subject = subject.restricted(settings)?;
    let problem = Problem { options, ..problem(&subject, homes, settings) };
    let (schedule, plan) = compile_with_policy(&problem, settings.policy.as_ref())?;
    let Priced { program, kernels } =
        subject.encoded.as_ref().filter(|_| plan.is_encoded()).unwrap_or(&subject.plain).clone();
    let question = (subject, homes.clone());
    let mut violations = vdnn_check::check(&schedule, &program);
    violations.extend(vdnn_check::kernels(&schedule, &kernels));
    let names: BTreeSet<&str> = plan.streamed.iter().map(|&id| program.graph.value(id).name.as_str()).collect();
    let homes = if names.is_empty() { homes.clone() } else { homes.streaming(&names) };
    if let Some((offset, bytes)) = homes.staging() {
        violations.extend(vdnn_check::staging(&schedule, offset, bytes));
    }
    if !violations.is_empty() {
        return Err(TrainError::Refused { policy: settings.policy.name().to_string(), violations });
    }
    Ok(Planned { plan, schedule: Arc::new(schedule), kernels, program, homes, question })
}

/// The homes of programs that run in turn on the same weights, before any of them is planned.
pub fn layout(graphs: &[&Graph], options: &Options) -> HomeLayout {
    let homes = HomeLayout::for_graphs(graphs, options.alignment);
    match options.state {
        State::Host => homes.streaming_from(options.min_offload.max(1)),
        State::Device | State::Auto => homes,
    }
}

/// The planning problem of a subject under settings.
pub fn problem<'a>(subject: &'a Subject, homes: &'a HomeLayout, settings: &Settings) -> Problem<'a> {
    let Priced { program, kernels } = &subject.plain;
    let encoded = subject.encoded.as_ref().filter(|_| settings.take_encodings());
    Problem {
        program,
        kernels,
        links: settings.links,
        homes,
        budgets: settings.budgets,
        options: settings.options,
        encoded: encoded.map(|Priced { program, kernels }| Encoded { program, kernels }),
    }
}

/// The least device budget at which the settings' policy returns a plan, as its refusal states it.
///
/// # Errors
/// [`PlanError`] for a plan that is refused for other reasons than the budget.
pub fn floor(subject: &Subject, homes: &HomeLayout, settings: &Settings) -> Result<u64, PlanError> {
    let mut problem = problem(subject, homes, settings);
    problem.budgets.device = Some(0);
    match settings.policy.plan(&problem) {
        Err(refusal) => Ok(refusal.floor),
        Ok(_) => Ok(0),
    }
}

/// Keeps, of each node's choices, the one that `schedule` uses. Nodes it does not have keep all.
fn restrict(priced: &mut Priced, schedule: &Schedule) -> Result<(), TrainError> {
    let Priced { program, kernels } = priced;
    let kernels = Arc::make_mut(kernels);
    if schedule.name != program.graph.name {
        let (expected, found) = (program.graph.name.clone(), schedule.name.clone());
        return Err(TrainError::OtherNetwork { expected, found });
    }
    let wanted = schedule.algorithms_by_node();
    for (id, node) in program.graph.node_ids().zip(program.graph.nodes()) {
        let Some(&algorithm) = wanted.get(node.name.as_str()) else { continue };
        let Some(choice) = wanted_choice(kernels, id, algorithm, samples(program, node)).cloned() else {
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
    Ok(())
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
