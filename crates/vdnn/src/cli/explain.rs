//! `vdnn plan --explain VALUE`: why one value is where it is.
//!
//! ```text
//!   uses   every step that touches the value's storage
//!   gaps   between them: how long, what the plan does there, what else would cost
//!   lies   the buffers that hold it, and when
//! ```
//!
//! Values that share bytes (in place, concat slices, reshapes) move together, so everything here is said of the *storage*
//! the value lies in. Costs are those of the planned kernels; making a storage again is priced by the nodes that write
//! it, as if what they read were at hand. Left to others: deciding (the policies), and the words (`text`).

mod lies;
mod text;

pub use text::serde_name;

use self::lies::{Lies, lies};
use super::{Report, resolve};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use vdnn_graph::{Phase, Program, Role, Use, ValueId};
use vdnn_memory::{Residency, Tier};
use vdnn_schedule::{Action, Direction, Space, Timeline};
use vdnn_sim::simulate;
use vdnn_tensor::{Bytes, format_bytes};
use vdnn_train::{Planned, Settings, Subject};

/// All there is to say about a value.
#[derive(Serialize)]
pub struct Explanation {
    pub value: String,
    pub role: Role,
    /// As the graph's text has it, for example `f32[64,3,224,224]`.
    pub ty: String,
    pub bytes: Bytes,
    /// The node that makes it; null for inputs, parameters and states.
    pub producer: Option<String>,
    pub storage: Storage,
    pub policy: String,
    pub budget_bytes: Option<Bytes>,
    pub uses: Vec<Used>,
    pub gaps: Vec<GapStory>,
    pub lies: Vec<Lies>,
}

/// The bytes the value lies in.
#[derive(Serialize)]
pub struct Storage {
    pub name: String,
    pub bytes: Bytes,
    /// First byte of the value, from the start of the storage.
    pub offset: Bytes,
    /// All values that lie there.
    pub values: Vec<String>,
}

/// One step that touches the storage.
#[derive(Serialize)]
pub struct Used {
    pub step: usize,
    pub node: String,
    pub run: u16,
    pub phase: Phase,
    pub reads: Vec<String>,
    pub writes: Vec<String>,
    #[serde(skip)]
    pub ends: Use,
}

/// The time between two consecutive uses.
#[derive(Serialize)]
pub struct GapStory {
    pub from_step: usize,
    pub to_step: usize,
    /// True for the gap from the last use to the first one of the next iteration.
    pub wraps: bool,
    /// Steps strictly between.
    pub idle_steps: usize,
    /// Time of the kernels strictly between, back to back.
    pub compute_ms: f64,
    /// The same time in the simulated iteration, waits included.
    pub simulated_ms: f64,
    /// `keep`, `offload` or `drop`.
    pub residency: &'static str,
    pub tier: Option<&'static str>,
    pub release: Option<At>,
    pub fetch: Option<At>,
    /// Of what rests on disk: the first step that the slot down is free at, and the one that takes the slot up.
    pub written: Option<At>,
    pub read: Option<At>,
    /// Whether bytes that leave are copied down; false where a copy from an earlier gap is still valid.
    pub copied_down: bool,
    /// The node whose later run brings dropped bytes back.
    pub made_again_by: Option<String>,
    /// What a copy of the storage takes each way, alone on its link.
    pub offload_ms: f64,
    pub prefetch_ms: f64,
    /// Time of the nodes that had written the storage; null when it cannot be computed again.
    pub recompute_ms: Option<f64>,
    pub note: String,
}

/// A step with its node.
#[derive(Serialize)]
pub struct At {
    pub step: usize,
    pub node: Option<String>,
}

