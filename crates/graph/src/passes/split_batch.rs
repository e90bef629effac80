//! The batch is split where samples are treated independently: a segment of the network runs on one part of them after the
//! other.
//!
//! ```text
//!   image [N] ─ conv ─ relu ─ pool ─► z [N] ─ …            image ─ split ─┬─ conv.mb0 ─ relu.mb0 ─ pool.mb0 ─┐
//!                                                                         └─ conv.mb1 ─ relu.mb1 ─ pool.mb1 ─┴ concat ─► z ─ …
//! ```
//!
//! Nodes stand part by part, and differentiation keeps that order, backwards: the maps of one part are dead, or idle until
//! backward, before the next part's are made. The image is cut and `z`, the *frontier*, joined without a copy, since whole samples
//! lie one after the other. What makes something of parameters alone (half-precision copies, unfolded filters) is made for each
//! part, so that gradients are summed in the parameters' own type. Left to others: where the frontier lies (`train` tries
//! [`frontiers`]), and everything after it.

use super::Rewritten;
use super::rebuild::Rebuild;
use crate::op::{Axis, Concat, Split};
use crate::{Graph, GraphError, LayerId, Node, NodeId, Op, Phase, Role, ValueId};
use std::collections::{BTreeSet, HashMap};
use vdnn_tensor::Bytes;

const PASS: &str = "split batch";

/// Into how many parts the batch is split, and how far into the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitBatch {
    /// Parts of the batch. 1 changes nothing; where the samples do not divide, the first parts have one more.
    pub parts: u64,
    /// The value at which they are joined again, by name; `None` for the one with which a step's largest kernel needs the fewest
    /// bytes.
    pub at: Option<String>,
}

/// Where a batch that is split may be joined again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontiers {
    /// Values through which everything that follows sees the images, in the order in which they are made: of neighbours of
    /// one size the first and the last, of others those with fewer bytes than all before or than the next.
    pub values: Vec<ValueId>,
    /// The first node that does not treat samples by themselves, if there is one.
    pub stop: Option<NodeId>,
}

/// Finds the frontiers of a graph.
pub fn frontiers(graph: &Graph) -> Frontiers {
    let samples = Samples::of(graph);
    let mut readers = vec![0usize; graph.values().len()];
    for node in graph.nodes() {
        node.inputs.iter().for_each(|input| readers[input.index()] += 1);
    }
    let mut open: BTreeSet<ValueId> = BTreeSet::new();
    let mut values: Vec<(ValueId, Bytes)> = Vec::new();
    for (id, node) in graph.node_ids().zip(graph.nodes()).filter(|(id, _)| samples.splits(*id)) {
        for input in &node.inputs {
            readers[input.index()] -= 1;
            if readers[input.index()] == 0 {
                open.remove(input);
            }
        }
        let read = |&output: &ValueId| readers[output.index()] > 0 || graph.value(output).role == Role::Metric;
        open.extend(graph.node(id).outputs.iter().copied().filter(read));
        if let (Some(&only), 1) = (open.first(), open.len()) {
            values.push((only, graph.value(only).ty.bytes()));
        }
    }
    Frontiers { values: worth_trying(&values), stop: samples.stop }
}

/// Of values in a row those that [`Frontiers::values`] names.
fn worth_trying(values: &[(ValueId, Bytes)]) -> Vec<ValueId> {
    let mut least = Bytes::MAX;
    let mut kept = Vec::new();
    for (at, &(value, bytes)) in values.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| values[before].1);
        let next = values.get(at + 1).map(|next| next.1);
        let edge = before != Some(bytes) || next != Some(bytes);
        if edge && (bytes <= least || next.is_none_or(|next| next > bytes)) && kept.last() != Some(&value) {
            kept.push(value);
        }
        least = least.min(bytes);
    }
    kept
}

/// Runs everything that `frontier` is made from on one part of the batch after the other.
///
/// # Errors
/// [`GraphError::Pass`] for a number of parts that is 0 or above the number of samples, for a frontier that does not depend on
/// the images, and for one behind a node that does not treat samples by themselves.
pub fn split_batch(graph: &Graph, parts: u64, frontier: ValueId) -> Result<Rewritten, GraphError> {
    let refuse = |place: &str, reason: String| {
        let (graph, place) = (graph.name.clone(), place.to_string());
        Err(GraphError::Pass { pass: PASS, graph, place, reason })
    };
    let samples = Samples::of(graph);
    let name = &graph.value(frontier).name;
    let n = graph.value(frontier).ty.shape.samples();
    if !samples.depends[frontier.index()] || graph.value(frontier).producer.is_none() {
        return refuse(name, "expected a value that a node makes of the images".to_string());
    }
    let segment = samples.behind(graph, frontier);
    if let Some(&stop) = segment.iter().find(|id| samples.is_stop(graph, **id)) {
        let stop = whole_batch(graph, stop);
        return refuse(name, format!("expected a value in front of {stop}, found one behind it"));
    }
    if parts == 0 || parts > n {
        return refuse(name, format!("expected 1 to {n} parts of a batch of {n}, found {parts}"));
    }
    let mut rebuild = Rebuild::bare(PASS, graph)?;
    if parts == 1 {
        return Ok(super::rebuild::same(graph));
    }
    let mut split = Splitting::new(graph, &samples, segment);
    let sizes: Vec<u64> = (0..parts).map(|part| n / parts + u64::from(part < n % parts)).collect();
    split.cut_images(&mut rebuild, &sizes)?;
    for part in 0..sizes.len() {
        split.run_part(&mut rebuild, part)?;
    }
    split.join(&mut rebuild, frontier)?;
    split.rest(&mut rebuild)?;
    Ok(rebuild.finish())
}

