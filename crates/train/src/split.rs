//! Splitting the batch: how far into the network, and what to say where nothing comes of it.
//!
//! ```text
//!   asked: parts, at a value            split_batch ─► whole iteration
//!   asked: parts alone      for each of frontiers():  split_batch ─► whole iteration ─► need      the least need, the first of equals
//! ```
//!
//! The *need* of an iteration is what its largest kernel reads and writes: no plan is below, and where layers are large the floor of
//! a good policy is close to it. It is counted in the iteration itself, encoded where it can be, since backward needs more than
//! forward and other bytes: a guess from the forward graph would have to know every gradient rule. Workspaces are left out: they
//! are a device's, and where they matter a kernel may run in pieces. The pass that splits is in `graph`.

use crate::TrainError;
use std::collections::BTreeSet;
use thiserror::Error;
use vdnn_graph::op::{Axis, Concat};
use vdnn_graph::passes::{Rewritten, SplitBatch, frontiers, split_batch, whole_batch};
use vdnn_graph::{Graph, NodeId, Op, Phase, Program, ValueId};
use vdnn_tensor::{Bytes, format_bytes};

/// A batch that cannot be split as asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SplitError {
    /// No parts, or more than samples.
    #[error("expected 1 to {batch} parts of a batch of {batch}, found {parts}; try --split-batch {}", (*batch).clamp(1, 4))]
    Parts {
        /// Asked for.
        parts: u64,
        /// Samples in the batch.
        batch: u64,
    },
    /// No value of this name.
    #[error(
        "no value of {network} is named {name:?}; the nearest are {}. Splitting may best end at {}",
        nearest.join(", "),
        if frontiers.is_empty() { "none of them".to_string() } else { frontiers.join(", ") }
    )]
    UnknownValue {
        /// The network.
        network: String,
        /// Asked for.
        name: String,
        /// Names like it.
        nearest: Vec<String>,
        /// Where splitting may best end.
        frontiers: Vec<String>,
    },
    /// There is nothing in front of the first node that mixes samples.
    #[error("there is nothing to split in {network}: no value lies in front of {stop}. {ADVICE}")]
    NoSegment {
        /// The network.
        network: String,
        /// The node, and why it stops.
        stop: String,
    },
    /// The largest kernels are elsewhere.
    #[error(
        "splitting the batch of {network} in {parts} lowers no floor: its largest kernel, {largest}, needs {} either way{}. \
         {ADVICE}, or name a value with --split-at to split all the same",
        format_bytes(*need),
        stop.as_ref().map(|stop| format!(" (no segment goes beyond {stop})")).unwrap_or_default()
    )]
    NoGain {
        /// The network.
        network: String,
        /// Asked for.
        parts: u64,
        /// The node that needs most.
        largest: String,
        /// What it needs.
        need: Bytes,
        /// The first node that does not treat samples by themselves, and why.
        stop: Option<String>,
    },
}

/// What to try where splitting helps nothing.
const ADVICE: &str = "Try a smaller batch, half precision, or parameters that live in host memory";

/// A batch as it was split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitFound {
    /// Number of parts.
    pub parts: usize,
    /// The values at which they are joined, in the order in which they are made.
    pub joined: Vec<String>,
    /// Forward nodes that run once a part, each counted once.
    pub nodes: usize,
}

/// How a graph's batch is split; `None` where it is whole.
pub fn found(graph: &Graph) -> Option<SplitFound> {
    let joins = graph
        .nodes()
        .iter()
        .filter(|node| node.phase == Phase::Forward && matches!(node.op, Op::Concat(Concat { axis: Axis::Batch })));
    let joins: Vec<_> = joins.collect();
    let mut behind: BTreeSet<NodeId> = BTreeSet::new();
    let mut next: Vec<ValueId> = joins.iter().map(|join| join.inputs[0]).collect();
    while let Some(value) = next.pop() {
        let Some(id) = graph.value(value).producer else { continue };
        if !matches!(graph.node(id).op, Op::Split(_)) && behind.insert(id) {
            next.extend(&graph.node(id).inputs);
        }
    }
    let joined = joins.iter().map(|join| graph.value(join.outputs[0]).name.clone()).collect();
    Some(SplitFound { parts: joins.first()?.inputs.len(), joined, nodes: behind.len() })
}