/// The value of this name, with or without the `%` that schedules print before it. Ids are the same in both programs of a
/// subject; masks and indices are in the encoded one alone.
pub fn find(subject: &Subject, name: &str) -> Result<ValueId> {
    let graph = &subject.encoded.as_ref().unwrap_or(&subject.plain).program.graph;
    let bare = name.strip_prefix('%').unwrap_or(name);
    let found = graph.value_ids().find(|&id| graph.value(id).name == bare);
    found.with_context(|| resolve::unknown("value", bare, graph.values().iter().map(|value| value.name.as_str())))
}

/// Explains one value of a planned program.
pub fn report(planned: &Planned, settings: &Settings, value: ValueId) -> Result<Report> {
    let timeline = simulate(&planned.schedule, &planned.kernels, &settings.links)?;
    let explanation = explain(planned, settings, &Clock::of(planned, &timeline), value)?;
    let text = text::describe(&explanation);
    Ok(Report::new(serde_json::to_value(&explanation)?, text))
}

/// What there is to say of a value, with the times of `clock`.
///
/// # Errors
/// For a value that is in the encoded program only, where the plan is for the plain one.
pub fn explain(planned: &Planned, settings: &Settings, clock: &Clock, id: ValueId) -> Result<Explanation> {
    let program = planned.program.as_ref();
    let graph = &program.graph;
    if id.index() >= graph.values().len() {
        bail!("that value is there only where gradients read masks and indices, which this plan does without");
    }
    let (value, place) = (graph.value(id), program.aliases.location(id));
    let inside = graph.value_ids().filter(|&other| program.aliases.root(other) == place.root);
    let uses = uses(program, &planned.plan.order, place.root);
    Ok(Explanation {
        value: value.name.clone(),
        role: value.role,
        ty: value.ty.to_string(),
        bytes: value.ty.bytes(),
        producer: value.producer.map(|node| graph.node(node).name.clone()),
        storage: Storage {
            name: graph.value(place.root).name.clone(),
            bytes: program.aliases.storage_bytes(place.root),
            offset: place.offset,
            values: inside.map(|other| graph.value(other).name.clone()).collect(),
        },
        policy: planned.schedule.policy.clone(),
        budget_bytes: settings.budgets.device,
        gaps: gaps(planned, settings, clock, place.root, &uses),
        uses,
        lies: lies(program, &planned.schedule, place.root),
    })
}

fn uses(program: &Program, order: &[Use], root: ValueId) -> Vec<Used> {
    let graph = &program.graph;
    let touched = |ids: &[ValueId]| -> Vec<String> {
        let ids = ids.iter().filter(|&&id| program.aliases.root(id) == root);
        ids.map(|&id| graph.value(id).name.clone()).collect()
    };
    let used = |(step, &ends): (usize, &Use)| {
        let node = graph.node(ends.node);
        let (reads, writes) = (touched(&node.inputs), touched(&node.outputs));
        let used = Used { step, node: node.name.clone(), run: ends.run, phase: node.phase, reads, writes, ends };
        (!used.reads.is_empty() || !used.writes.is_empty()).then_some(used)
    };
    order.iter().enumerate().filter_map(used).collect()
}

/// When each step's kernel runs: planned seconds alone, and start and end in the simulation.
pub struct Clock {
    kernels: Vec<f64>,
    simulated: Vec<(f64, f64)>,
    iteration: f64,
}

impl Clock {
    /// From the simulated iteration of a plan.
    pub fn of(planned: &Planned, timeline: &Timeline) -> Self {
        let Planned { plan, schedule, kernels, .. } = planned;
        let seconds = |u: &Use| kernels.get(u.node, plan.choice(u.node)).map_or(0.0, |choice| choice.seconds);
        let is_launch = |command: u32| matches!(schedule.commands[command as usize].action, Action::Launch { .. });
        let launches = timeline.spans.iter().filter(|span| is_launch(span.command));
        Clock {
            kernels: plan.order.iter().map(seconds).collect(),
            simulated: launches.map(|span| (span.start, span.end)).collect(),
            iteration: timeline.seconds,
        }
    }

