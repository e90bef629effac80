//! The training loop's inner half: one step, one evaluation, on schedules that share their homes.

use crate::loss_scale::LossScaling;
use crate::plan::{self, Planned, Settings, Subject};
use crate::program::{self, Network, Optimization};
use crate::{INITIAL_LOSS_SCALE, LossScale, TrainError, WeightedMean, weights_sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use vdnn_autograd::{LOSS_SCALE, SKIPPED_STEPS};
use vdnn_graph::{Graph, Program, Role};
use vdnn_layers::Mode;
use vdnn_memory::HomeLayout;
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
    /// Only kernels whose results never vary between runs.
    pub deterministic: bool,
    /// The seed of this run; it is kept in checkpoints.
    pub seed: u64,
}

/// One batch on its way to the device.
#[derive(Clone, Copy, Debug)]
pub struct Feed<'a> {
    /// Normalised images, `[N, C, H, W]`.
    pub images: &'a [f32],
    /// Labels, `[N]`.
    pub labels: &'a [i32],
}

/// A training batch that is on the device.
#[derive(Clone, Copy, Debug)]
pub struct LoadedBatch {
    id: ScheduleId,
    samples: u64,
}

/// What a training step gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// Mean loss of the batch, before the update.
    pub loss: f64,
    /// Right answers in the batch.
    pub correct: u64,
    /// Labels that count.
    pub samples: u64,
    /// True when the update was left out because gradients were not finite, which only happens in f16.
    pub skipped: bool,
    /// The loss scale from here on, where there is one.
    pub loss_scale: Option<LossScale>,
}

