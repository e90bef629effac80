//! `vdnn plan`: compile a schedule for a machine description or a recorded profile, and explain it. No GPU needed.

use super::Report;
use super::args::{ModelArgs, OptimizerArgs, PlanArgs, factor};
use super::costs::Costs;
use super::split::{Beside, advise_plan};
use super::{explain, extents, resolve};
use anyhow::{Result, anyhow};
use clap::Args;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use vdnn_graph::{Op, Program, Role, ValueId};
use vdnn_layers::Mode;
use vdnn_memory::{PlanError, StepTimeBound, step_time_bound};
use vdnn_schedule::{Direction, Schedule, Space, Stats, stats};
use vdnn_sim::{oracle_seconds, simulate};
use vdnn_tensor::format_bytes;
use vdnn_train::{Planned, Settings, Subject, TrainError, plan, program};

/// Options of `vdnn plan`.
#[derive(Args)]
pub struct PlanCommand {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    optimizer: OptimizerArgs,
    #[command(flatten)]
    plan: PlanArgs,
    /// Multiply the rates of copies by this factor.
    #[arg(long, value_parser = factor, default_value_t = 1.0)]
    link_scale: f64,
    /// Images come to the device as bytes that the network normalises, as training has them from images.
    #[arg(long, conflicts_with_all = ["split_batch", "split_at"])]
    bytes: bool,
    /// Print the whole schedule.
    #[arg(long)]
    print: bool,
    /// Say of this value instead why it is where it is: its uses, its gaps, and what they cost.
    #[arg(long, value_name = "VALUE", conflicts_with = "print")]
    explain: Option<String>,
}

/// Everything known of a plan.
struct Explained {
    planned: Planned,
    stats: Stats,
    machine: String,
    floor: u64,
    floor_bound: u64,
    predicted_ms: f64,
    oracle_ms: f64,
    bound: StepTimeBound,
    /// Of the plain program: a figure of the network.
    feature_map_bytes: u64,
    planning_seconds: f64,
    /// The floors of the whole batch, where this one is split.
    split: Option<Beside>,
}

/// Plans and reports.
pub fn run(args: &PlanCommand) -> Result<Report> {
    let data = if args.bytes { resolve::FromData::bytes_for(&args.model)? } else { resolve::FromData::default() };
    let build = resolve::network(&args.model, data, args.model.seed.unwrap_or(0))?;
    let net = program::network(&build, args.model.batch_size, Mode::Train)?;
    let costs = costs(&args.plan)?;
    let settings = resolve::settings(&args.plan, costs.links(args.link_scale), costs.is_modelled())?;
    let optimization = resolve::optimization(&args.optimizer)?;
    let programs = program::training_within(net, &optimization, settings.budgets.device)?;
    let sources = (&args.model, &args.optimizer);
    let first = first_planned(programs, &costs, &settings, args.explain.as_deref());
    let (plain, explained, value) = first.map_err(|error| advise_plan(error, sources, &costs, &settings))?;
    let split = Beside::of(&plain, sources, &costs, &settings)?;
    let explained = Explained { split, ..explained };
    if let Some(path) = &args.plan.out {
        resolve::write_schedule(path, &explained.planned.schedule)?;
    }
    if let Some(value) = value {
        return explain::report(&explained.planned, &settings, value);
    }
    let mut text = describe(&explained, &settings);
    if args.print {
        text = format!("{}\n{text}", explained.planned.schedule.to_text());
    }
    Ok(Report::new(document(&args.model.model, &explained, &settings), text))
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

fn explain(subject: Subject, machine: String, settings: &Settings) -> Result<Explained> {
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
        predicted_ms: timeline.seconds * 1e3,
        oracle_ms: oracle_seconds(problem.program, problem.kernels) * 1e3,
        planning_seconds,
        split: None,
        planned,
    })
}

