//! What each node may run as: plans listed by cuDNN and timed here, the others' times measured or, without memory to
//! measure in, estimated from bytes.
//!
//! ```text
//!  node ─► problem ─► measured before? ─► choices
//!                        │ no
//!                        └─► plans, best guess first (search.rs) ─► time on scratch memory ─► faster or smaller than others?
//!
//!  all nodes ─► fastest choices in order, over and over (rehearsal.rs) ─► how much longer each takes among the others
//! ```

mod epilogue;
mod pieces;
mod rehearsal;
mod search;
mod transposed;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use sha2::{Digest, Sha256};
use vdnn_graph::{Graph, Node};
use vdnn_schedule::Choice;
use vdnn_tensor::TensorType;

use super::cache::{Measured, Measurements};
use super::chain::{Chain, LaunchTimes};
use super::convolution::{self, Convolution};
use super::gpu::{Bytes, Gpu, Work};
use super::measure::{self, MeasureOptions, Places, Scratch, Timer, is_index};
use super::product::{self, Algorithm, LARGE, SMALL};
use super::site::{EMPTY, OWN, Plans, Site};
use crate::CudaError;
use crate::cudnn::{Listing, Plan, Precision, Target, Wanted};
use crate::kernels::{self, KernelLaunch, Operand};
use crate::memory::fill_address;

/// Seconds to launch a kernel, where nothing was measured.
const LAUNCH: f64 = 3e-6;
/// Bytes a second, where nothing could be measured.
const UNKNOWN_RATE: f64 = 1e12;
/// FLOP from which a product may gain by a large workspace.
const LARGE_PRODUCT: f64 = 2e8;

/// Why a kernel has no choices.
#[derive(Debug)]
pub(super) enum Failure {
    /// It cannot run so.
    Refused(String),
    /// The GPU or a library failed.
    Broken(CudaError),
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Self {
        Failure::Broken(error)
    }
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Failure::Refused(reason)
    }
}

/// A node with operands whose addresses count only by what they share: each storage has a base of its own.
#[derive(Clone, Debug)]
pub(super) struct Pattern<'a> {
    pub node: &'a Node,
    pub key: String,
    pub inputs: Vec<Operand<'a>>,
    pub outputs: Vec<Operand<'a>>,
    pub precision: Precision,
}

impl<'a> Pattern<'a> {
    fn site(&self, algorithm: &'a str) -> Site<'a> {
        let (inputs, outputs) = (self.inputs.clone(), self.outputs.clone());
        let (op, precision, workspace) = (&self.node.op, self.precision, Bytes::default());
        Site { op, precision, inputs, outputs, algorithm, workspace }
    }

    /// The convolution's key; `None` for other ops and for convolutions over nothing.
    fn convolution_key(&self, deterministic: bool) -> Option<String> {
        let found = convolution::of(&self.site(EMPTY))?.ok()?;
        (!found.is_empty()).then(|| convolution_key(&found, deterministic))
    }

    /// Sources of own kernels, if that is what it runs as.
    fn own_files(&self) -> BTreeSet<&'static str> {
        self.own_launches().iter().map(|launch| launch.file).collect()
    }

    /// Launches of own kernels, if that is what it runs as.
    fn own_launches(&self) -> Vec<KernelLaunch> {
        let plans = match (epilogue::statistics_of(self), &self.outputs[..]) {
            (Some(node), [y, mean, variance]) => vec![
                kernels::prepare(&node.op, &[*y], &[*mean, *variance], 0),
                kernels::statistics_of_sums([0; 2], 1, *mean, *variance),
            ],
            _ => vec![kernels::prepare(&self.node.op, &self.inputs, &self.outputs, 0)],
        };
        plans.into_iter().flatten().flat_map(|plan| plan.launches).collect()
    }

    /// What its own kernels are: other device code, or other grids, have other times. Empty without own kernels.
    fn own_code(&self) -> String {
        code_of(&self.own_launches())
    }

