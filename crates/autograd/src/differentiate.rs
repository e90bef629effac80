//! The reverse walk.

use crate::loss_scaling::LossScaling;
use crate::tape::Tape;
use crate::update::Updates;
use crate::{AutogradError, Options, Root, rules};
use std::collections::BTreeMap;
use vdnn_graph::{Graph, Op, Phase, Role, ValueId};

/// A graph of one whole iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainGraph {
    /// Forward, backward and update nodes, in the order of the iteration.
    pub graph: Graph,
    /// The value that was differentiated.
    pub root: ValueId,
    /// The input that holds the root's gradient, for [`Root::Value`].
    pub seed: Option<ValueId>,
    /// The gradient of every value that has one. Several values may share one gradient (both sides of an addition); where a
    /// node takes two gradients of its result and adds them itself, there is none of the result.
    pub gradients: BTreeMap<ValueId, ValueId>,
}

/// Extends a forward graph with gradients of `options.root` and the optimizer's updates.
///
/// Takes time linear in the size of the graph and does not recurse.
///
/// # Errors
/// [`AutogradError`] when the graph is not a forward graph, the root is no loss, an op on the way has no gradient, a kept
/// gradient does not exist, or a name that backward needs is taken.
pub fn differentiate(graph: Graph, options: &Options) -> Result<TrainGraph, AutogradError> {
    check_forward(&graph)?;
    let root = options.root.value();
    let mut updates = Updates::new(&graph, options);
    let mut tape = Tape::new(graph, options);
    let scaling = LossScaling::start(&mut tape, options)?;
    if !tape.needs(root) {
        return Err(AutogradError::NothingToDifferentiate { root: tape.name(root) });
    }
    let seed = start(&mut tape, &options.root, scaling.as_ref())?;
    for node in tape.forward_nodes().rev() {
        tape.finish_outputs(node)?;
        if tape.has_gradient(node) {
            rules::apply(&mut tape, node)?;
        }
        updates.after(&mut tape, node)?;
    }
    updates.at_end(&mut tape, scaling.as_ref())?;
    tape.finish_inputs()?;
    keep(&mut tape, options)?;
    let (graph, gradients) = tape.into_parts();
    Ok(TrainGraph { graph, root, seed, gradients })
}

fn check_forward(graph: &Graph) -> Result<(), AutogradError> {
    match graph.nodes().iter().find(|node| node.phase != Phase::Forward) {
        Some(node) => Err(AutogradError::NotForward { graph: graph.name.clone(), node: node.name.clone() }),
        None => Ok(()),
    }
}

/// Gives the root its gradient, or the logits theirs when the root is a loss.
fn start(tape: &mut Tape, root: &Root, scaling: Option<&LossScaling>) -> Result<Option<ValueId>, AutogradError> {
    match root {
        Root::Value { value, seed_name } => {
            let seed = tape.seed(*value, seed_name)?;
            Ok(Some(seed))
        }
        Root::Loss(loss) => {
            let producer = tape.graph().value(*loss).producer.map(|id| (id, tape.graph().node(id).op.clone()));
            let Some((node, Op::SoftmaxCrossEntropy(op))) = producer else {
                let found = producer.map_or("nothing: it is an input or persistent", |(_, op)| op.kind());
                return Err(AutogradError::RootIsNoLoss { value: tape.name(*loss), found: found.to_string() });
            };
            rules::from_loss(tape, node, op, scaling.map(LossScaling::scale))?;
            Ok(None)
        }
    }
}

fn keep(tape: &mut Tape, options: &Options) -> Result<(), AutogradError> {
    for &value in &options.keep {
        let Some(gradient) = tape.gradient(value) else {
            return Err(AutogradError::NoGradient { value: tape.name(value), root: tape.name(options.root.value()) });
        };
        if tape.graph().value(gradient).role != Role::Input {
            tape.graph_mut().read_back(gradient);
        }
    }
    Ok(())
}
