//! `vdnn compare`: networks × batch sizes × machines × policies × budgets, each cell planned, checked and simulated.
//!
//! ```text
//!   case   = network, batch size, machine, link scale      planned once without budget and once for every floor; under a
//!                                                          budget with norms apart too, as `vdnn plan` does
//!   budget = bytes, none, or a share of the way            0 % the least floor of the policies … 100 % what `none` takes
//!   cell   = case, policy, budget                          planned side by side on all cores, listed in a fixed order
//! ```
//!
//! A cell that cannot be planned is a finding, not a failure: it states the policy's floor. Left to others: one cell
//! (`cell`), tables and CSV (`text`), curves (`svg`), costs (`costs`).

mod cell;
mod svg;
mod text;

use super::args::{Budget, Dtype, Fuse, MethodArgs, ModelArgs, OptimizerArgs, budget, factor, fuse};
use super::costs::Costs;
use super::{Report, resolve};
use anyhow::{Context, Result, bail};
use cell::{Cell, Place};
use clap::Args;
use rayon::prelude::*;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use vdnn_graph::Program;
use vdnn_layers::Mode;
use vdnn_memory::{Budgets, HomeLayout, Options, policies};
use vdnn_schedule::Space;
use vdnn_sim::{Links, oracle_seconds};
use vdnn_tensor::Bytes;
use vdnn_train::{Encodings, Settings, Subject, TrainError, plan, program};

/// More planning threads than any processor has cores for.
const MAX_THREADS: usize = 1024;

/// Options of `vdnn compare`.
#[derive(Args)]
pub struct CompareCommand {
    /// Networks, separated by commas; see `vdnn models`.
    #[arg(long, alias = "model", value_delimiter = ',', default_value = "vgg16")]
    models: Vec<String>,
    /// Samples in a batch, separated by commas.
    #[arg(long, short = 'b', alias = "batch-size", value_delimiter = ',', default_value = "64")]
    batch_sizes: Vec<u64>,
    /// Height and width of the images (the network's own unless given).
    #[arg(long)]
    image_size: Option<u64>,
    /// Number of classes (the network's own unless given).
    #[arg(long)]
    classes: Option<u64>,
    /// Arithmetic.
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,
    /// Batch norm, ReLU and the residual sum between them in one kernel: with tf32, bf16 and f16 (auto), never, or always.
    #[arg(long, value_parser = fuse, default_value = "auto")]
    fuse: Fuse,
    /// Parts of the batch that networks run on one after the other from the images on; see `vdnn plan --help`.
    #[arg(long, value_name = "K")]
    split_batch: Option<u64>,
    /// The value at which those parts are joined, in place of the one that was found.
    #[arg(long, value_name = "VALUE", requires = "split_batch")]
    split_at: Option<String>,
    /// Policies, separated by commas (all of `vdnn policies` unless given).
    #[arg(long, alias = "policy", value_delimiter = ',')]
    policies: Vec<String>,
    /// Budgets, separated by commas: bytes, `none`, or N% of the way from the least floor of the compared policies (0%) to
    /// the peak of `none` (100%).
    #[arg(long, alias = "budget", value_delimiter = ',', value_parser = asked, default_value = "100%,75%,50%,25%,0%")]
    budgets: Vec<Asked>,
    /// Machine descriptions by name or file, separated by commas (titan-x unless machines or profiles are given).
    #[arg(long, alias = "machine", value_delimiter = ',')]
    machines: Vec<String>,
    /// Recorded profile of a device; may be given several times.
    #[arg(long)]
    profile: Vec<PathBuf>,
    /// Machine that prices what a profile lacks, by name or file (such a profile is refused unless given).
    #[arg(long, requires = "profile")]
    fallback: Option<String>,
    /// Multiply the rates of copies by these factors, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = factor, default_value = "1")]
    link_scale: Vec<f64>,
    #[command(flatten)]
    optimizer: OptimizerArgs,
    #[command(flatten)]
    method: MethodArgs,
    /// Threads that plan; all cores unless given. With 1, planning times are undisturbed.
    #[arg(long)]
    threads: Option<usize>,
    /// Write the cells to this file, comma-separated.
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Draw Pareto curves into this file.
    #[arg(long)]
    svg: Option<PathBuf>,
    #[command(flatten)]
    axes: svg::Axes,
}

/// A budget as asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    /// Bytes, or no limit.
    Fixed(Budget),
    /// Per cent of the way from the least floor to what `none` takes.
    Share(f64),
}

fn asked(text: &str) -> Result<Asked, String> {
    let Some(number) = text.trim().strip_suffix('%') else { return budget(text).map(Asked::Fixed) };
    let share = number.trim().parse::<f64>().ok().filter(|share| (0.0..=100.0).contains(share));
    share.map(Asked::Share).ok_or_else(|| format!("expected 0% to 100%, found {text}"))
}

