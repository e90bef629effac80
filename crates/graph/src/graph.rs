//! Values, nodes, layers and persistents.

mod rewrite;

use crate::{GraphError, Op};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use vdnn_tensor::{Bytes, TensorType};

/// Index of a value in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ValueId(pub u32);

/// Index of a node in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// Index of a layer in its graph, in forward order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LayerId(pub u32);

impl ValueId {
    /// The id as a vector index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeId {
    /// The id as a vector index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl LayerId {
    /// The id as a vector index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a value is for. Memory reports are split by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Written by the host before each iteration: images, labels, learning rate, iteration counter.
    Input,
    /// A trained weight (W), persistent.
    Parameter,
    /// Persistent but not trained: running statistics, momentum.
    State,
    /// A feature map (X, Y).
    FeatureMap,
    /// A small result of the forward pass kept for backward (batch statistics).
    Statistic,
    /// The gradient of a feature map (dX, dY).
    Gradient,
    /// The gradient of a parameter (dW).
    ParameterGradient,
    /// A scalar read back by the host: loss, count of correct answers.
    Metric,
}

/// What a node makes and others read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// Stable name, unique in the graph.
    pub name: String,
    /// Shape, dtype and layout.
    pub ty: TensorType,
    /// What the value is for.
    pub role: Role,
    /// The node that makes it; `None` for inputs, parameters and states.
    pub producer: Option<NodeId>,
}

/// The part of the iteration a node belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// From the batch to the loss.
    Forward,
    /// Gradients.
    Backward,
    /// Optimizer steps.
    Update,
}

/// One op applied to values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Stable name, unique in the graph.
    pub name: String,
    /// What is computed.
    pub op: Op,
    /// Values read, in the op's order.
    pub inputs: Vec<ValueId>,
    /// Values made, in the op's order.
    pub outputs: Vec<ValueId>,
    /// Part of the iteration.
    pub phase: Phase,
    /// The layer this node belongs to; backward and update nodes belong to their forward node's layer.
    pub layer: LayerId,
}

/// A layer as the paper counts them: one call of a layer's `push`, with all nodes it made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// Stable name.
    pub name: String,
}

/// A value that outlives the iteration. It starts as `initial` and ends as `last` (equal when nothing updates it),
/// both in the same bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Persistent {
    /// The value at the start of the iteration.
    pub initial: ValueId,
    /// The value at the end of the iteration.
    pub last: ValueId,
}

/// Arithmetic of matrix products and convolutions in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// IEEE single precision products.
    #[default]
    F32,
    /// Products of operands rounded to 10 mantissa bits on matrix units (CUDA only).
    Tf32,
}