    /// Milliseconds between two steps: of the kernels there, and in the simulation.
    fn between(&self, from: usize, to: usize, wraps: bool) -> (f64, f64) {
        let (_, left) = self.simulated[from];
        let (needed, _) = self.simulated[to];
        let sum = |kernels: &[f64]| kernels.iter().fold(0.0, |sum, seconds| sum + seconds);
        let (compute, simulated) = if wraps {
            (sum(&self.kernels[from + 1..]) + sum(&self.kernels[..to]), self.iteration - left + needed)
        } else {
            (sum(&self.kernels[from + 1..to]), needed - left)
        };
        (compute * 1e3, simulated * 1e3)
    }
}

fn gaps(planned: &Planned, settings: &Settings, clock: &Clock, root: ValueId, uses: &[Used]) -> Vec<GapStory> {
    let mut pairs: Vec<(&Used, &Used, bool)> = uses.windows(2).map(|pair| (&pair[0], &pair[1], false)).collect();
    if matches!(planned.program.graph.value(root).role, Role::Parameter | Role::State)
        && let (Some(first), Some(last)) = (uses.first(), uses.last())
    {
        pairs.push((last, first, true));
    }
    let story = |(from, to, wraps): (&Used, &Used, bool)| {
        let mut gap = decided(planned, root, from, to, wraps);
        gap.copied_down = gap.residency == "offload" && !copied_before(planned, root, uses, (from, to));
        (gap.compute_ms, gap.simulated_ms) = clock.between(from.step, to.step, wraps);
        let bytes = planned.program.aliases.storage_bytes(root);
        gap.offload_ms = settings.links.transfer_seconds(Direction::Offload, bytes) * 1e3;
        gap.prefetch_ms = settings.links.transfer_seconds(Direction::Prefetch, bytes) * 1e3;
        gap.recompute_ms = recompute_ms(&planned.program, clock, uses, from.step);
        gap.note = note(planned, settings, root, &gap);
        gap
    };
    pairs.into_iter().map(story).collect()
}

/// The plan's part of a gap's story; costs are still to come.
fn decided(planned: &Planned, root: ValueId, from: &Used, to: &Used, wraps: bool) -> GapStory {
    let order = &planned.plan.order;
    let at = |step: usize| At { step, node: order.get(step).map(|u| planned.program.graph.node(u.node).name.clone()) };
    let decision = planned.plan.gaps.get(&(root, to.ends)).copied().unwrap_or(Residency::Keep);
    let (residency, moved) = match decision {
        Residency::Keep => ("keep", None),
        Residency::Drop => ("drop", None),
        Residency::Offload { tier, release, fetch } => ("offload", Some((tier, release, fetch))),
    };
    let slots = moved.and_then(|(tier, ..)| match tier {
        Tier::Disk { written, read } => Some((written, read)),
        Tier::Host => None,
    });
    let made_again = decision == Residency::Drop && to.run > 0 && !to.writes.is_empty();
    GapStory {
        from_step: from.step,
        to_step: to.step,
        wraps,
        idle_steps: if wraps { order.len() - 1 - from.step + to.step } else { to.step - from.step - 1 },
        compute_ms: 0.0,
        simulated_ms: 0.0,
        residency,
        tier: moved.map(|(tier, ..)| if tier.is_disk() { "disk" } else { "host" }),
        release: moved.map(|(_, release, _)| at(release.index())),
        fetch: moved.map(|(.., fetch)| at(fetch.index())),
        written: slots.map(|(written, _)| at(written.index())),
        read: slots.map(|(_, read)| at(read.index())),
        copied_down: false,
        made_again_by: made_again.then(|| to.node.clone()),
        offload_ms: 0.0,
        prefetch_ms: 0.0,
        recompute_ms: None,
        note: String::new(),
    }
}

