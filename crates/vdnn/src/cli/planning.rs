//! From the options of `vdnn plan` to a plan and all that is known of it: what `plan`, `report` and `reproduce` share.

mod text;

pub use text::{bound_text, rows};

use super::args::{ModelArgs, OptimizerArgs, PlanArgs, factor};
use super::costs::Costs;
use super::split::{Beside, advise_plan};
use super::{explain, extents, resolve};
use anyhow::{Result, anyhow};
use clap::Args;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use vdnn_graph::{Program, Role, ValueId};
use vdnn_layers::Mode;
use vdnn_memory::{PlanError, StepTimeBound, step_time_bound};
use vdnn_schedule::{Direction, Space, Stats, Timeline, stats};
use vdnn_sim::{oracle_seconds, simulate};
use vdnn_train::{Planned, Settings, Subject, TrainError, plan, program};

/// What is to be planned, for which machine.
#[derive(Args)]
pub struct Planning {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub optimizer: OptimizerArgs,
    #[command(flatten)]
    pub plan: PlanArgs,
    /// Multiply the rates of copies by this factor.
    #[arg(long, value_parser = factor, default_value_t = 1.0)]
    pub link_scale: f64,
    /// Images come to the device as bytes that the network normalises, as training has them from images.
    #[arg(long, conflicts_with_all = ["split_batch", "split_at"])]
    pub bytes: bool,
}

/// Everything known of a plan.
pub struct Explained {
    pub planned: Planned,
    pub stats: Stats,
    pub machine: String,
    pub floor: u64,
    pub floor_bound: u64,
    /// The simulated iteration.
    pub timeline: Timeline,
    pub oracle_ms: f64,
    pub bound: StepTimeBound,
    /// Of the plain program: a figure of the network.
    pub feature_map_bytes: u64,
    pub planning_seconds: f64,
    /// The floors of the whole batch, where this one is split.
    pub split: Option<Beside>,
}

impl Explained {
    /// Length of the simulated iteration.
    pub fn predicted_ms(&self) -> f64 {
        self.timeline.seconds * 1e3
    }
}

/// A plan, how it was made, and the value that was asked for by name.
pub struct Done {
    pub explained: Explained,
    pub settings: Settings,
    pub value: Option<ValueId>,
}

impl Planning {
    /// Plans, and writes the schedule where that is asked for.
    ///
    /// # Errors
    /// What is wrong with the options; a budget that cannot be kept, with the parts of the batch that would lower the floor.
    pub fn run(&self, value: Option<&str>) -> Result<Done> {
        let Planning { model, optimizer, plan, link_scale, bytes } = self;
        let data = if *bytes { resolve::FromData::bytes_for(model)? } else { resolve::FromData::default() };
        let build = resolve::network(model, data, model.seed.unwrap_or(0))?;
        let net = program::network(&build, model.batch_size, Mode::Train)?;
        let costs = costs(plan)?;
        let settings = resolve::settings(plan, costs.links(*link_scale), costs.is_modelled())?;
        let optimization = resolve::optimization(optimizer)?;
        let programs = program::training_within(net, &optimization, settings.budgets.device)?;
        let first = first_planned(programs, &costs, &settings, value);
        let (plain, explained, value) =
            first.map_err(|error| advise_plan(error, (model, optimizer), &costs, &settings))?;
        let split = Beside::of(&plain, (model, optimizer), &costs, &settings)?;
        let explained = Explained { split, ..explained };
        if let Some(path) = &plan.out {
            resolve::write_schedule(path, &explained.planned.schedule)?;
        }
        Ok(Done { explained, settings, value })
    }
}

/// The first of several programs that can be planned, its plan, and in it the value to be explained; of refusals the one of the least floor.
fn first_planned(
    programs: Vec<Program>,
    costs: &Costs,
    settings: &Settings,
    value: Option<&str>,
) -> Result<(Arc<Program>, Explained, Option<ValueId>)> {
    let mut refused: Option<(u64, anyhow::Error)> = None;
    for program in programs {
        let price = |program: &Program| costs.estimate(program).map(|priced| priced.table);
        let plain = Arc::new(program);
        let subject = Subject::priced(Arc::clone(&plain), settings.take_encodings(), price)?;
        let value = value.map(|name| explain::find(&subject, name)).transpose()?;
        match explain(subject, costs.name().to_string(), settings) {
            Ok(explained) => return Ok((plain, explained, value)),
            Err(error) => match error.downcast_ref::<TrainError>() {
                Some(TrainError::Plan(PlanError::Infeasible(refusal))) => {
                    let floor = refusal.floor;
                    refused = Some(refused.filter(|least| least.0 <= floor).unwrap_or((floor, error)));
                }
                _ => return Err(error),
            },
        }
    }
    Err(refused.map_or_else(|| anyhow!("there is no program to plan"), |(_, error)| error))
}

/// Where costs come from: a profile (completed by a machine description when one is named), else a machine.
fn costs(args: &PlanArgs) -> Result<Costs> {
    match &args.profile {
        Some(path) => Costs::of_profile(path, args.machine.as_deref()),
        None => Costs::of_machine(args.machine.as_deref().unwrap_or("titan-x")),
    }
}