/// A static layer graph; after differentiation the whole iteration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Name of the network.
    pub name: String,
    /// Arithmetic of f32 matrix products.
    pub precision: Precision,
    values: Vec<Value>,
    nodes: Vec<Node>,
    layers: Vec<Layer>,
    persistents: Vec<Persistent>,
    metrics: Vec<ValueId>,
    #[serde(skip)]
    names: HashSet<String>,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Self {
        Graph { name: name.into(), ..Graph::default() }
    }

    /// All values by id.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// All nodes in push order, which is a topological order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All layers in forward order.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Values that outlive the iteration.
    pub fn persistents(&self) -> &[Persistent] {
        &self.persistents
    }

    /// Values the host reads after an iteration.
    pub fn metrics(&self) -> &[ValueId] {
        &self.metrics
    }

    /// One value.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// One node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// One layer.
    pub fn layer(&self, id: LayerId) -> &Layer {
        &self.layers[id.index()]
    }

    /// All value ids.
    pub fn value_ids(&self) -> impl ExactSizeIterator<Item = ValueId> + use<> {
        (0..self.values.len() as u32).map(ValueId)
    }

    /// All node ids in push order.
    pub fn node_ids(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// The value of this name.
    pub fn find_value(&self, name: &str) -> Option<ValueId> {
        self.values.iter().position(|value| value.name == name).map(|i| ValueId(i as u32))
    }

    /// True when a value has this name.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// A value written by the host before each iteration.
    ///
    /// # Errors
    /// [`GraphError`] for a bad or repeated name.
    pub fn input(&mut self, name: &str, ty: TensorType) -> Result<ValueId, GraphError> {
        self.add_value(name, ty, Role::Input, None)
    }

    /// A trained weight.
    ///
    /// # Errors
    /// [`GraphError`] for a bad or repeated name.
    pub fn parameter(&mut self, name: &str, ty: TensorType) -> Result<ValueId, GraphError> {
        self.persistent(name, ty, Role::Parameter)
    }

    /// A persistent value that is not trained.
    ///
    /// # Errors
    /// [`GraphError`] for a bad or repeated name.
    pub fn state(&mut self, name: &str, ty: TensorType) -> Result<ValueId, GraphError> {
        self.persistent(name, ty, Role::State)
    }

    fn persistent(&mut self, name: &str, ty: TensorType, role: Role) -> Result<ValueId, GraphError> {
        let id = self.add_value(name, ty, role, None)?;
        self.persistents.push(Persistent { initial: id, last: id });
        Ok(id)
    }

    /// The newest version of the persistent that starts as `initial`: what a second use of a module must read.
    pub fn latest(&self, initial: ValueId) -> ValueId {
        self.persistent_index(initial).map_or(initial, |index| self.persistents[index].last)
    }

    /// Makes a computed value one that the host reads after the iteration.
    pub fn read_back(&mut self, id: ValueId) {
        let value = &mut self.values[id.index()];
        if value.producer.is_some() && value.role != Role::Metric {
            value.role = Role::Metric;
            self.metrics.push(id);
        }
    }

    /// Starts a layer: nodes pushed from now on in the forward phase belong to it.
    pub fn begin_layer(&mut self, name: impl Into<String>) -> LayerId {
        self.layers.push(Layer { name: name.into() });
        LayerId(self.layers.len() as u32 - 1)
    }

    /// Pushes a forward node into the current layer and returns its outputs.
    ///
    /// # Errors
    /// [`GraphError::Shape`] when the op's shape rule refuses the inputs, or a naming error.
    pub fn push(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<Vec<ValueId>, GraphError> {
        if self.layers.is_empty() {
            self.begin_layer(name);
        }
        let layer = LayerId(self.layers.len() as u32 - 1);
        self.push_at(name, op, inputs, Phase::Forward, layer)
    }

    /// Pushes a node of any phase into a given layer. Outputs are named after the node (see [`Op::output_names`]).
    ///
    /// An op with an effect (see [`Op::updates`]) moves its persistent on to the new value.
    ///
    /// # Errors
    /// [`GraphError::Shape`] when the op's shape rule refuses the inputs, or a naming error.
    pub fn push_at(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[ValueId],
        phase: Phase,
        layer: LayerId,
    ) -> Result<Vec<ValueId>, GraphError> {
        check_name(name)?;
        let types: Vec<&TensorType> = inputs.iter().map(|&id| &self.value(id).ty).collect();
        let shape_error = |reason| GraphError::Shape { node: name.to_string(), op: op.kind(), reason };
        let output_types = op.infer(&types).map_err(shape_error)?;
        let node = NodeId(self.nodes.len() as u32);
        let mut outputs = Vec::with_capacity(output_types.len());
        for (index, ty) in output_types.into_iter().enumerate() {
            let value_name = self.output_name(name, &op, inputs, index);
            let role = self.output_role(&op, inputs, index, phase);
            outputs.push(self.add_value(&value_name, ty, role, Some(node))?);
        }
        for (input, output) in op.updates().iter() {
            self.advance_persistent(inputs[*input], outputs[*output]);
        }
        self.metrics.extend(outputs.iter().filter(|&&id| self.values[id.index()].role == Role::Metric));
        let inputs = inputs.to_vec();
        self.nodes.push(Node { name: name.to_string(), op, inputs, outputs: outputs.clone(), phase, layer });
        Ok(outputs)
    }

    /// Renames a value, for example to give a gradient the name of what it is the gradient of.
    ///
    /// # Errors
    /// [`GraphError`] for a bad or repeated name.
    pub fn rename_value(&mut self, id: ValueId, name: &str) -> Result<(), GraphError> {
        check_name(name)?;
        if self.value(id).name == name {
            return Ok(());
        }
        if !self.names.insert(name.to_string()) {
            return Err(GraphError::DuplicateName { name: name.to_string() });
        }
        let old = std::mem::replace(&mut self.values[id.index()].name, name.to_string());
        self.names.remove(&old);
        Ok(())
    }

    /// Bytes of all values with a role.
    pub fn bytes_of(&self, role: Role) -> Bytes {
        self.values.iter().filter(|value| value.role == role && value.producer.is_none()).map(|v| v.ty.bytes()).sum()
    }

    /// The op's own word, save that a sum of parameter gradients is one, and such a gradient cast or folded back.
    fn output_role(&self, op: &Op, inputs: &[ValueId], index: usize, phase: Phase) -> Role {
        let parameter_gradient = |&id: &ValueId| self.value(id).role == Role::ParameterGradient;
        match op {
            Op::Add | Op::Cast(_) | Op::UnfoldGrad(_) if inputs.iter().all(parameter_gradient) => {
                Role::ParameterGradient
            }
            _ => op.output_role(index, phase),
        }
    }

    fn output_name(&self, name: &str, op: &Op, inputs: &[ValueId], index: usize) -> String {
        if let Some((input, _)) = op.updates().iter().find(|(_, output)| *output == index) {
            return format!("{}'", self.value(inputs[*input]).name);
        }
        let suffix = op.output_names().get(index).copied().map_or_else(|| index.to_string(), str::to_string);
        if suffix.is_empty() { name.to_string() } else { format!("{name}.{suffix}") }
    }

    fn advance_persistent(&mut self, from: ValueId, to: ValueId) {
        let role = self.value(from).role;
        self.values[to.index()].role = role;
        if let Some(index) = self.persistent_index(self.first_version(from)) {
            self.persistents[index].last = to;
        }
    }

    /// The value at the start of the iteration of which `value` is an updated version.
    fn first_version(&self, mut value: ValueId) -> ValueId {
        while let Some(producer) = self.value(value).producer {
            let node = self.node(producer);
            let updates = node.op.updates();
            let Some(&(input, _)) = updates.iter().find(|(_, output)| node.outputs[*output] == value) else { break };
            value = node.inputs[input];
        }
        value
    }

    /// Persistents stand in the order of their initial values' ids.
    fn persistent_index(&self, initial: ValueId) -> Option<usize> {
        self.persistents.binary_search_by_key(&initial, |persistent| persistent.initial).ok()
    }

    fn add_value(
        &mut self,
        name: &str,
        ty: TensorType,
        role: Role,
        producer: Option<NodeId>,
    ) -> Result<ValueId, GraphError> {
        check_name(name)?;
        if !self.names.insert(name.to_string()) {
            return Err(GraphError::DuplicateName { name: name.to_string() });
        }
        self.values.push(Value { name: name.to_string(), ty, role, producer });
        Ok(ValueId(self.values.len() as u32 - 1))
    }
}

fn check_name(name: &str) -> Result<(), GraphError> {
    let forbidden = |c: char| c.is_whitespace() || c.is_control() || "()[],;|@%".contains(c);
    if name.is_empty() || name.contains(forbidden) {
        return Err(GraphError::BadName { name: name.to_string() });
    }
    Ok(())
}