    /// Bytes of all operands.
    fn bytes(&self) -> f64 {
        self.inputs.iter().chain(&self.outputs).map(|operand| operand.ty.bytes() as f64).sum()
    }

    /// How far samples lie apart where operands are slices, for keys.
    fn slices(&self) -> String {
        let all = self.inputs.iter().chain(&self.outputs).enumerate();
        let slices = all.filter(|(_, operand)| !operand.is_contiguous());
        slices.map(|(index, operand)| format!(" {index}+{}", operand.row_stride)).collect()
    }
}

/// A short digest of what launches run: sources, functions, grids and blocks. Addresses do not count.
fn code_of(launches: &[KernelLaunch]) -> String {
    let mut hash = Sha256::new();
    for KernelLaunch { file, function, grid, block, shared_bytes, args: _ } in launches {
        hash.update(format!("{function} {grid:?} {block:?} {shared_bytes}\n{}", kernels::source(file).unwrap_or("")));
    }
    if launches.is_empty() {
        String::new()
    } else {
        hash.finalize()[..6].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn convolution_key(found: &Convolution<'_>, deterministic: bool) -> String {
    let kind = if deterministic { "deterministic" } else { "any" };
    format!("{kind} {}", found.problem)
}

/// Measures kernels and remembers what it measured.
#[derive(Debug)]
pub(super) struct Bench {
    pub plans: Plans,
    measured: Measurements,
    scratch: Scratch,
    timer: Timer,
    /// Whether a chain was asked for since measuring began.
    chained: bool,
    options: MeasureOptions,
    spent: f64,
    spent_on_pieces: f64,
}

impl Bench {
    pub fn new(gpu: &Gpu, folder: Option<&Path>, device: &str, options: MeasureOptions) -> Result<Self, CudaError> {
        let (plans, scratch, mut timer) = (Plans::default(), Scratch::default(), Timer::new(gpu)?);
        let measured = Measurements::open(folder, device);
        timer.launch = measured.launch();
        Ok(Bench { plans, measured, scratch, timer, chained: false, options, spent: 0.0, spent_on_pieces: 0.0 })
    }

    /// See [`MeasureOptions::pieces_from`].
    pub fn pieces_from(&self) -> u64 {
        self.options.pieces_from
    }

    /// Choices of every pattern, in order. Scratch memory is given back at the end.
    pub fn choices(
        &mut self,
        gpu: &mut Gpu,
        patterns: &[Pattern<'_>],
        deterministic: bool,
    ) -> Vec<Result<Vec<Choice>, Failure>> {
        gpu.compile(&patterns.iter().flat_map(Pattern::own_files).collect());
        let unknown = patterns.iter().filter_map(|pattern| pattern.convolution_key(deterministic));
        let mut unknown: BTreeSet<String> = unknown.filter(|key| self.measured.find(key).is_none()).collect();
        let mut all = Vec::with_capacity(patterns.len());
        for pattern in patterns {
            let start = Instant::now();
            // Twice an equal share each, so that quick kernels leave time for slow ones.
            let share = 2.0 * (self.options.seconds - self.spent).max(0.0) / unknown.len().max(1) as f64;
            let choices = self.choices_of(gpu, pattern, deterministic, share);
            self.spent += start.elapsed().as_secs_f64();
            if let Some(key) = pattern.convolution_key(deterministic) {
                unknown.remove(&key);
            }
            let broken = matches!(choices, Err(Failure::Broken(_)));
            all.push(choices);
            if broken {
                break;
            }
        }
        self.finish();
        all
    }

    /// Gives scratch memory back and keeps what was measured.
    fn finish(&mut self) {
        self.scratch = Scratch::default();
        (self.timer.chain, self.chained) = (None, false);
        self.measured.save();
    }

    /// What launches take, once something was measured here, now or in an earlier run.
    pub fn launch(&self) -> Option<LaunchTimes> {
        self.timer.launch
    }

    /// The chain that launches were timed beside, to be used elsewhere; `None` where none can be captured.
    pub fn chain(&mut self, gpu: &mut Gpu) -> Result<Option<Chain>, Failure> {
        self.begin(gpu)?;
        self.chained = false;
        Ok(self.timer.chain.take())
    }

    /// Makes the timer ready for kernels that were not measured before: with a chain, and with what that says of launches.
    pub fn begin(&mut self, gpu: &mut Gpu) -> Result<(), Failure> {
        if self.chained {
            return Ok(());
        }
        self.timer.chain = match Chain::new(gpu, &mut self.plans) {
            Ok(chain) => Some(chain),
            Err(Failure::Refused(_)) => None,
            Err(Failure::Broken(_)) => {
                // Launches can be timed without, unless this took the whole device with it.
                gpu.context.synchronize()?;
                None
            }
        };
        self.chained = true;
        if self.timer.launch.is_none()
            && let Some(launch) = self.timer.launches(gpu, &self.options)?
        {
            self.timer.launch = Some(launch);
            self.measured.record_launch(launch);
        }
        Ok(())
    }

    fn choices_of(
        &mut self,
        gpu: &mut Gpu,
        pattern: &Pattern<'_>,
        deterministic: bool,
        share: f64,
    ) -> Result<Vec<Choice>, Failure> {
        let site = pattern.site(OWN);
        let mut choices = if let Some(found) = convolution::of(&site) {
            let found = found?;
            if found.is_empty() { nothing(EMPTY) } else { self.convolution(gpu, &found, deterministic, share)? }
        } else if let Some(found) = product::of(&site) {
            let found = found?;
            if found.is_empty() { nothing(EMPTY) } else { self.products(gpu, pattern, &found.product)? }
        } else {
            return self.own(gpu, pattern);
        };
        let bias = self.bias(gpu, pattern)?;
        choices.iter_mut().for_each(|choice| choice.seconds += bias);
        self.add_statistics(gpu, pattern, &mut choices)?;
        choices.extend(self.taking_in(gpu, &site, deterministic, share)?);
        choices.extend(self.transposed(gpu, pattern, &site, deterministic, share)?);
        Ok(worthwhile(choices))
    }

    fn convolution(
        &mut self,
        gpu: &mut Gpu,
        found: &Convolution<'_>,
        deterministic: bool,
        share: f64,
    ) -> Result<Vec<Choice>, Failure> {
        let key = convolution_key(found, deterministic);
        let mut places = Places::default();
        found.operands.iter().for_each(|operand| {
            places.operand(operand);
        });
        let available = self.scratch.available(gpu)?.saturating_sub(places.end() + 256);
        if let Some(measured) = self.measured.find(&key).filter(|measured| measured.holds(available)) {
            return Ok(measured.choices.clone());
        }
        self.begin(gpu)?;
        let gpu = &*gpu;
        let wanted = Wanted { deterministic, workspace_limit: u64::MAX, runtime_compiled: false };
        let listing = Listing::new(Target::Device(&gpu.cudnn), &found.problem, &wanted);
        let mut listing = listing.map_err(|e| e.to_string())?;
        let search::Found { timed, complete, too_large } = self.search(gpu, found, &mut listing, share)?;
        if timed.is_empty() {
            let wanted =
                |least: u64| format!("its plans want workspace from {least} bytes on, expected {available} at most");
            return Err(too_large.map_or_else(|| listing.none().to_string(), wanted).into());
        }
        let choices = timed.iter().map(|(plan, seconds)| choice_of(plan, *seconds)).collect();
        let choices = worthwhile(choices);
        for (plan, _) in timed {
            if choices.iter().any(|choice| choice.algorithm == plan.name.to_string()) {
                self.plans.keep(Arc::new(plan));
            }
        }
        self.measured.record(key, Measured { choices: choices.clone(), too_large, complete });
        Ok(choices)
    }

    fn products(
        &mut self,
        gpu: &mut Gpu,
        pattern: &Pattern<'_>,
        product: &crate::blas::Product,
    ) -> Result<Vec<Choice>, Failure> {
        let key = format!("{}{}", pattern.key, pattern.slices());
        if let Some(measured) = self.measured.find(&key) {
            return Ok(measured.choices.clone());
        }
        let flop = 2.0 * product.m as f64 * product.n as f64 * product.k as f64;
        let algorithms: &[Algorithm] = if flop >= LARGE_PRODUCT { &[SMALL, LARGE] } else { &[SMALL] };
        let mut choices = Vec::new();
        for &Algorithm { name, workspace } in algorithms {
            // The bias is counted by the caller.
            let mut site = pattern.site(name);
            site.inputs.truncate(2);
            let seconds = self
                .on_scratch(gpu, site, workspace)?
                .map_or_else(|| flop / 10e12 + self.launch_seconds(), |(seconds, _)| seconds);
            choices.push(Choice { algorithm: name.to_string(), workspace, seconds, deterministic: true });
        }
        let choices = worthwhile(choices);
        self.measured.record(key, Measured { choices: choices.clone(), too_large: None, complete: true });
        Ok(choices)
    }

    fn own(&mut self, gpu: &mut Gpu, pattern: &Pattern<'_>) -> Result<Vec<Choice>, Failure> {
        let types: Vec<&TensorType> = pattern.inputs.iter().map(|operand| operand.ty).collect();
        let workspace = kernels::workspace(&pattern.node.op, &types);
        let plan =
            kernels::prepare(&pattern.node.op, &pattern.inputs, &pattern.outputs, 0).map_err(|e| e.to_string())?;
        let launches = plan.launches.len();
        if launches == 0 {
            return Ok(nothing(OWN));
        }
        let key = format!("{}{} as {}", pattern.key, pattern.slices(), code_of(&plan.launches));
        if let Some(measured) = self.measured.find(&key) {
            return Ok(measured.choices.clone());
        }
        let in_time = self.spent < self.options.seconds;
        let timed = if in_time { self.on_scratch(gpu, pattern.site(OWN), workspace)? } else { None };
        let seconds = match timed {
            // On scratch memory all parts of a concat or split move; in place some may lie where they belong.
            Some((seconds, all)) => seconds * launches as f64 / all.max(1) as f64,
            None => self.estimate(gpu, pattern.bytes(), launches)?,
        };
        let choices = vec![Choice { algorithm: OWN.to_string(), workspace, seconds, deterministic: true }];
        self.measured.record(key, Measured { choices: choices.clone(), too_large: None, complete: timed.is_some() });
        Ok(choices)
    }

    /// Runs a launch on scratch memory: seconds and number of works. `None` when there is not enough memory.
    fn on_scratch(
        &mut self,
        gpu: &mut Gpu,
        mut site: Site<'_>,
        workspace: u64,
    ) -> Result<Option<(f64, usize)>, Failure> {
        self.begin(gpu)?;
        let mut places = Places::default();
        site.inputs.iter_mut().for_each(|operand| *operand = places.read(operand));
        site.outputs.iter_mut().for_each(|operand| *operand = places.operand(operand));
        let offset = places.bytes(workspace);
        let Some(base) = self.scratch.take(gpu, places.end())? else { return Ok(None) };
        for operand in site.inputs.iter_mut().chain(&mut site.outputs) {
            operand.address += base.address;
            if is_index(operand.ty) {
                // SAFETY: scratch memory belongs to this measurement.
                unsafe { fill_address(&gpu.streams.compute, operand.address, operand.ty.bytes(), 0)? };
            }
        }
        site.workspace = Bytes { address: base.address + offset, bytes: workspace };
        let works = site.works(gpu, &mut self.plans)?;
        let seconds = self.timer.seconds(gpu, &works, None, &self.options)?;
        Ok(Some((seconds, works.len())))
    }

    /// Seconds of kernels bound by memory.
    fn estimate(&mut self, gpu: &Gpu, bytes: f64, launches: usize) -> Result<f64, Failure> {
        let key = "copy rate";
        let rate = match self.measured.find(key) {
            Some(measured) => measured.choices.first().map_or(UNKNOWN_RATE, |choice| 1.0 / choice.seconds),
            None => {
                let rate = measure::copy_rate(gpu, &self.timer)?.unwrap_or(UNKNOWN_RATE);
                let per_byte =
                    Choice { algorithm: "copy".into(), workspace: 0, seconds: 1.0 / rate, deterministic: true };
                let (choices, too_large, complete) = (vec![per_byte], None, rate != UNKNOWN_RATE);
                self.measured.record(key.to_string(), Measured { choices, too_large, complete });
                rate
            }
        };
        Ok(bytes / rate + self.launch_seconds() * launches as f64)
    }

    /// Seconds of a launch beside what it moves.
    fn launch_seconds(&self) -> f64 {
        self.timer.launch.map_or(LAUNCH, |launch| launch.chained)
    }
}

/// The choice of nodes that have nothing to run.
fn nothing(name: &str) -> Vec<Choice> {
    vec![Choice { algorithm: name.to_string(), workspace: 0, seconds: 0.0, deterministic: true }]
}

fn choice_of(plan: &Plan, seconds: f64) -> Choice {
    let (algorithm, workspace) = (plan.name.to_string(), plan.workspace_bytes);
    Choice { algorithm, workspace, seconds, deterministic: !plan.notes.nondeterministic }
}

/// The choices that are faster than every one with as little workspace, fastest first.
fn worthwhile(mut choices: Vec<Choice>) -> Vec<Choice> {
    choices.sort_by(|a, b| a.seconds.total_cmp(&b.seconds).then(a.workspace.cmp(&b.workspace)));
    let mut least = u64::MAX;
    choices.retain(|choice| {
        let better = choice.workspace < least;
        least = least.min(choice.workspace);
        better
    });
    choices
}

/// The patterns of a graph's nodes, with slices and shared bytes as its plain order has them.
pub(super) fn patterns<'g>(graph: &'g Graph) -> Vec<Pattern<'g>> {
    let order: Vec<_> = graph.node_ids().collect();
    // A graph that cannot be analysed cannot become a program either; its refusal comes from there.
    let aliases = vdnn_graph::Aliases::analyse(graph, &order, vdnn_graph::InPlace::Allowed).ok();
    let operand = |id: &vdnn_graph::ValueId| {
        let ty = &graph.value(*id).ty;
        match aliases.as_ref().map(|aliases| aliases.location(*id)) {
            Some(place) => Operand::from_rows(ty, base(place.root) + place.offset, place.rows, place.row_stride),
            None => Operand::contiguous(ty, base(*id)),
        }
    };
    let precision = precision(graph);
    let pattern = |node: &'g Node| {
        let Node { inputs, outputs, .. } = node;
        let (inputs, outputs) = (inputs.iter().map(operand).collect(), outputs.iter().map(operand).collect());
        Pattern { node, key: vdnn_schedule::kernel_key(graph, node), inputs, outputs, precision }
    };
    graph.nodes().iter().map(pattern).collect()
}

/// A base address of its own for every storage, as far from the next as no storage is long.
fn base(root: vdnn_graph::ValueId) -> u64 {
    (u64::from(root.0) + 1) << 40
}

/// The arithmetic of a graph's convolutions and products.
pub(super) fn precision(graph: &Graph) -> Precision {
    match graph.precision {
        vdnn_graph::Precision::F32 => Precision::Fp32,
        vdnn_graph::Precision::Tf32 => Precision::Tf32,
    }
}

#[cfg(test)]
mod tests;