/// The iteration of a graph whose batch is split, where `iteration` makes one of a graph and its `loss`.
///
/// # Errors
/// [`TrainError::Split`] where there is nothing to split, where it helps nothing, or for a name that there is not, and what
/// `iteration` says.
pub(crate) fn iteration(
    graph: &Graph,
    loss: ValueId,
    asked: &SplitBatch,
    iteration: impl Fn(Graph, ValueId) -> Result<Program, TrainError>,
) -> Result<Program, TrainError> {
    let batch = graph.values().iter().find(|value| value.ty.shape.rank() == 4).map_or(1, |v| v.ty.shape.samples());
    if asked.parts == 0 || asked.parts > batch {
        return Err(SplitError::Parts { parts: asked.parts, batch }.into());
    }
    let split = |value: ValueId| {
        let Rewritten { graph, values } = split_batch(graph, asked.parts, value)?;
        let loss = values[loss.index()].expect("a loss is of all samples, so that no segment has it");
        iteration(graph, loss)
    };
    match &asked.at {
        _ if asked.parts == 1 => iteration(graph.clone(), loss),
        Some(name) => split(named(graph, name)?),
        None => least(graph, asked.parts, &iteration(graph.clone(), loss)?, split),
    }
}

/// The first of those frontiers with which the iteration needs least.
fn least(
    graph: &Graph,
    parts: u64,
    whole: &Program,
    split: impl Fn(ValueId) -> Result<Program, TrainError>,
) -> Result<Program, TrainError> {
    let found = frontiers(graph);
    let network = graph.name.clone();
    let stop = found.stop.map(|id| whole_batch(graph, id));
    if let (true, Some(stop)) = (found.values.is_empty(), &stop) {
        return Err(SplitError::NoSegment { network, stop: stop.clone() }.into());
    }
    let (mut need, largest) = need(whole)?;
    let mut best = None;
    for frontier in found.values {
        let program = split(frontier)?;
        let (needs, _) = self::need(&program)?;
        if needs < need {
            (need, best) = (needs, Some(program));
        }
    }
    best.ok_or_else(|| SplitError::NoGain { network, parts, largest, need, stop }.into())
}

/// The value of this name.
fn named(graph: &Graph, name: &str) -> Result<ValueId, SplitError> {
    graph.find_value(name).ok_or_else(|| {
        let made = graph.values().iter().filter(|value| value.producer.is_some());
        let mut ranked: Vec<&str> = made.map(|value| value.name.as_str()).collect();
        ranked.sort_by(|a, b| strsim::jaro_winkler(name, b).total_cmp(&strsim::jaro_winkler(name, a)));
        let nearest = ranked.into_iter().take(3).map(str::to_string).collect();
        let frontiers = frontiers(graph).values.into_iter().map(|id| graph.value(id).name.clone()).collect();
        SplitError::UnknownValue { network: graph.name.clone(), name: name.to_string(), nearest, frontiers }
    })
}

/// What the largest kernel of an iteration reads and writes, and its name; encoded where that is less.
///
/// # Errors
/// [`TrainError::Graph`] when the name of a mask is taken.
pub fn need(program: &Program) -> Result<(Bytes, String), TrainError> {
    let plain = largest(program);
    let encoded = vdnn_autograd::encode(program)?.map(|encoded| largest(&encoded));
    Ok(encoded.filter(|encoded| encoded.0 < plain.0).unwrap_or(plain))
}

fn largest(program: &Program) -> (Bytes, String) {
    let bytes = |id: NodeId| {
        let node = program.graph.node(id);
        let operands = node.inputs.iter().chain(&node.outputs);
        let roots: BTreeSet<ValueId> = operands.map(|&value| program.aliases.root(value)).collect();
        roots.into_iter().map(|root| program.aliases.storage_bytes(root)).sum::<Bytes>()
    };
    let moves = |node: NodeId| matches!(program.graph.node(node).op, Op::Concat(_) | Op::Split(_));
    let kernels = program.graph.node_ids().filter(|&id| !moves(id));
    let most = kernels.map(|id| (bytes(id), id)).max_by_key(|&(bytes, id)| (bytes, std::cmp::Reverse(id)));
    most.map_or((0, String::new()), |(bytes, id)| (bytes, program.graph.node(id).name.clone()))
}
