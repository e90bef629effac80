//! Optimizer nodes: when a parameter is updated, and with which buffers.

use crate::loss_scaling::LossScaling;
use crate::tape::Tape;
use crate::{AutogradError, Optimizer, Options, Root, UpdateAt};
use vdnn_graph::{Graph, LayerId, NodeId, Op, Phase, Role, ValueId, op};
use vdnn_tensor::{DType, TensorType};

/// Follows the walk and pushes an update once a parameter's last use has been differentiated.
pub(crate) struct Updates {
    optimizer: Optimizer,
    update_at: UpdateAt,
    decay_vectors: bool,
    /// Forward nodes that read a parameter and that the walk has yet to reach.
    pending: Vec<u32>,
    postponed: Vec<(ValueId, LayerId)>,
    scalars: Option<Scalars>,
    /// With loss scaling: the iteration less the skipped ones.
    steps_taken: Option<ValueId>,
    /// The loss, or what also says whether all gradients are finite: updates do nothing in an iteration in which it is not.
    guard: Option<ValueId>,
}

#[derive(Clone, Copy)]
struct Scalars {
    learning_rate: ValueId,
    iteration: ValueId,
}

impl Updates {
    pub(crate) fn new(graph: &Graph, options: &Options) -> Self {
        let mut pending = vec![0; graph.values().len()];
        for id in graph.node_ids() {
            for parameter in parameters_of(graph, id) {
                pending[parameter.index()] += 1;
            }
        }
        Updates {
            optimizer: options.optimizer,
            update_at: if options.loss_scaling.is_some() { UpdateAt::End } else { options.update_at },
            decay_vectors: options.decay_vectors,
            pending,
            postponed: Vec::new(),
            scalars: None,
            steps_taken: None,
            guard: match options.root {
                Root::Loss(loss) => Some(loss),
                Root::Value { .. } => None,
            },
        }
    }

    /// The walk has left `node`. Its backward nodes stand, so a parameter whose first use it was is complete.
    pub(crate) fn after(&mut self, tape: &mut Tape, node: NodeId) -> Result<(), AutogradError> {
        let layer = tape.graph().node(node).layer;
        for parameter in parameters_of(tape.graph(), node) {
            self.pending[parameter.index()] -= 1;
            if self.pending[parameter.index()] > 0 || tape.finish(parameter)?.is_none() {
                continue;
            }
            match self.update_at {
                UpdateAt::Layer => self.push(tape, parameter, layer)?,
                UpdateAt::End => self.postponed.push((parameter, layer)),
            }
        }
        Ok(())
    }

    pub(crate) fn at_end(&mut self, tape: &mut Tape, scaling: Option<&LossScaling>) -> Result<(), AutogradError> {
        if let (Some(scaling), Some(guard), Some(&(_, layer))) = (scaling, self.guard, self.postponed.last()) {
            let guard = scaling.unscale(tape, &self.postponed, guard)?;
            let iteration = scalar(tape, "iteration", DType::U64)?;
            self.steps_taken = Some(scaling.advance(tape, guard, iteration, layer)?);
            self.guard = Some(guard);
        }
        for (parameter, layer) in std::mem::take(&mut self.postponed) {
            self.push(tape, parameter, layer)?;
        }
        Ok(())
    }

    fn push(&mut self, tape: &mut Tape, parameter: ValueId, layer: LayerId) -> Result<(), AutogradError> {
        let Some(gradient) = tape.gradient(parameter) else { return Ok(()) };
        let value = tape.graph().value(parameter);
        let (name, ty) = (value.name.clone(), value.ty.clone());
        let decays = self.decay_vectors || ty.shape.rank() > 1;
        let (op, states): (Op, &[&str]) = match self.optimizer {
            Optimizer::None => return Ok(()),
            Optimizer::Sgd(sgd) => {
                let weight_decay = if decays { sgd.weight_decay } else { 0.0 };
                let states: &[&str] = if sgd.has_momentum() { &["momentum"] } else { &[] };
                (Op::Sgd(op::Sgd { weight_decay, ..sgd }), states)
            }
            Optimizer::Adam(adam) => {
                let weight_decay = if decays { adam.weight_decay } else { 0.0 };
                (Op::Adam(op::Adam { weight_decay, ..adam }), &["exp_avg", "exp_avg_sq"])
            }
        };
        let scalars = self.scalars(tape, ty.dtype)?;
        let mut inputs = vec![parameter, gradient];
        for state in states {
            inputs.push(tape.graph_mut().state(&format!("{name}.{state}"), ty.clone())?);
        }
        inputs.extend([scalars.learning_rate, scalars.iteration]);
        inputs.extend(self.guard);
        tape.graph_mut().push_at(&format!("{name}.update"), op, &inputs, Phase::Update, layer)?;
        Ok(())
    }

    /// The learning rate and the iteration counter, or how many steps have been taken where some are skipped.
    fn scalars(&mut self, tape: &mut Tape, dtype: DType) -> Result<Scalars, AutogradError> {
        if let Some(scalars) = self.scalars {
            return Ok(scalars);
        }
        let learning_rate = scalar(tape, "learning_rate", dtype)?;
        let iteration = match self.steps_taken {
            Some(steps) => steps,
            None => scalar(tape, "iteration", DType::U64)?,
        };
        Ok(*self.scalars.insert(Scalars { learning_rate, iteration }))
    }
}

/// The graph's own input of this name, or a new one.
fn scalar(tape: &mut Tape, name: &str, dtype: DType) -> Result<ValueId, AutogradError> {
    match tape.graph().find_value(name) {
        Some(id) => Ok(id),
        None => Ok(tape.graph_mut().input(name, TensorType::new([1], dtype))?),
    }
}

/// The parameters a node reads, each once.
fn parameters_of(graph: &Graph, node: NodeId) -> Vec<ValueId> {
    let mut parameters: Vec<ValueId> = Vec::new();
    for &input in &graph.node(node).inputs {
        if graph.value(input).role == Role::Parameter && !parameters.contains(&input) {
            parameters.push(input);
        }
    }
    parameters
}
