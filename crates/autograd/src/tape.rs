//! The state of the reverse walk: the growing graph and the gradients collected so far.
//!
//! A value used several times gets its gradients in reverse order of its uses; from the second on they are summed at once
//! by an add node, so that at most two of them exist at a time. Where the node that made the value takes two gradients and adds
//! them itself, the last one is left to it. When the walk reaches the node that made the value, its
//! gradient is complete and takes the name `<value>.grad`.

use crate::{AutogradError, Options};
use std::collections::{BTreeMap, HashSet};
use vdnn_graph::{Graph, NodeId, Op, Phase, Role, ValueId};

pub(crate) struct Tape {
    graph: Graph,
    n_forward: u32,
    /// Whether a value's gradient is wanted, by itself or on the way to one that is.
    needs: Vec<bool>,
    gradients: Vec<Option<ValueId>>,
    /// Of values whose maker adds two gradients itself: the second one.
    seconds: BTreeMap<ValueId, ValueId>,
    /// Values whose gradient is wanted as one value.
    kept: HashSet<ValueId>,
    /// How often a value's gradients were summed.
    sums: Vec<u32>,
    named: HashSet<ValueId>,
}

impl Tape {
    pub(crate) fn new(graph: Graph, options: &Options) -> Self {
        let n_values = graph.values().len();
        let needs = wanted(&graph, &options.keep);
        let n_forward = graph.nodes().len() as u32;
        Tape {
            graph,
            n_forward,
            needs,
            gradients: vec![None; n_values],
            seconds: BTreeMap::new(),
            kept: options.keep.iter().copied().collect(),
            sums: vec![0; n_values],
            named: HashSet::new(),
        }
    }

    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    pub(crate) fn graph_mut(&mut self) -> &mut Graph {
        &mut self.graph
    }