fn document(model: &str, explained: &Explained, settings: &Settings) -> Value {
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
        "predicted_ms": explained.predicted_ms,
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
        "gap_percent": bound.gap(explained.predicted_ms / 1e3) * 100.0,
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

fn describe(explained: &Explained, settings: &Settings) -> String {
    let Explained { planned, stats, .. } = explained;
    let schedule = &planned.schedule;
    let budget = settings.budgets.device.map_or("none".to_string(), |b| format!("{} ({b} bytes)", format_bytes(b)));
    let bytes = |b: u64| format!("{} ({b} bytes)", format_bytes(b));
    let slowdown = (explained.predicted_ms / explained.oracle_ms - 1.0) * 100.0;
    let mut text = format!(
        "{} under {} on {}: {} steps, {} commands, checked, planned in {:.3} s\n\n",
        schedule.name,
        schedule.policy,
        explained.machine,
        planned.program.n_steps(),
        schedule.commands.len(),
        explained.planning_seconds,
    );
    let rows = [
        ("budget", budget),
        ("peak", bytes(schedule.peak_bytes(Space::Device))),
        ("live at the peak", live_at_peak(explained)),
        ("floor of the policy", bytes(explained.floor)),
        ("any kernel by itself", bytes(explained.floor_bound)),
        ("split", explained.split.as_ref().map_or("nothing".to_string(), Beside::to_string)),
        ("host memory", bytes(schedule.peak_bytes(Space::Host))),
        ("on disk", on_disk(&planned.schedule)),
        ("offloaded per step", bytes(schedule.transfer_bytes(Direction::Offload))),
        ("prefetched per step", bytes(schedule.transfer_bytes(Direction::Prefetch))),
        ("streamed", format!("{} of parameters and states live in host memory", bytes(planned.streamed_bytes()))),
        ("made again", format!("{:.3} ms of kernels", planned.recompute_seconds() * 1e3)),
        ("encoded", encoded(planned)),
        (
            "predicted step",
            format!(
                "{:.3} ms, {slowdown:+.1} % over the fastest kernels' {:.3} ms",
                explained.predicted_ms, explained.oracle_ms
            ),
        ),
        ("no plan is below", bound_text(explained)),
    ];
    for (name, value) in rows {
        text.push_str(&format!("{name:22}{value}\n"));
    }
    text.push_str(&format!("\nlargest at the peak, {}:\n", stats.live_peak.node.as_deref().unwrap_or("the start")));
    for (name, size) in &stats.live_peak.largest {
        text.push_str(&format!("  {:32} {}\n", name, bytes(*size)));
    }
    text
}

/// What rests in a file, and how much is written and read.
fn on_disk(schedule: &Schedule) -> String {
    let moved = |way| format_bytes(schedule.disk_bytes(way));
    match schedule.peak_bytes(Space::Disk) {
        0 => "nothing".to_string(),
        peak => format!(
            "{} ({peak} bytes); {} written, {} read per step",
            format_bytes(peak),
            moved(Direction::Offload),
            moved(Direction::Prefetch)
        ),
    }
}

/// What gradients read in place of feature maps.
fn encoded(planned: &Planned) -> String {
    let graph = &planned.program.graph;
    let of = |is: fn(&Op) -> bool| {
        let made: Vec<u64> = graph
            .nodes()
            .iter()
            .filter(|node| is(&node.op))
            .map(|node| node.outputs[1])
            .map(|id| graph.value(id).ty.bytes())
            .collect();
        (made.len(), made.iter().sum::<u64>())
    };
    let (masks, pools) = (of(|op| *op == Op::ReluMask), of(|op| matches!(op, Op::MaxPool2dIndices(_))));
    match masks.0 + pools.0 {
        0 => "nothing".to_string(),
        _ => format!(
            "{} ReLU by masks ({}), {} max pools by indices ({})",
            masks.0,
            format_bytes(masks.1),
            pools.0,
            format_bytes(pools.1)
        ),
    }
}

/// The largest live set, which no placement of this plan can be below, and what the addresses add to it.
fn live_at_peak(explained: &Explained) -> String {
    let (live, peak) = (explained.stats.live_peak.bytes, explained.planned.schedule.peak_bytes(Space::Device));
    let over = (peak as f64 / live.max(1) as f64 - 1.0) * 100.0;
    format!("{} ({live} bytes), no addresses need less; these take {over:.2} % more", format_bytes(live))
}

/// The lower bound on the step, how far the plan is from it, and where it comes from.
fn bound_text(explained: &Explained) -> String {
    let bound = &explained.bound;
    let gap = bound.gap(explained.predicted_ms / 1e3) * 100.0;
    let text = format!("{:.3} ms under this budget; this one takes {gap:.1} % more", bound.seconds * 1e3);
    match bound.cut {
        None => format!("{text} (kernels alone)"),
        Some(cut) => format!(
            "{text} (at {} {} cannot be there)",
            explained.planned.program.node_at(cut.step).name,
            format_bytes(cut.absent)
        ),
    }
}
