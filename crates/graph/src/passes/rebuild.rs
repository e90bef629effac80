//! What all passes share: a new graph that grows beside the old one, and which new value stands for which old one.

use super::Rewritten;
use crate::{Graph, GraphError, Node, Op, Phase, Role, ValueId};

pub(super) struct Rebuild<'a> {
    pub old: &'a Graph,
    pub new: Graph,
    values: Vec<Option<ValueId>>,
}

fn not_differentiated(pass: &'static str, old: &Graph) -> Result<(), GraphError> {
    let Some(node) = old.nodes().iter().find(|node| node.phase != Phase::Forward) else { return Ok(()) };
    let reason = "expected forward nodes only; passes come before differentiation".to_string();
    Err(GraphError::Pass { pass, graph: old.name.clone(), place: node.name.clone(), reason })
}

/// The graph as it is.
pub(super) fn same(graph: &Graph) -> Rewritten {
    Rewritten { graph: graph.clone(), values: graph.value_ids().map(Some).collect() }
}

impl<'a> Rebuild<'a> {
    /// A graph with the layers, inputs, parameters and states of the old one and no nodes yet.
    ///
    /// # Errors
    /// [`GraphError::Pass`] for a graph that has been differentiated.
    pub fn new(pass: &'static str, old: &'a Graph) -> Result<Self, GraphError> {
        not_differentiated(pass, old)?;
        Self::whole(old)
    }

    /// The same for a graph of any phase.
    ///
    /// # Errors
    /// As pushing the sources into an empty graph.
    pub fn whole(old: &'a Graph) -> Result<Self, GraphError> {
        let mut rebuild = Self::sources(old)?;
        for layer in old.layers() {
            rebuild.new.begin_layer(&layer.name);
        }
        Ok(rebuild)
    }

    /// The same as [`Rebuild::new`] without layers, for a pass that makes other ones.
    ///
    /// # Errors
    /// As there.
    pub fn bare(pass: &'static str, old: &'a Graph) -> Result<Self, GraphError> {
        not_differentiated(pass, old)?;
        Self::sources(old)
    }

    fn sources(old: &'a Graph) -> Result<Self, GraphError> {
        let mut new = Graph::new(&old.name);
        new.precision = old.precision;
        let mut values = vec![None; old.values().len()];
        for id in old.value_ids().filter(|&id| old.value(id).producer.is_none()) {
            let value = old.value(id);
            let (name, ty) = (value.name.as_str(), value.ty.clone());
            values[id.index()] = Some(match value.role {
                Role::Parameter => new.parameter(name, ty)?,
                Role::State => new.state(name, ty)?,
                _ => new.input(name, ty)?,
            });
        }
        Ok(Rebuild { old, new, values })
    }

    /// The new value that stands for an old one.
    pub fn value(&self, old: ValueId) -> ValueId {
        self.values[old.index()].expect("what a node reads has been made: push order is topological")
    }

    /// New values for a node's operands.
    pub fn inputs(&self, node: &Node) -> Vec<ValueId> {
        node.inputs.iter().map(|&input| self.value(input)).collect()
    }

    /// A name that neither graph has: this one, or numbered from the second on.
    pub fn free_name(&self, name: String) -> String {
        let taken = |name: &String| self.new.has_name(name) || self.old.has_name(name);
        let mut numbered = (2..).map(|nth: u32| format!("{name}.{nth}"));
        if taken(&name) { numbered.find(|name| !taken(name)).unwrap_or(name) } else { name }
    }

    /// Pushes what takes the place of an old node, under its name and in its layer. Outputs stand for the old ones and take
    /// their names; what the new op makes beyond them is new.
    ///
    /// # Errors
    /// [`GraphError`] when the shape rule refuses.
    pub fn push(&mut self, node: &Node, op: Op, inputs: &[ValueId]) -> Result<(), GraphError> {
        let outputs = self.new.push_at(&node.name, op, inputs, node.phase, node.layer)?;
        self.stand_for(&node.outputs, &outputs)
    }

    /// Lets new values stand for old ones, under their names.
    ///
    /// # Errors
    /// [`GraphError`] for a name that is taken.
    pub fn stand_for(&mut self, before: &[ValueId], now: &[ValueId]) -> Result<(), GraphError> {
        for (&before, &now) in before.iter().zip(now) {
            let value = self.old.value(before);
            self.new.rename_value(now, &value.name)?;
            if value.role == Role::Metric {
                self.new.read_back(now);
            }
            self.values[before.index()] = Some(now);
        }
        Ok(())
    }

    pub fn finish(self) -> Rewritten {
        Rewritten { graph: self.new, values: self.values }
    }
}