/// What is planned for under several policies and budgets.
pub struct Case {
    /// Network.
    pub model: String,
    /// Samples in a batch.
    pub batch_size: u64,
    /// Machine or profiled device.
    pub machine: String,
    /// Factor on the rates of copies.
    pub link_scale: f64,
    /// Planned peak of `none` without a budget.
    pub none_peak: Bytes,
    /// Least floor of the compared policies.
    pub least_floor: Bytes,
    /// Sum of the fastest kernels.
    pub oracle_ms: f64,
    /// Nodes priced by measurement, and by a machine description.
    pub measured_kernels: usize,
    pub modelled_kernels: usize,
    /// Of each policy, in the order asked for.
    floors: Vec<Bytes>,
    /// As the network is built; within a budget also with its norms apart, if it has any that were fused.
    subjects: Vec<(Subject, HomeLayout)>,
    links: Links,
    options: Options,
    encodings: Encodings,
}

impl Case {
    /// What tables and panels call it: the machine, and the link's factor where there is one.
    pub fn machine_title(&self) -> String {
        if self.link_scale == 1.0 {
            self.machine.clone()
        } else {
            format!("{} (link x{})", self.machine, self.link_scale)
        }
    }

    fn settings(&self, policy: &str, budgets: Budgets) -> Result<Settings> {
        let policy = resolve::policy_named(policy)?;
        let (options, encodings) = (self.options, self.encodings);
        Ok(Settings { options, budgets, encodings, ..Settings::new(policy, self.links) })
    }

    /// What may be planned within budgets, and what is to be preferred first.
    fn subjects(&self, budgets: &Budgets) -> Result<Vec<&(Subject, HomeLayout)>, TrainError> {
        let subjects: Vec<_> = self.subjects.iter().collect();
        let Some(budget) = budgets.device else { return Ok(subjects[..1].to_vec()) };
        match subjects[..] {
            [fused, apart] if program::prefers_apart(&fused.0.plain.program, &apart.0.plain.program, budget)? => {
                Ok(vec![apart, fused])
            }
            _ => Ok(subjects),
        }
    }

    fn bytes(&self, asked: Asked) -> Option<Bytes> {
        match asked {
            Asked::Fixed(budget) => budget.0,
            Asked::Share(share) => {
                let way = self.none_peak.saturating_sub(self.least_floor);
                Some(self.least_floor + (way as f64 * share / 100.0).round() as Bytes)
            }
        }
    }
}

/// Plans all cells and reports.
pub fn run(args: &CompareCommand) -> Result<Report> {
    let names = policy_names(args)?;
    for path in args.csv.iter().chain(&args.svg) {
        resolve::check_folder(path)?;
    }
    let pool = pool(args.threads)?;
    let (cases, cells) = pool.install(|| -> Result<_> {
        let cases = cases(args, &names)?;
        let cells = cells(args, &names, &cases)?;
        Ok((cases, cells))
    })?;
    if let Some(path) = &args.csv {
        resolve::write_text(path, &text::csv(&cells))?;
    }
    if let Some(path) = &args.svg {
        resolve::write_text(path, &svg::draw(&cases, &cells, args.axes))?;
    }
    Ok(Report::new(document(&cases, &cells), text::table(&cases, &cells)))
}

/// The policies asked for, each once. Names are checked before anything is planned.
fn policy_names(args: &CompareCommand) -> Result<Vec<String>> {
    let all = || policies::REGISTRY.iter().map(|entry| entry.name.to_string()).collect();
    let names: Vec<String> = if args.policies.is_empty() { all() } else { args.policies.clone() };
    for (index, name) in names.iter().enumerate() {
        resolve::policy_named(name)?;
        if names[..index].contains(name) {
            bail!("--policies: expected each policy once, found {name} twice");
        }
    }
    Ok(names)
}

fn pool(threads: Option<usize>) -> Result<rayon::ThreadPool> {
    if let Some(found) = threads.filter(|threads| !(1..=MAX_THREADS).contains(threads)) {
        bail!("--threads: expected 1 to {MAX_THREADS}, found {found}");
    }
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0));
    builder.build().context("cannot start planning threads")
}

/// A case that is still to be set up.
struct Start<'a> {
    model: &'a str,
    batch_size: u64,
    programs: Vec<Arc<Program>>,
    costs: &'a Costs,
    link_scale: f64,
}

/// All cases: networks, then batch sizes, then machines, then link scales.
fn cases(args: &CompareCommand, names: &[String]) -> Result<Vec<Case>> {
    let costs = costs(args)?;
    let mut starts = Vec::new();
    for model in &args.models {
        for &batch_size in &args.batch_sizes {
            let programs: Vec<_> = programs_of(args, model, batch_size)?.into_iter().map(Arc::new).collect();
            for costs in &costs {
                for &link_scale in &args.link_scale {
                    starts.push(Start { model, batch_size, programs: programs.clone(), costs, link_scale });
                }
            }
        }
    }
    starts.into_par_iter().map(|start| case(args, names, start)).collect()
}