    pub(crate) fn forward_nodes(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.n_forward).map(NodeId)
    }

    pub(crate) fn name(&self, value: ValueId) -> String {
        self.graph.value(value).name.clone()
    }

    pub(crate) fn needs(&self, value: ValueId) -> bool {
        self.needs[value.index()]
    }

    /// The gradient of a forward value, as far as it has been collected.
    pub(crate) fn gradient(&self, value: ValueId) -> Option<ValueId> {
        self.gradients.get(value.index()).copied().flatten()
    }

    /// Gives a value another gradient in place of its complete one. It has its name already.
    pub(crate) fn replace_gradient(&mut self, value: ValueId, gradient: ValueId) {
        self.named.insert(gradient);
        self.gradients[value.index()] = Some(gradient);
    }

    /// True when any output of a node has a gradient.
    pub(crate) fn has_gradient(&self, node: NodeId) -> bool {
        self.graph.node(node).outputs.iter().any(|&output| self.gradient(output).is_some())
    }

    /// Adds an input that holds the gradient of `value`.
    pub(crate) fn seed(&mut self, value: ValueId, seed_name: &str) -> Result<ValueId, AutogradError> {
        let ty = self.graph.value(value).ty.clone();
        let seed = self.graph.input(seed_name, ty)?;
        self.gradients[value.index()] = Some(seed);
        self.named.insert(seed);
        Ok(seed)
    }

    /// Pushes a backward node named `<forward node>.<suffix>` into the forward node's layer.
    pub(crate) fn push(
        &mut self,
        forward: NodeId,
        suffix: &str,
        op: Op,
        inputs: &[ValueId],
    ) -> Result<Vec<ValueId>, AutogradError> {
        let node = self.graph.node(forward);
        let (name, layer) = (format!("{}.{suffix}", node.name), node.layer);
        Ok(self.graph.push_at(&name, op, inputs, Phase::Backward, layer)?)
    }

    /// Adds `gradient`, made by the backward of `forward`, to the gradient of `value`.
    pub(crate) fn give(&mut self, forward: NodeId, value: ValueId, gradient: ValueId) -> Result<(), AutogradError> {
        if !self.needs(value) {
            return Ok(());
        }
        let total = match (self.gradient(value), self.seconds.remove(&value)) {
            (None, _) => gradient,
            (Some(first), None) if self.adds_itself(value) => {
                self.seconds.insert(value, gradient);
                first
            }
            (Some(before), None) => self.sum(forward, value, [before, gradient])?,
            (Some(first), Some(second)) => {
                self.seconds.insert(value, gradient);
                self.sum(forward, value, [first, second])?
            }
        };
        self.gradients[value.index()] = Some(total);
        Ok(())
    }

    /// The gradient of a value that is left to the value's maker to add to [`Tape::gradient`].
    pub(crate) fn second(&self, value: ValueId) -> Option<ValueId> {
        self.seconds.get(&value).copied()
    }

    fn adds_itself(&self, value: ValueId) -> bool {
        let maker = self.graph.value(value).producer.map(|id| &self.graph.node(id).op);
        matches!(maker, Some(Op::BatchNormAddRelu(_) | Op::BatchNormPairRelu(_))) && !self.kept.contains(&value)
    }

    fn sum(&mut self, forward: NodeId, value: ValueId, parts: [ValueId; 2]) -> Result<ValueId, AutogradError> {
        self.sums[value.index()] += 1;
        let of = &self.graph.value(value).name;
        let name = match self.sums[value.index()] {
            1 => format!("{of}.grad_sum"),
            nth => format!("{of}.grad_sum.{nth}"),
        };
        let layer = self.graph.node(forward).layer;
        Ok(self.graph.push_at(&name, Op::Add, &parts, Phase::Backward, layer)?[0])
    }

    /// Zeros of a value's type, as a state that nothing updates: the gradient of a part that nobody used.
    pub(crate) fn zeros(&mut self, value: ValueId) -> Result<ValueId, AutogradError> {
        let like = self.graph.value(value);
        let (name, ty) = (format!("{}.zero_grad", like.name), like.ty.clone());
        Ok(self.graph.state(&name, ty)?)
    }

    /// The gradient of `value` is complete: it takes its name, unless it is another value's gradient as well or one of two.
    pub(crate) fn finish(&mut self, value: ValueId) -> Result<Option<ValueId>, AutogradError> {
        let Some(gradient) = self.gradient(value) else { return Ok(None) };
        if self.seconds.contains_key(&value) {
            return Ok(Some(gradient));
        }
        if self.named.insert(gradient) {
            let name = format!("{}.grad", self.graph.value(value).name);
            self.graph.rename_value(gradient, &name)?;
        }
        Ok(Some(gradient))
    }

    pub(crate) fn finish_outputs(&mut self, node: NodeId) -> Result<(), AutogradError> {
        for index in 0..self.graph.node(node).outputs.len() {
            self.finish(self.graph.node(node).outputs[index])?;
        }
        Ok(())
    }

    /// Names the gradients of values that no node makes.
    pub(crate) fn finish_inputs(&mut self) -> Result<(), AutogradError> {
        for index in 0..self.gradients.len() {
            self.finish(ValueId(index as u32))?;
        }
        Ok(())
    }

    pub(crate) fn into_parts(self) -> (Graph, BTreeMap<ValueId, ValueId>) {
        let forward = (0..self.gradients.len() as u32).map(ValueId);
        let whole = forward.zip(&self.gradients).filter(|(value, _)| !self.seconds.contains_key(value));
        let gradients = whole.filter_map(|(value, gradient)| Some((value, (*gradient)?)));
        let gradients = gradients.collect();
        (self.graph, gradients)
    }
}

/// Values on the way from a parameter or kept value, in one pass since push order is topological.
fn wanted(graph: &Graph, keep: &[ValueId]) -> Vec<bool> {
    let mut needs: Vec<bool> = graph.values().iter().map(|value| value.role == Role::Parameter).collect();
    for value in keep {
        needs[value.index()] = true;
    }
    for node in graph.nodes() {
        let any = node.inputs.iter().any(|input| needs[input.index()]);
        for output in &node.outputs {
            needs[output.index()] |= any;
        }
    }
    needs
}