/// Whether the storage left in the gap before in which it left, for the same tier, or began the iteration at home in host
/// memory, and was not written between that and this gap.
fn copied_before(planned: &Planned, root: ValueId, uses: &[Used], (from, to): (&Used, &Used)) -> bool {
    let on_disk = |to: &Used| match planned.plan.gaps.get(&(root, to.ends)) {
        Some(Residency::Offload { tier, .. }) => Some(tier.is_disk()),
        _ => None,
    };
    let mut earlier = uses.windows(2).filter(|pair| pair[1].step <= from.step && on_disk(&pair[1]).is_some());
    let last = earlier.next_back().filter(|pair| on_disk(&pair[1]) == on_disk(to));
    let copied = last.map(|pair| pair[0].step);
    let since = |used: &&Used| used.step <= from.step && copied.is_none_or(|copied| copied < used.step);
    (copied.is_some() || streams(planned, root)) && uses.iter().filter(since).all(|used| used.writes.is_empty())
}

/// Whether a parameter or state has its home in host memory.
pub fn streams(planned: &Planned, root: ValueId) -> bool {
    let schedule = &planned.schedule;
    schedule.home_of(root).is_some_and(|home| schedule.buffer(home.buffer).space == Space::Host)
}

/// Time of the original runs that had written the storage by `until`; `None` when nothing had, or running it again would
/// repeat an effect.
fn recompute_ms(program: &Program, clock: &Clock, uses: &[Used], until: usize) -> Option<f64> {
    let writers: Vec<&Used> =
        uses.iter().filter(|used| used.step <= until && used.run == 0 && !used.writes.is_empty()).collect();
    let pure = |used: &&Used| !program.graph.node(used.ends.node).op.has_effect();
    let known = !writers.is_empty() && writers.iter().all(pure);
    known.then(|| writers.iter().map(|used| clock.kernels[used.step]).sum::<f64>() * 1e3)
}

/// One sentence that sets the decision beside its costs.
fn note(planned: &Planned, settings: &Settings, root: ValueId, gap: &GapStory) -> String {
    let graph = &planned.program.graph;
    let bytes = planned.program.aliases.storage_bytes(root);
    let down = if gap.residency == "offload" && !gap.copied_down { 0.0 } else { gap.offload_ms };
    let disk = settings.links.disk.filter(|_| gap.tier == Some("disk")).map_or(0.0, |disk| {
        let written = if gap.copied_down { disk.transfer_seconds(Direction::Offload, bytes) } else { 0.0 };
        (written + disk.transfer_seconds(Direction::Prefetch, bytes)) * 1e3
    });
    let copies = down + gap.prefetch_ms + disk;
    let through = if disk > 0.0 { format!(", {disk:.3} ms of them by the disk") } else { String::new() };
    let beside = format!("copies {copies:.3} ms{through}, kernels between {:.3} ms", gap.compute_ms);
    match (gap.residency, &gap.made_again_by) {
        ("offload", _) if !gap.copied_down => format!("its last copy is still valid: only the {beside}"),
        ("offload", _) if copies <= gap.compute_ms => format!("fits beside the kernels: {beside}"),
        ("offload", _) => format!("longer than the kernels between: {beside}"),
        ("drop", Some(node)) => format!("{node} runs again"),
        ("drop", None) => "the next use writes it anew".to_string(),
        _ if gap.idle_steps == 0 => "used again at once".to_string(),
        _ if streams(planned, root) => format!("fetching it from home takes longer than the kernels between: {beside}"),
        _ if is_home(graph.value(root).role) => "it outlives the iteration and stays at home".to_string(),
        _ if bytes < settings.options.min_offload => {
            format!("smaller than what is worth a copy ({})", format_bytes(settings.options.min_offload))
        }
        _ if copies > gap.compute_ms => format!("no time to hide copies: {beside}"),
        _ => format!("policy {} keeps it: {beside}", planned.schedule.policy),
    }
}

fn is_home(role: Role) -> bool {
    matches!(role, Role::Input | Role::Parameter | Role::State | Role::Metric)
}