/// A node that does not treat samples by themselves, with the reason.
pub fn whole_batch(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    let why = match &node.op {
        Op::BatchNormStats => "whose statistics are of the whole batch",
        Op::Dropout(_) => "whose mask is a function of the place in the whole batch",
        _ => "which is of the whole batch",
    };
    format!("{} ({}), {why}", node.name, node.op.kind())
}

/// What depends on the images, and sample by sample.
struct Samples {
    /// By value: whether it depends on the images.
    depends: Vec<bool>,
    /// By node: whether it and all nodes before it treat samples by themselves.
    splits: Vec<bool>,
    /// The first node that does not.
    stop: Option<NodeId>,
}

impl Samples {
    fn of(graph: &Graph) -> Self {
        let is_image = |value: &crate::Value| value.role == Role::Input && value.ty.shape.rank() > 1;
        let mut depends: Vec<bool> = graph.values().iter().map(is_image).collect();
        let mut by_sample = depends.clone();
        let (mut splits, mut stop) = (Vec::with_capacity(graph.nodes().len()), None);
        for (id, node) in graph.node_ids().zip(graph.nodes()) {
            let any = node.inputs.iter().any(|input| depends[input.index()]);
            let own = any && splits_at(node, &depends) && node.phase == Phase::Forward;
            let all = own && node.inputs.iter().all(|input| !depends[input.index()] || by_sample[input.index()]);
            for output in &node.outputs {
                (depends[output.index()], by_sample[output.index()]) = (any, all);
            }
            if any && !own {
                stop.get_or_insert(id);
            }
            splits.push(all);
        }
        Samples { depends, splits, stop }
    }

    fn splits(&self, node: NodeId) -> bool {
        self.splits[node.index()]
    }

    /// Whether a node depends on the images and does not itself treat samples by themselves.
    fn is_stop(&self, graph: &Graph, id: NodeId) -> bool {
        let node = graph.node(id);
        node.inputs.iter().any(|input| self.depends[input.index()]) && !splits_at(node, &self.depends)
    }

    /// The nodes that a value is made by, in their order.
    fn behind(&self, graph: &Graph, value: ValueId) -> BTreeSet<NodeId> {
        let mut nodes = BTreeSet::new();
        let mut next: Vec<NodeId> = graph.value(value).producer.into_iter().collect();
        while let Some(id) = next.pop() {
            if nodes.insert(id) {
                next.extend(graph.node(id).inputs.iter().filter_map(|input| graph.value(*input).producer));
            }
        }
        nodes
    }
}

/// Whether a node makes each sample of its results of the same sample of what it reads of the batch, and of nothing else of it.
fn splits_at(node: &Node, depends: &[bool]) -> bool {
    let of_batch: &[usize] = match &node.op {
        Op::Conv2d(_) | Op::Conv2dRelu(_) | Op::Linear | Op::Relu | Op::Flatten => &[0],
        Op::MaxPool2d(_)
        | Op::MaxPool2dIndices(_)
        | Op::AvgPool2d(_)
        | Op::AdaptiveAvgPool2d(_)
        | Op::LocalResponseNorm(_) => &[0],
        Op::Cast(_) | Op::Unfold(_) | Op::Normalise(_) => &[0],
        // With running statistics; those of the batch depend on it.
        Op::BatchNorm(_) | Op::BatchNormRelu(_) | Op::BatchNormReluMaxPool2d(_) => &[0],
        Op::BatchNormAddRelu(_) | Op::BatchNormPairRelu(_) => &[0, 5],
        Op::Add | Op::Concat(Concat { axis: Axis::Channels }) => {
            return node.inputs.iter().all(|input| depends[input.index()]);
        }
        // A dropout mask is a function of the place in the whole batch; statistics and losses are of all samples.
        _ => return false,
    };
    node.inputs.iter().enumerate().all(|(index, input)| depends[input.index()] == of_batch.contains(&index))
}

/// The new graph while it grows.
struct Splitting<'a> {
    graph: &'a Graph,
    depends: &'a [bool],
    /// What runs part by part.
    segment: BTreeSet<NodeId>,
    /// By old value: the new one of each part so far.
    parts: HashMap<ValueId, Vec<ValueId>>,
    /// New layers of what is not split.
    layers: HashMap<LayerId, LayerId>,
}

impl<'a> Splitting<'a> {
    fn new(graph: &'a Graph, samples: &'a Samples, segment: BTreeSet<NodeId>) -> Self {
        Splitting { graph, depends: &samples.depends, segment, parts: HashMap::new(), layers: HashMap::new() }
    }