fn costs(args: &CompareCommand) -> Result<Vec<Costs>> {
    let default = args.machines.is_empty() && args.profile.is_empty();
    let machines = args.machines.iter().map(String::as_str).chain(default.then_some("titan-x"));
    let profiles = args.profile.iter().map(|path| Costs::of_profile(path, args.fallback.as_deref()));
    machines.map(Costs::of_machine).chain(profiles).collect()
}

/// The iteration as the network is built, and with norms apart where that makes another.
fn programs_of(args: &CompareCommand, model: &str, batch_size: u64) -> Result<Vec<Program>> {
    let CompareCommand { image_size, classes, dtype, fuse, split_batch, .. } = *args;
    let split_at = args.split_at.clone();
    let of = ModelArgs::of(model);
    let model = ModelArgs { batch_size, image_size, classes, dtype, fuse, split_batch, split_at, ..of };
    let build = resolve::network(&model, resolve::FromData::default(), 0)?;
    let net = program::network(&build, batch_size, Mode::Train)?;
    let optimization = resolve::optimization(&args.optimizer)?;
    let fused = program::training(net.clone(), &optimization)?;
    let apart = program::training_apart(net, &optimization, &fused)?;
    Ok(std::iter::once(fused).chain(apart).collect())
}

/// Prices a case and finds its ends: what `none` takes, and each policy's floor. Norms apart are left out where they cannot be priced,
/// as by profiles that were recorded without them.
fn case(args: &CompareCommand, names: &[String], start: Start<'_>) -> Result<Case> {
    let options = resolve::options(&args.method, start.costs.is_modelled());
    let fused = &start.programs[0];
    let priced = start.costs.estimate(fused)?;
    let price = |program: &Program| start.costs.estimate(program).map(|priced| priced.table);
    let takes = |name: &String| policies::find(name).is_some_and(|policy| policy.takes_encodings());
    let encodings = args.method.encodings == Encodings::Auto && names.iter().any(takes);
    let mut case = Case {
        model: start.model.to_string(),
        batch_size: start.batch_size,
        machine: start.costs.name().to_string(),
        link_scale: start.link_scale,
        none_peak: 0,
        least_floor: 0,
        oracle_ms: oracle_seconds(fused, &priced.table) * 1e3,
        measured_kernels: priced.measured,
        modelled_kernels: priced.modelled,
        floors: Vec::new(),
        subjects: Vec::new(),
        encodings: args.method.encodings,
        links: start.costs.links(start.link_scale),
        options,
    };
    for (index, program) in start.programs.into_iter().enumerate() {
        let homes = plan::layout(&[&program.graph], &options);
        match Subject::priced(program, encodings, price) {
            Ok(subject) => case.subjects.push((subject, homes)),
            Err(error) if index == 0 => return Err(error),
            Err(_) => {}
        }
    }
    let floor = |name: &String| {
        let settings = case.settings(name, Budgets::default())?;
        let floors = case.subjects.iter().map(|(subject, homes)| plan::floor(subject, homes, &settings));
        floors.reduce(|least, floor| Ok(least?.min(floor?))).context("a case has a subject")?.map_err(Into::into)
    };
    let floors: Vec<Bytes> = names.par_iter().map(floor).collect::<Result<_>>()?;
    let (subject, homes) = &case.subjects[0];
    let none = plan::plan(subject.clone(), homes, &case.settings("none", Budgets::default())?)?;
    case.none_peak = none.schedule.peak_bytes(Space::Device);
    case.least_floor = floors.iter().copied().min().unwrap_or(0);
    case.floors = floors;
    Ok(case)
}

/// All cells: of each case the policies as asked for, of each policy the budgets as asked for.
fn cells(args: &CompareCommand, names: &[String], cases: &[Case]) -> Result<Vec<Cell>> {
    let mut places = Vec::new();
    for case in 0..cases.len() {
        for policy in 0..names.len() {
            places.extend(args.budgets.iter().map(|&budget| (case, policy, budget)));
        }
    }
    let cell = |(case, policy, budget): (usize, usize, Asked)| {
        let budgets = resolve::budgets(cases[case].bytes(budget), &args.method);
        let percent = if let Asked::Share(share) = budget { Some(share) } else { None };
        let place = Place { case, policy: &names[policy], floor: cases[case].floors[policy], percent, budgets };
        cell::planned(&cases[case], place).with_context(|| {
            let Case { model, batch_size, machine, .. } = &cases[case];
            format!("{model}, batch {batch_size}, on {machine} under {}", names[policy])
        })
    };
    places.into_par_iter().map(cell).collect()
}

fn document(cases: &[Case], cells: &[Cell]) -> serde_json::Value {
    let case = |case: &Case| {
        json!({
            "model": case.model, "batch_size": case.batch_size, "machine": case.machine, "link_scale": case.link_scale,
            "none_peak_bytes": case.none_peak, "least_floor_bytes": case.least_floor, "oracle_ms": case.oracle_ms,
            "measured_kernels": case.measured_kernels, "modelled_kernels": case.modelled_kernels,
        })
    };
    json!({ "cases": cases.iter().map(case).collect::<Vec<_>>(), "cells": cells })
}
