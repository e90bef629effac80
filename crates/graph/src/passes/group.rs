//! Fewer launches around the optimizer: nodes that are over before a GPU has started the next are put into groups.
//!
//! ```text
//!   W ──cast──► W stored       cast group     at the first member's place: what is trained is there from the start
//!   running statistics         update group   at the last member's place
//!   dW ─cast─► dW f32 ─► sgd   sgd group      at the last member's place, reading dW as the layer made it
//!   dW half ─cast─► unscale    unscale        reads dW as the layer made it
//! ```
//!
//! The one pass that takes the whole iteration, after differentiation. Results are the same bits. What it costs is memory:
//! casts begin to live sooner and gradients live longer, by at most [`GROUP_BYTES`] of weights at a time; what is larger
//! than that stays alone, at its place.

use super::Rewritten;
use super::rebuild::Rebuild;
use crate::op::{Group, Sgd, Unscale};
use crate::{Graph, GraphError, Node, NodeId, Op, Phase, Role, ValueId};
use std::collections::{BTreeMap, BTreeSet};
use vdnn_tensor::{Bytes, DType};

/// Most bytes of first operands (weights, statistics) in a group.
pub const GROUP_BYTES: Bytes = 16 << 20;

/// Most members of a group.
pub const GROUP_MEMBERS: usize = 32;

/// Puts casts of weights, updates of running statistics and SGD updates into groups, and lets SGD read gradients as
/// layers made them.
///
/// # Errors
/// [`GraphError`] when the graph cannot be pushed again: none for a graph that was pushed.
pub fn group(graph: &Graph) -> Result<Rewritten, GraphError> {
    let direct = uncast_gradients(graph);
    let groups = Groups::of(graph);
    let mut rebuild = Rebuild::whole(graph)?;
    for id in graph.node_ids() {
        let node = graph.node(id);
        if direct.casts.contains(&id) {
            continue;
        }
        match groups.at(id) {
            Place::Alone => {
                let inputs = direct.inputs(&rebuild, id, node);
                rebuild.push(node, node.op.clone(), &inputs)?;
            }
            Place::Leads(members) => push_group(&mut rebuild, &direct, members)?,
            Place::Follows => {}
        }
    }
    Ok(rebuild.finish())
}

/// One node for all members, named after the first.
fn push_group(rebuild: &mut Rebuild<'_>, direct: &UncastGradients, members: &[NodeId]) -> Result<(), GraphError> {
    let graph = rebuild.old;
    let nodes: Vec<&Node> = members.iter().map(|&id| graph.node(id)).collect();
    let first = nodes[0];
    let inputs: Vec<ValueId> =
        members.iter().zip(&nodes).flat_map(|(&id, node)| direct.inputs(rebuild, id, node)).collect();
    let op = Group { op: Box::new(first.op.clone()), members: members.len() as u32, inputs: first.inputs.len() as u32 };
    let name = format!("{}+{}", first.name, members.len() - 1);
    let made = rebuild.new.push_at(&name, Op::Group(op), &inputs, first.phase, first.layer)?;
    let before: Vec<ValueId> = nodes.iter().flat_map(|node| node.outputs.iter().copied()).collect();
    rebuild.stand_for(&before, &made)
}

/// Updates and unscaling that read a gradient before it is cast, and the casts that are then not needed.
struct UncastGradients {
    /// By reader and operand: the value before the cast.
    sources: BTreeMap<(NodeId, usize), ValueId>,
    casts: BTreeSet<NodeId>,
}

fn uncast_gradients(graph: &Graph) -> UncastGradients {
    let mut readers = vec![0u32; graph.values().len()];
    graph.nodes().iter().flat_map(|node| &node.inputs).for_each(|input| readers[input.index()] += 1);
    let mut found = UncastGradients { sources: BTreeMap::new(), casts: BTreeSet::new() };
    let ty = |id: ValueId| &graph.value(id).ty;
    for (id, node) in graph.node_ids().zip(graph.nodes()) {
        let gradients = match node.op {
            Op::Sgd(_) => 1..2,
            Op::Unscale(_) => 2..node.inputs.len(),
            _ => continue,
        };
        for operand in gradients {
            let gradient = node.inputs[operand];
            let Some(by) = graph.value(gradient).producer else { continue };
            let cast = graph.node(by);
            let spared = readers[gradient.index()] == 1 && graph.value(gradient).role != Role::Metric;
            if !matches!(cast.op, Op::Cast(_)) || !spared {
                continue;
            }
            let takes = match node.op {
                Op::Sgd(_) => Sgd::takes_uncast(ty(node.inputs[0]), ty(cast.inputs[0])),
                _ => Unscale::takes_half(ty(cast.inputs[0])) && ty(gradient).dtype == DType::F32,
            };
            if takes {
                found.sources.insert((id, operand), cast.inputs[0]);
                found.casts.insert(by);
            }
        }
    }
    found
}