/// Plans a priced program, and finds out what there is to know of the plan.
///
/// # Errors
/// As [`plan::plan`] and [`plan::floor`].
pub fn explain(subject: Subject, machine: String, settings: &Settings) -> Result<Explained> {
    let homes = plan::layout(&[&subject.plain.program.graph], &settings.options);
    let subject = subject.restricted(settings)?;
    let started = Instant::now();
    let planned = plan::plan(subject.clone(), &homes, settings)?;
    let planning_seconds = started.elapsed().as_secs_f64();
    let floor = plan::floor(&subject, &homes, settings)?;
    let problem = plan::problem(&subject, &homes, settings);
    let (floor_bound, bound) = (problem.floor_bound(), step_time_bound(&problem));
    let timeline = simulate(&planned.schedule, &planned.kernels, &settings.links)?;
    Ok(Explained {
        stats: stats(&planned.schedule),
        machine,
        floor,
        floor_bound,
        bound,
        feature_map_bytes: feature_map_bytes(problem.program),
        timeline,
        oracle_ms: oracle_seconds(problem.program, problem.kernels) * 1e3,
        planning_seconds,
        split: None,
        planned,
    })
}

/// The document of a plan, as `vdnn plan --json` prints it.
pub fn document(model: &str, explained: &Explained, settings: &Settings) -> Value {
    let Explained { planned, stats, .. } = explained;
    let graph = &planned.program.graph;
    let largest: Vec<Value> =
        stats.live_peak.largest.iter().map(|(name, bytes)| json!({ "name": name, "bytes": bytes })).collect();
    json!({
        "model": model,
        "policy": planned.schedule.policy,
        "machine": explained.machine,
        "budget_bytes": settings.budgets.device,
        "peak_bytes": planned.schedule.peak_bytes(Space::Device),
        "live_peak_bytes": stats.live_peak.bytes,
        "extent_bytes": extents::by_placement(&planned.schedule),
        "floor_bytes": explained.floor,
        "floor_bound_bytes": explained.floor_bound,
        "host_peak_bytes": planned.schedule.peak_bytes(Space::Host),
        "disk_peak_bytes": planned.schedule.peak_bytes(Space::Disk),
        "offload_bytes": planned.schedule.transfer_bytes(Direction::Offload),
        "prefetch_bytes": planned.schedule.transfer_bytes(Direction::Prefetch),
        "disk_write_bytes": planned.schedule.disk_bytes(Direction::Offload),
        "disk_read_bytes": planned.schedule.disk_bytes(Direction::Prefetch),
        "recompute_ms": planned.recompute_seconds() * 1e3,
        "encoded_nodes": planned.encoded_nodes(),
        "predicted_ms": explained.predicted_ms(),
        "oracle_ms": explained.oracle_ms,
        "lower_bound_ms": explained.bound.seconds * 1e3,
        "lower_bound": lower_bound(explained),
        "split": explained.split.as_ref().map(Beside::document),
        "feature_map_bytes": explained.feature_map_bytes,
        "streamed_bytes": planned.streamed_bytes(),
        "parameter_bytes": graph.bytes_of(Role::Parameter),
        "workspace_peak_bytes": stats.workspace_peak_bytes,
        "n_steps": planned.program.n_steps(),
        "n_commands": planned.schedule.commands.len(),
        "planning_seconds": explained.planning_seconds,
        "largest": largest,
        "violations": [],
    })
}

/// What the lower bound on the step rests on.
fn lower_bound(explained: &Explained) -> Value {
    let bound = &explained.bound;
    let cut = bound.cut.map(|cut| {
        json!({
            "step": cut.step.0,
            "node": explained.planned.program.node_at(cut.step).name,
            "absent_bytes": cut.absent,
            "offloaded_bytes": cut.offloaded,
            "recomputed_bytes": cut.recomputed,
            "ms": cut.seconds * 1e3,
        })
    });
    json!({
        "kernels_ms": bound.kernel_seconds * 1e3,
        "waits": bound.waits,
        "gap_percent": bound.gap(explained.predicted_ms() / 1e3) * 100.0,
        "cut": cut,
    })
}

/// Bytes of the images and of all feature-map storages: the sum the paper counts, in-place activations counted once, weights
/// in half precision not at all.
fn feature_map_bytes(program: &Program) -> u64 {
    let graph = &program.graph;
    let of_weight = |id: ValueId| {
        let node = graph.value(id).producer.map(|producer| graph.node(producer));
        node.is_some_and(|node| node.inputs.iter().all(|&input| graph.value(input).role == Role::Parameter))
    };
    let is_map = |id: &ValueId| {
        let value = graph.value(*id);
        let is_image = value.role == Role::Input && value.ty.shape.rank() == 4;
        program.aliases.root(*id) == *id && ((value.role == Role::FeatureMap && !of_weight(*id)) || is_image)
    };
    graph.value_ids().filter(is_map).map(|id| program.aliases.storage_bytes(id)).sum()
}
