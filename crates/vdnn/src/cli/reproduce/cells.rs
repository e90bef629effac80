//! The plans that tables and figures are made of: a network under a policy, as `vdnn plan` plans it.

use crate::cli::occupancy::{KINDS, Moment, averages, columns};
use crate::cli::planning::{Done, Explained, Planning, document};
use anyhow::{Context, Result};
use clap::Parser;
use rayon::prelude::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use vdnn_graph::{Graph, LayerId, Op, Role, ValueId};
use vdnn_memory::PlanError;
use vdnn_schedule::{Action, Region, Schedule};
use vdnn_tensor::Bytes;
use vdnn_train::TrainError;

/// A network of the paper with its batch.
pub type Network = (&'static str, u64);

/// The ten networks of the paper.
pub const NETWORKS: [Network; 10] = [
    ("alexnet", 128),
    ("overfeat-fast", 128),
    ("googlenet", 128),
    ("vgg16", 64),
    ("vgg16", 128),
    ("vgg16", 256),
    ("vgg-116", 32),
    ("vgg-216", 32),
    ("vgg-316", 32),
    ("vgg-416", 32),
];

/// The policies of the paper, and `none`, which keeps everything but frees what is dead.
pub const POLICIES: [&str; 7] = ["baseline", "none", "all-m", "all-p", "conv-m", "conv-p", "dyn"];

/// What the paper's card has. `dyn` plans for it, the others for no limit.
pub const CARD: Bytes = 12 << 30;

/// One plan that is wanted. They are listed in the order of networks, then policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// The network.
    pub network: Network,
    /// Name of the policy.
    pub policy: &'static str,
    /// Join streams at the end of each layer, as the paper does.
    pub per_layer: bool,
}

impl Wanted {
    /// Waits by events.
    pub fn of(network: Network, policy: &'static str) -> Self {
        Wanted { network, policy, per_layer: false }
    }

    /// The command that shows this plan.
    pub fn command(&self) -> String {
        let Wanted { network: (model, batch_size), policy, per_layer } = self;
        let budget = if *policy == "dyn" { format!(" --budget {CARD}") } else { String::new() };
        let sync = if *per_layer { " --sync per-layer" } else { "" };
        format!(
            "vdnn plan --model {model} --batch-size {batch_size} --machine titan-x --momentum 0 --policy {policy}{budget}{sync}"
        )
    }
}

/// What is known of a plan.
pub struct Cell {
    /// What `vdnn plan --json` prints of it, or of its refusal.
    pub document: Value,
    /// What more there is of a plan; `None` where the policy has none within the card.
    pub plan: Option<Detail>,
}

/// Figures that `vdnn plan` does not print.
pub struct Detail {
    /// The fullest moment on the device.
    pub fullest: Moment,
    /// Device bytes by kind, averaged over the iteration.
    pub average: [f64; KINDS.len()],
    /// Bytes that one kernel reads, writes and borrows, of the kernel with most.
    pub largest_kernel: Bytes,
    /// Bytes of values that belong to the classifier: all from the first fully connected layer on.
    pub classifier: Bytes,
}

impl Cell {
    /// A figure of the document; `None` where there is no plan.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.plan.as_ref().and(self.document[key].as_f64())
    }

    /// Whether the plan is one for the paper's card.
    pub fn fits(&self) -> bool {
        self.number("peak_bytes").is_some_and(|peak| peak <= CARD as f64)
    }
}

/// The cells, by what was wanted.
pub type Cells = BTreeMap<Wanted, Cell>;

/// The options of `vdnn plan`, as a line.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    planning: Planning,
}

/// Plans one; the same as the command.
///
/// # Errors
/// As the command, budgets that cannot be kept included.
pub fn planned(wanted: &Wanted) -> Result<Done> {
    let command = wanted.command();
    let words = command.split(' ').skip(1);
    Line::try_parse_from(words)?.planning.run(None)
}

/// Plans all, side by side. Each is named on standard error when it is done.
///
/// # Errors
/// Anything but a budget that cannot be kept, which is a finding.
pub fn cells(wanted: &BTreeSet<Wanted>) -> Result<Cells> {
    let done = AtomicUsize::new(0);
    let all: Vec<&Wanted> = wanted.iter().collect();
    let one = |wanted: &&Wanted| -> Result<(Wanted, Cell)> {
        let made = cell(wanted).with_context(|| wanted.command())?;
        let count = done.fetch_add(1, Ordering::Relaxed) + 1;
        eprintln!("{count} of {}: {}", all.len(), wanted.command());
        Ok((**wanted, made))
    };
    // The deepest take longest, and are begun first.
    all.par_iter().rev().with_max_len(1).map(one).collect()
}

fn cell(wanted: &Wanted) -> Result<Cell> {
    match planned(wanted) {
        Ok(Done { explained, settings, .. }) => {
            let document = document(wanted.network.0, &explained, &settings);
            Ok(Cell { document, plan: Some(detail(&explained)) })
        }
        Err(error) => match refused(&error) {
            true => Ok(Cell { document: crate::cli::failure(&error), plan: None }),
            false => Err(error),
        },
    }
}

fn refused(error: &anyhow::Error) -> bool {
    let advised = error.downcast_ref::<crate::cli::split::Advised>().map(|advised| &advised.refusal);
    matches!(advised.or(error.downcast_ref()), Some(TrainError::Plan(PlanError::Infeasible(_))))
}

fn detail(explained: &Explained) -> Detail {
    let Explained { planned, timeline, .. } = explained;
    let (schedule, graph) = (&planned.schedule, &planned.program.graph);
    let fullest = columns(schedule, graph, timeline, 1)[0];
    let average = averages(schedule, graph, timeline);
    Detail { fullest, average, largest_kernel: largest_kernel(schedule), classifier: classifier(schedule, graph) }
}

/// Bytes of different regions that one launch touches, of the launch with most.
fn largest_kernel(schedule: &Schedule) -> Bytes {
    let touched = |action: &Action| match action {
        Action::Launch { reads, writes, workspace, .. } => {
            let regions: BTreeSet<&Region> = reads.iter().chain(writes).chain(workspace).collect();
            regions.iter().map(|region| region.bytes()).sum()
        }
        _ => 0,
    };
    schedule.commands.iter().map(|command| touched(&command.action)).max().unwrap_or(0)
}

/// Bytes of parameters, their gradients and feature maps from the first fully connected layer on, each buffer once; gradient maps and
/// workspace are shared by all layers.
fn classifier(schedule: &Schedule, graph: &Graph) -> Bytes {
    let Some(first) = graph.nodes().iter().find(|node| matches!(node.op, Op::Linear)).map(|node| node.layer) else {
        return 0;
    };
    let mut read_by: BTreeMap<ValueId, LayerId> = BTreeMap::new();
    for node in graph.nodes() {
        for &id in &node.inputs {
            read_by.entry(id).or_insert(node.layer);
        }
    }
    let layer = |id: ValueId| match graph.value(id).producer {
        Some(node) => Some(graph.node(node).layer),
        None => read_by.get(&id).copied(),
    };
    let counts = |role: Role| matches!(role, Role::Parameter | Role::ParameterGradient | Role::FeatureMap);
    let is_one = |root| counts(graph.value(root).role) && layer(root).is_some_and(|layer| layer >= first);
    schedule.buffers.iter().filter(|buffer| buffer.root.is_some_and(is_one)).map(|buffer| buffer.bytes).sum()
}