impl UncastGradients {
    /// New values for a node's operands.
    fn inputs(&self, rebuild: &Rebuild<'_>, id: NodeId, node: &Node) -> Vec<ValueId> {
        let source = |(operand, &input): (usize, &ValueId)| self.sources.get(&(id, operand)).copied().unwrap_or(input);
        node.inputs.iter().enumerate().map(source).map(|input| rebuild.value(input)).collect()
    }
}

/// What becomes of a node.
enum Place<'a> {
    /// It stays as it is.
    Alone,
    /// The whole group is pushed here.
    Leads(&'a [NodeId]),
    /// It is part of a group that is pushed elsewhere.
    Follows,
}

/// Groups of nodes, each of one op.
struct Groups {
    groups: Vec<Vec<NodeId>>,
    /// By node: its group, and whether that is pushed at its place.
    of_node: Vec<Option<(usize, bool)>>,
}

/// A group that still takes members.
struct Open<'a> {
    op: &'a Op,
    inputs: usize,
    members: Vec<NodeId>,
    bytes: Bytes,
    early: bool,
}

impl Groups {
    fn of(graph: &Graph) -> Self {
        let mut groups = Groups { groups: Vec::new(), of_node: vec![None; graph.nodes().len()] };
        let mut open: Vec<Open<'_>> = Vec::new();
        for (id, node) in graph.node_ids().zip(graph.nodes()) {
            // A group's members stand at one place, so nothing may read what they make before.
            let (read, rest) = open.into_iter().partition(|group| group.makes_one_of(graph, &node.inputs));
            open = rest;
            groups.close(read);
            let Some(early) = is_early(graph, node) else { continue };
            let bytes = graph.value(node.inputs[0]).ty.bytes();
            if bytes > GROUP_BYTES {
                continue;
            }
            let (full, rest) = open.into_iter().partition(|group| group.is_like(node) && !group.has_room(bytes));
            open = rest;
            groups.close(full);
            match open.iter_mut().find(|group| group.is_like(node)) {
                Some(group) => group.take(id, bytes),
                None => open.push(Open { op: &node.op, inputs: node.inputs.len(), members: vec![id], bytes, early }),
            }
        }
        groups.close(open);
        groups
    }

    fn close(&mut self, done: Vec<Open<'_>>) {
        for group in done.into_iter().filter(|group| group.members.len() > 1) {
            let place = if group.early { group.members.first() } else { group.members.last() }.copied();
            for &member in &group.members {
                self.of_node[member.index()] = Some((self.groups.len(), Some(member) == place));
            }
            self.groups.push(group.members);
        }
    }

    fn at(&self, id: NodeId) -> Place<'_> {
        match self.of_node[id.index()] {
            None => Place::Alone,
            Some((group, true)) => Place::Leads(&self.groups[group]),
            Some((_, false)) => Place::Follows,
        }
    }
}

impl Open<'_> {
    fn is_like(&self, node: &Node) -> bool {
        *self.op == node.op && self.inputs == node.inputs.len()
    }

    fn has_room(&self, bytes: Bytes) -> bool {
        self.members.len() < GROUP_MEMBERS && self.bytes + bytes <= GROUP_BYTES
    }

    fn take(&mut self, member: NodeId, bytes: Bytes) {
        self.members.push(member);
        self.bytes += bytes;
    }

    /// True when one of these values is made by a member of a group that is pushed at its last member's place.
    fn makes_one_of(&self, graph: &Graph, values: &[ValueId]) -> bool {
        let producers = || values.iter().filter_map(|&value| graph.value(value).producer);
        !self.early && producers().any(|producer| self.members.contains(&producer))
    }
}

/// Whether a node can be in a group: `Some(true)` at the first member's place, `Some(false)` at the last one's.
fn is_early(graph: &Graph, node: &Node) -> Option<bool> {
    match node.op {
        Op::Cast(_) => {
            let from = graph.value(node.inputs[0]);
            let to = &graph.value(node.outputs[0]).ty;
            (from.role == Role::Parameter && from.producer.is_none() && node.phase == Phase::Forward)
                .then_some(true)
                .filter(|_| from.ty.dtype == DType::F32 && (to.dtype.is_half() || to.dtype == DType::F32))
        }
        Op::Sgd(_) | Op::BatchNormUpdate(_) => Some(false),
        _ => None,
    }
}