/// What an evaluation gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean loss over all samples.
    pub loss: f64,
    /// Share of right answers, in [0, 1].
    pub accuracy: f64,
    /// Number of samples.
    pub samples: u64,
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
        let mut train = vec![(recipe.batch_size, program::training(full_net, &recipe.optimization)?)];
        for &size in recipe.partial_batches.iter().filter(|&&size| size != recipe.batch_size) {
            let net = program::network(network, size, Mode::Train)?;
            train.push((size, program::training(net, &recipe.optimization)?));
        }
        let mut eval = Vec::new();
        for &size in &recipe.eval_batches {
            eval.push((size, program::evaluation(program::network(network, size, Mode::Eval)?)?));
        }
        let graphs: Vec<&Graph> = train.iter().chain(&eval).map(|(_, program)| &program.graph).collect();
        let homes = plan::layout(&graphs, &recipe.settings.options);
        // What streams is settled by the first program, the full training batch; the others share its homes.
        let others = train.split_off(1);
        let mut train = plan_programs(device.as_mut(), train, &homes, recipe, plan::plan)?;
        let homes = train[0].1.homes.clone();
        train.extend(plan_programs(device.as_mut(), others, &homes, recipe, plan::plan_beside)?);
        let eval = plan_programs(device.as_mut(), eval, &homes, recipe, plan::plan_beside)?;
        let prepared = Self::prepare(device, train, eval, recipe.batch_size, dtype)?;
        let mut trainer = Trainer { scaling, ..prepared };
        trainer.write_initial(&initial)?;
        Ok(trainer)
    }

    fn prepare(
        device: Box<dyn Device>,
        train: Vec<(u64, Planned)>,
        eval: Vec<(u64, Planned)>,
        full: u64,
        dtype: DType,
    ) -> Result<Self, TrainError> {
        let mut executor = Executor::new(device);
        let all = || train.iter().chain(&eval).map(|(_, planned)| &planned.schedule);
        let peak = |space| all().map(|schedule| schedule.peak_bytes(space)).max().unwrap_or(0);
        executor.reserve(peak(Space::Device), peak(Space::Host))?;
        executor.reserve_disk(peak(Space::Disk))?;
        let mut add = |planned: Vec<(u64, Planned)>| -> Result<BTreeMap<u64, Ready>, TrainError> {
            let mut ready = BTreeMap::new();
            for (size, planned) in planned {
                let id = executor.add(Arc::clone(&planned.program), Arc::clone(&planned.schedule))?;
                ready.insert(size, Ready { planned, id });
            }
            Ok(ready)
        };
        let (train, eval) = (add(train)?, add(eval)?);
        Ok(Trainer { executor, train, eval, full, dtype, iteration: 0, scaling: None })
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

    /// Runs one iteration on a batch.
    ///
    /// # Errors
    /// As [`Trainer::load`] and [`Trainer::step_loaded`].
    pub fn step(&mut self, feed: Feed<'_>, learning_rate: f64) -> Result<StepResult, TrainError> {
        let batch = self.load(feed)?;
        self.step_loaded(batch, learning_rate)
    }

    /// Copies a training batch to the device.
    ///
    /// # Errors
    /// [`TrainError::BatchSize`] for a size without a schedule, [`TrainError::NoLabels`] when no label counts.
    pub fn load(&mut self, feed: Feed<'_>) -> Result<LoadedBatch, TrainError> {
        let samples = counted(feed.labels);
        if samples == 0 {
            return Err(TrainError::NoLabels { step: self.iteration, count: feed.labels.len() });
        }
        let id = ready(&self.train, feed.labels.len())?;
        self.feed(id, feed)?;
        Ok(LoadedBatch { id, samples })
    }

    /// Runs one iteration on the batch loaded last.
    ///
    /// # Errors
    /// [`TrainError::NotFinite`] when the loss is no number, [`TrainError::LossScale`] when gradients overflow f16 whatever the
    /// scale (the parameters are then as before the step), or a device failure.
    pub fn step_loaded(&mut self, batch: LoadedBatch, learning_rate: f64) -> Result<StepResult, TrainError> {
        let (LoadedBatch { id, samples }, step) = (batch, self.iteration);
        self.executor.write(id, "iteration", &step.to_le_bytes())?;
        self.write_floats(id, "learning_rate", &[learning_rate as f32])?;
        let before = self.loss_scale()?;
        self.executor.run(id)?;
        let loss = self.metric(id, "loss")?;
        // Where the device counts skipped steps, a step that ends the run is one.
        self.iteration += u64::from(loss.is_finite() || before.is_some());
        let skipped = before.map_or(Ok(false), |before| self.follow_loss_scale(step, before));
        if !loss.is_finite() {
            return Err(TrainError::NotFinite { step, loss });
        }
        let (correct, skipped, loss_scale) = (self.metric(id, "accuracy")? as u64, skipped?, self.loss_scale()?);
        Ok(StepResult { loss, correct, samples, skipped, loss_scale })
    }

    /// Where training scales the loss (in f16): the scale, and how many steps were skipped.
    ///
    /// # Errors
    /// A device failure.
    pub fn loss_scale(&mut self) -> Result<Option<LossScale>, TrainError> {
        match &self.scaling {
            Some(LossScaling { last: None, .. }) => Ok(Some(self.read_loss_scale()?)),
            Some(scaling) => Ok(scaling.last),
            None => Ok(None),
        }
    }

    fn read_loss_scale(&mut self) -> Result<LossScale, TrainError> {
        let id = self.full().id;
        let skipped = self.executor.read(id, SKIPPED_STEPS)?;
        let skipped = skipped.first_chunk().map_or(0, |&word| i32::from_le_bytes(word));
        let read = LossScale { scale: self.metric(id, LOSS_SCALE)?, skipped_steps: skipped.max(0) as u64 };
        if let Some(scaling) = &mut self.scaling {
            scaling.last = Some(read);
        }
        Ok(read)
    }

    fn follow_loss_scale(&mut self, step: u64, before: LossScale) -> Result<bool, TrainError> {
        let after = self.read_loss_scale()?;
        self.scaling.as_mut().map_or(Ok(false), |scaling| scaling.follow(step, before, after))
    }

    /// Evaluates batches, one feed at a time.
    ///
    /// # Errors
    /// [`TrainError::BatchSize`] for a size without a schedule, or a device failure.
    pub fn evaluate_batch(&mut self, feed: Feed<'_>, into: &mut EvaluationSum) -> Result<(), TrainError> {
        let id = ready(&self.eval, feed.labels.len())?;
        self.feed(id, feed)?;
        self.executor.run(id)?;
        let samples = counted(feed.labels);
        into.loss.add(self.metric(id, "loss")?, samples);
        into.correct += self.metric(id, "accuracy")? as u64;
        Ok(())
    }

    fn feed(&mut self, id: ScheduleId, feed: Feed<'_>) -> Result<(), TrainError> {
        self.write_floats(id, "image", feed.images)?;
        Ok(self.executor.write(id, "label", bytemuck::cast_slice(feed.labels))?)
    }

    /// Writes numbers in the network's dtype; without a copy when that is f32.
    fn write_floats(&mut self, id: ScheduleId, name: &str, numbers: &[f32]) -> Result<(), TrainError> {
        if self.dtype == DType::F64 {
            let wide: Vec<f64> = numbers.iter().map(|&x| f64::from(x)).collect();
            return Ok(self.executor.write(id, name, bytemuck::cast_slice(&wide))?);
        }
        Ok(self.executor.write(id, name, bytemuck::cast_slice(numbers))?)
    }

    fn metric(&mut self, id: ScheduleId, name: &str) -> Result<f64, TrainError> {
        let bytes = self.executor.read(id, name)?;
        let number = match self.dtype {
            DType::F64 => bytes.first_chunk().map(|&word| f64::from_le_bytes(word)),
            _ => bytes.first_chunk().map(|&word| f64::from(f32::from_le_bytes(word))),
        };
        Ok(number.unwrap_or(f64::NAN))
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

/// An evaluation under way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EvaluationSum {
    loss: WeightedMean,
    correct: u64,
}

impl EvaluationSum {
    /// The result over all samples; `None` without any.
    pub fn result(&self) -> Option<Evaluation> {
        let loss = self.loss.mean()?;
        let samples = self.loss.count();
        Some(Evaluation { loss, accuracy: self.correct as f64 / samples as f64, samples })
    }
}

fn initial_loss_scale() -> Result<HostTensor, TrainError> {
    let bytes = (INITIAL_LOSS_SCALE as f32).to_le_bytes().to_vec();
    HostTensor::from_bytes([1], DType::F32, bytes).map_err(|error| TrainError::Model(Box::new(error)))
}

/// [`plan::plan`] or [`plan::plan_beside`].
type Plan = fn(Subject, &HomeLayout, &Settings) -> Result<Planned, TrainError>;

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

fn ready(compiled: &BTreeMap<u64, Ready>, samples: usize) -> Result<ScheduleId, TrainError> {
    let found = samples as u64;
    let refuse = || TrainError::BatchSize { found, compiled: compiled.keys().copied().collect() };
    compiled.get(&found).map(|ready| ready.id).ok_or_else(refuse)
}

/// Labels that count: all but the ignored ones.
fn counted(labels: &[i32]) -> u64 {
    let ignored = vdnn_graph::op::SoftmaxCrossEntropy::default().ignore_index;
    labels.iter().filter(|&&label| label != ignored).count() as u64
}
