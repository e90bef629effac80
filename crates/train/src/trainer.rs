//! A network on a device: its schedules, which share their homes, and what outlives an iteration.
//!
//! ```text
//!   Recipe ─► Trainer::new ─┬─► feeding: a batch to the device, now or while a step runs
//!                           └─► step: an iteration, an evaluation, the loss scale
//! ```

mod feeding;
mod step;

pub use feeding::{LoadedBatch, StagedBatch};
pub use step::{Evaluation, EvaluationSum, RunningStep, StepResult};

use crate::loss_scale::LossScaling;
use crate::plan::{self, Planned, Settings, Subject};
use crate::program::{self, Network, Optimization};
use crate::{INITIAL_LOSS_SCALE, TrainError, weights_sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdnn_autograd::LOSS_SCALE;
use vdnn_graph::{Graph, Program, Role};
use vdnn_layers::Mode;
use vdnn_memory::{HomeLayout, Infeasible, PlanError};
use vdnn_runtime::{Description, Device, Executor, KernelRequest, ScheduleId};
use vdnn_schedule::{Schedule, Space, Timeline};
use vdnn_tensor::{Bytes, DType, HostTensor};

/// What a run is made of, besides the network and the device.
pub struct Recipe {
    /// Samples in a training batch.
    pub batch_size: u64,
    /// Sizes of last partial training batches to compile for as well.
    pub partial_batches: Vec<u64>,
    /// Sizes of evaluation batches to compile for; none means no evaluation.
    pub eval_batches: Vec<u64>,
    /// The optimizer.
    pub optimization: Optimization,
    /// How memory is planned.
    pub settings: Settings,
    /// Room for a second batch on the device, so that the next one is copied while a step runs. It counts towards the budget.
    pub staging: bool,
    /// Only kernels whose results never vary between runs.
    pub deterministic: bool,
    /// The seed of this run; it is kept in checkpoints.
    pub seed: u64,
}

struct Ready {
    planned: Planned,
    id: ScheduleId,
}

/// A network on a device, ready to train and to be evaluated.
pub struct Trainer {
    executor: Executor<Box<dyn Device>>,
    train: BTreeMap<u64, Ready>,
    eval: BTreeMap<u64, Ready>,
    full: u64,
    dtype: DType,
    iteration: u64,
    /// Where the loss is scaled.
    scaling: Option<LossScaling>,
    /// Where homes lie, and beside them the batch that comes next.
    homes: HomeLayout,
}

impl Trainer {
    /// Builds, plans, checks and prepares all schedules of a run, and writes the initial weights.
    ///
    /// # Errors
    /// [`TrainError`] from any stage; nothing has run then.
    pub fn new(network: &dyn Network, mut device: Box<dyn Device>, recipe: &Recipe) -> Result<Self, TrainError> {
        let full_net = program::network(network, recipe.batch_size, Mode::Train)?;
        let dtype = full_net.options().dtype;
        let scaling = program::is_scaled(&full_net, &recipe.optimization).then(LossScaling::default);
        let mut initial: Vec<(String, HostTensor)> =
            full_net.initial_values().map(|(name, value)| (name.to_string(), value)).collect();
        if scaling.is_some() {
            initial.push((LOSS_SCALE.to_string(), initial_loss_scale()?));
        }
        let full = program::training_within(full_net, &recipe.optimization, recipe.settings.budgets.device)?;
        let mut others = Vec::new();
        for &size in recipe.partial_batches.iter().filter(|&&size| size != recipe.batch_size) {
            let net = program::network(network, size, Mode::Train)?;
            others.push((size, program::training_rest(net, &recipe.optimization)?));
        }
        let mut eval = Vec::new();
        for &size in &recipe.eval_batches {
            eval.push((size, program::evaluation(program::network(network, size, Mode::Eval)?)?));
        }
        let rest = others.iter().chain(&eval).map(|(_, program)| &program.graph);
        let graphs: Vec<&Graph> = full.iter().map(|program| &program.graph).take(1).chain(rest).collect();
        let homes = plan::layout(&graphs, &recipe.settings.options);
        let homes = if recipe.staging { homes.with_staging(&feeding::FED) } else { homes };
        // What streams is settled by the first program, the full training batch; the others share its homes.
        let mut train = plan_first(device.as_mut(), full, &homes, recipe)?;
        let homes = train[0].1.homes.clone();
        train.extend(plan_programs(device.as_mut(), others, &homes, recipe, plan::plan_beside)?);
        let eval = plan_programs(device.as_mut(), eval, &homes, recipe, plan::plan_beside)?;
        let prepared = Self::prepare(device, homes, train, eval, recipe.batch_size)?;
        let mut trainer = Trainer { scaling, dtype, ..prepared };
        trainer.write_initial(&initial)?;
        Ok(trainer)
    }

    fn prepare(
        device: Box<dyn Device>,
        homes: HomeLayout,
        train: Vec<(u64, Planned)>,
        eval: Vec<(u64, Planned)>,
        full: u64,
    ) -> Result<Self, TrainError> {
        let mut executor = Executor::new(device);
        let all = || train.iter().chain(&eval).map(|(_, planned)| &planned.schedule);
        let peak = |space| all().map(|schedule| schedule.peak_bytes(space)).max().unwrap_or(0);
        executor.reserve(peak(Space::Device), peak(Space::Host))?;
        executor.reserve_disk(peak(Space::Disk))?;
        if let Some((offset, bytes)) = homes.staging() {
            executor.reserve_staging(offset, bytes)?;
        }
        let mut add = |planned: Vec<(u64, Planned)>| -> Result<BTreeMap<u64, Ready>, TrainError> {
            let mut ready = BTreeMap::new();
            for (size, planned) in planned {
                let id = executor.add(Arc::clone(&planned.program), Arc::clone(&planned.schedule))?;
                ready.insert(size, Ready { planned, id });
            }
            Ok(ready)
        };
        let (train, eval) = (add(train)?, add(eval)?);
        let (dtype, scaling) = (DType::F32, None);
        Ok(Trainer { executor, train, eval, full, dtype, iteration: 0, scaling, homes })
    }

    /// Parameters and states as the network starts them; optimizer states at zero.
    fn write_initial(&mut self, initial: &[(String, HostTensor)]) -> Result<(), TrainError> {
        let known: BTreeMap<&str, &HostTensor> = initial.iter().map(|(name, value)| (name.as_str(), value)).collect();
        for (name, _, bytes) in self.persistents() {
            match known.get(name.as_str()) {
                Some(value) => self.write(&name, value.as_bytes())?,
                None => self.write(&name, &vec![0; bytes as usize])?,
            }
        }
        Ok(())
    }

    /// Name, role and bytes of everything that outlives an iteration.
    fn persistents(&self) -> Vec<(String, Role, Bytes)> {
        let graph = &self.full().planned.program.graph;
        let entry = |value: &vdnn_graph::Value| (value.name.clone(), value.role, value.ty.bytes());
        graph.persistents().iter().map(|p| entry(graph.value(p.initial))).collect()
    }

    fn full(&self) -> &Ready {
        &self.train[&self.full]
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), TrainError> {
        let id = self.full().id;
        Ok(self.executor.write(id, name, bytes)?)
    }

    /// All parameters and states by name.
    ///
    /// # Errors
    /// A device failure.
    pub fn tensors(&mut self) -> Result<Vec<(String, Role, HostTensor)>, TrainError> {
        let id = self.full().id;
        let program = Arc::clone(&self.full().planned.program);
        let mut tensors = Vec::new();
        for persistent in program.graph.persistents() {
            let value = program.graph.value(persistent.initial);
            let bytes = self.executor.read(id, &value.name)?;
            let tensor = HostTensor::from_bytes(value.ty.shape.clone(), value.ty.dtype, bytes)
                .map_err(|error| TrainError::Model(Box::new(error)))?;
            tensors.push((value.name.clone(), value.role, tensor));
        }
        Ok(tensors)
    }

    /// Overwrites a parameter or state.
    ///
    /// # Errors
    /// A device failure, for an unknown name or a wrong size.
    pub fn set_tensor(&mut self, name: &str, tensor: &HostTensor) -> Result<(), TrainError> {
        if let Some(scaling) = &mut self.scaling {
            *scaling = LossScaling::default();
        }
        self.write(name, tensor.as_bytes())
    }

    /// SHA-256 over the parameters; see [`weights_sha256`].
    ///
    /// # Errors
    /// A device failure.
    pub fn weights_sha256(&mut self) -> Result<String, TrainError> {
        let tensors = self.tensors()?;
        let parameters = tensors.iter().filter(|(_, role, _)| *role == Role::Parameter);
        Ok(weights_sha256(parameters.map(|(name, _, tensor)| (name.as_str(), tensor))))
    }

    /// Steps done so far over the whole run.
    pub fn iteration(&self) -> u64 {
        self.iteration
    }

    /// Continues counting from here (after loading a checkpoint).
    pub fn set_iteration(&mut self, iteration: u64) {
        self.iteration = iteration;
    }

    /// The full training batch's program, plan and schedule.
    pub fn planned(&self) -> &Planned {
        &self.full().planned
    }

    /// The planned peak over all schedules of the run.
    pub fn peak_bytes(&self, space: Space) -> Bytes {
        self.schedules().map(|schedule| schedule.peak_bytes(space)).max().unwrap_or(0)
    }

    fn schedules(&self) -> impl Iterator<Item = &Arc<Schedule>> {
        self.train.values().chain(self.eval.values()).map(|ready| &ready.planned.schedule)
    }

    /// Memory actually used, as the device measures it.
    pub fn measured_peak(&mut self) -> Option<Bytes> {
        self.executor.measured_peak()
    }

    /// The same of the host arena, where the device measures that.
    pub fn measured_host_peak(&mut self) -> Option<Bytes> {
        self.executor.measured_host_peak()
    }

    /// What the device is.
    pub fn description(&self) -> Description {
        self.executor.description()
    }

    /// Turns per-command timing on or off.
    pub fn set_timing(&mut self, on: bool) {
        self.executor.set_timing(on);
    }

    /// Times of the last iteration's commands.
    pub fn timeline(&mut self) -> Option<Timeline> {
        self.executor.timeline()
    }
}

fn initial_loss_scale() -> Result<HostTensor, TrainError> {
    let bytes = (INITIAL_LOSS_SCALE as f32).to_le_bytes().to_vec();
    HostTensor::from_bytes([1], DType::F32, bytes).map_err(|error| TrainError::Model(Box::new(error)))
}

/// [`plan::plan`] or [`plan::plan_beside`].
type Plan = fn(Subject, &HomeLayout, &Settings) -> Result<Planned, TrainError>;

/// The first of several programs of the full batch that can be planned; the least floor of all where none can.
fn plan_first(
    device: &mut dyn Device,
    programs: Vec<Program>,
    homes: &HomeLayout,
    recipe: &Recipe,
) -> Result<Vec<(u64, Planned)>, TrainError> {
    let mut refused: Option<Infeasible> = None;
    for program in programs {
        match plan_programs(device, vec![(recipe.batch_size, program)], homes, recipe, plan::plan) {
            Err(TrainError::Plan(PlanError::Infeasible(refusal))) => {
                let least = refused.filter(|least| least.floor <= refusal.floor);
                refused = Some(least.unwrap_or(refusal));
            }
            done => return done,
        }
    }
    match refused {
        Some(refusal) => Err(TrainError::Plan(PlanError::Infeasible(refusal))),
        None => Ok(Vec::new()),
    }
}

fn plan_programs(
    device: &mut dyn Device,
    programs: Vec<(u64, Program)>,
    homes: &HomeLayout,
    recipe: &Recipe,
    plan: Plan,
) -> Result<Vec<(u64, Planned)>, TrainError> {
    let settings = &recipe.settings;
    // All kernels, whatever the budget: a floor must not depend on the budget that was asked for. (Of kernels in pieces a GPU
    // leaves out what is small beside the budget; the leanest kernels of all are rarely among those.)
    let pieces_within = settings.pieces_within();
    let request = KernelRequest { pieces_within, ..KernelRequest::whole(recipe.deterministic) };
    // Without a budget everything is kept, whatever it is.
    let encodings = settings.take_encodings() && settings.budgets.device.is_some();
    let mut planned = Vec::new();
    for (size, program) in programs {
        let price = |program: &Program| device.kernel_table(&program.graph, request).map_err(TrainError::from);
        let subject = Subject::priced(Arc::new(program), encodings, price)?;
        planned.push((size, plan(subject, homes, settings)?));
    }
    Ok(planned)
}