    /// Cuts the images that the segment reads, in a layer of its own.
    fn cut_images(&mut self, rebuild: &mut Rebuild<'_>, sizes: &[u64]) -> Result<(), GraphError> {
        let graph = self.graph;
        let read = self.segment.iter().flat_map(|&id| &graph.node(id).inputs);
        let is_image = |id: &&ValueId| graph.value(**id).producer.is_none() && self.depends[id.index()];
        let images: BTreeSet<ValueId> = read.filter(is_image).copied().collect();
        let layer = rebuild.new.begin_layer("split");
        for image in images {
            let value = graph.value(image);
            let op = Op::Split(Split { sections: sizes.to_vec(), axis: Axis::Batch });
            let name = rebuild.free_name(format!("{}.split", value.name));
            let cut = rebuild.new.push_at(&name, op, &[rebuild.value(image)], Phase::Forward, layer)?;
            for (part, &id) in cut.iter().enumerate() {
                let name = rebuild.free_name(part_name(&value.name, part));
                rebuild.new.rename_value(id, &name)?;
            }
            self.parts.insert(image, cut);
        }
        Ok(())
    }

    /// Runs the segment on one part, in layers of its own.
    fn run_part(&mut self, rebuild: &mut Rebuild<'_>, part: usize) -> Result<(), GraphError> {
        let graph = self.graph;
        let mut layers: HashMap<LayerId, LayerId> = HashMap::new();
        for &id in &self.segment {
            let node = graph.node(id);
            let named = part_name(&graph.layer(node.layer).name, part);
            let layer = *layers.entry(node.layer).or_insert_with(|| rebuild.new.begin_layer(named));
            let input = |input: &ValueId| match self.parts.get(input) {
                Some(parts) => parts[part],
                None => rebuild.value(*input),
            };
            let inputs: Vec<ValueId> = node.inputs.iter().map(input).collect();
            let name = rebuild.free_name(part_name(&node.name, part));
            let outputs = rebuild.new.push_at(&name, node.op.clone(), &inputs, Phase::Forward, layer)?;
            for (old, new) in node.outputs.iter().zip(outputs) {
                let name = part_name(&graph.value(*old).name, part);
                if rebuild.new.value(new).name != name {
                    let name = rebuild.free_name(name);
                    rebuild.new.rename_value(new, &name)?;
                }
                self.parts.entry(*old).or_default().push(new);
            }
        }
        Ok(())
    }

    /// Joins the frontier, and what else of the segment others read.
    fn join(&self, rebuild: &mut Rebuild<'_>, frontier: ValueId) -> Result<(), GraphError> {
        let graph = self.graph;
        let outside = graph.node_ids().filter(|id| !self.segment.contains(id));
        let mut wanted: BTreeSet<ValueId> = outside.flat_map(|id| graph.node(id).inputs.iter().copied()).collect();
        wanted.extend(graph.metrics());
        wanted.insert(frontier);
        let layer = LayerId(rebuild.new.layers().len() as u32 - 1);
        for value in wanted {
            let made = graph.value(value).producer.is_some_and(|id| self.segment.contains(&id));
            if made && self.depends[value.index()] {
                let (name, op) = (&graph.value(value).name, Op::Concat(Concat::along(Axis::Batch)));
                let joined = rebuild.new.push_at(name, op, &self.parts[&value], Phase::Forward, layer)?;
                rebuild.stand_for(&[value], &joined)?;
            }
        }
        Ok(())
    }

    /// Everything else as it was, and what is made of parameters for the segment once more where others read it as well.
    fn rest(&mut self, rebuild: &mut Rebuild<'_>) -> Result<(), GraphError> {
        let graph = self.graph;
        let again = self.read_outside();
        for (id, node) in graph.node_ids().zip(graph.nodes()) {
            if self.segment.contains(&id) && !again.contains(&id) {
                continue;
            }
            let name = &graph.layer(node.layer).name;
            let layer = *self.layers.entry(node.layer).or_insert_with(|| rebuild.new.begin_layer(name));
            let inputs = rebuild.inputs(node);
            let outputs = rebuild.new.push_at(&node.name, node.op.clone(), &inputs, node.phase, layer)?;
            rebuild.stand_for(&node.outputs, &outputs)?;
        }
        Ok(())
    }

    /// Nodes of the segment that do not depend on the images and whose results are needed outside of it.
    fn read_outside(&self) -> BTreeSet<NodeId> {
        let graph = self.graph;
        let mut again = BTreeSet::new();
        let outside = graph.node_ids().filter(|id| !self.segment.contains(id));
        let mut next: Vec<ValueId> = outside.flat_map(|id| graph.node(id).inputs.iter().copied()).collect();
        while let Some(value) = next.pop() {
            let producer = graph.value(value).producer.filter(|id| self.segment.contains(id));
            if let Some(id) = producer.filter(|_| !self.depends[value.index()])
                && again.insert(id)
            {
                next.extend(&graph.node(id).inputs);
            }
        }
        again
    }
}

/// The name of what stands for one part of the batch.
fn part_name(name: &str, part: usize) -> String {
    format!("{name}.mb{part}")
}
