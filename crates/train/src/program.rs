//! From a network to the programs of a run: training, the last partial batch, evaluation.

use crate::split::need;
use crate::{SplitError, TrainError};
use vdnn_autograd::{Optimizer, Options, UpdateAt, differentiate};
use vdnn_graph::op::{LossScaleUpdate, Sgd};
use vdnn_graph::passes::{SplitBatch, fuse_gradients, fuse_statistics, group};
use vdnn_graph::{Graph, GraphError, InPlace, Program, ValueId};
use vdnn_layers::{Mode, Net};
use vdnn_tensor::{Bytes, DType};

/// What a model may say when it cannot be built.
pub type BuildError = Box<dyn std::error::Error + Send + Sync>;

/// Something that builds a network for a batch size and a mode. Functions and closures do.
pub trait Network {
    /// Builds the network, with its loss.
    ///
    /// # Errors
    /// Whatever the model's own error says.
    fn build(&self, batch_size: u64, mode: Mode) -> Result<Net, BuildError>;
}

impl<F> Network for F
where
    F: Fn(u64, Mode) -> Result<Net, BuildError>,
{
    fn build(&self, batch_size: u64, mode: Mode) -> Result<Net, BuildError> {
        self(batch_size, mode)
    }
}

/// How parameters are updated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimization {
    /// The optimizer.
    pub optimizer: Optimizer,
    /// When updates run; at the end where the loss is scaled.
    pub update_at: UpdateAt,
    /// Whether weight decay also acts on biases and batch norm's parameters.
    pub decay_vectors: bool,
}

impl Optimization {
    /// SGD with momentum and weight decay, each parameter updated right after its gradient.
    pub fn sgd(momentum: f64, weight_decay: f64) -> Self {
        let sgd = Sgd { momentum, dampening: 0.0, weight_decay, nesterov: false };
        Optimization { optimizer: Optimizer::Sgd(sgd), update_at: UpdateAt::Layer, decay_vectors: true }
    }
}

/// The network for a batch size and a mode, as the model builds it.
///
/// # Errors
/// [`TrainError::Model`].
pub fn network(network: &dyn Network, batch_size: u64, mode: Mode) -> Result<Net, TrainError> {
    let net = network.build(batch_size, mode).map_err(TrainError::Model)?;
    match net.loss() {
        Some(_) => Ok(net),
        None => Err(TrainError::Model("the network has no loss: end it with Net::classify".into())),
    }
}

/// The whole iteration of a network built for training, after its passes. Where maps are of f16 and parameters are updated, the
/// loss is scaled, and updates stand at the end.
///
/// # Errors
/// [`TrainError`] when a pass cannot take it, or when it cannot be differentiated or ordered.
pub fn training(net: Net, optimization: &Optimization) -> Result<Program, TrainError> {
    let split = net.options().split_batch.clone();
    training_split(net, optimization, split)
}

/// The same for a device budget: programs to be planned until one can be kept within it, the one to be preferred first. Where
/// layers are fused, batch norms of the largest residuals may be nodes of their own: that comes first where one kernel would hold more than
/// three quarters of the budget, and the largest kernel then holds less.
///
/// # Errors
/// As [`training`].
pub fn training_within(
    net: Net,
    optimization: &Optimization,
    budget: Option<Bytes>,
) -> Result<Vec<Program>, TrainError> {
    let program = training(net.clone(), optimization)?;
    let Some(budget) = budget else { return Ok(vec![program]) };
    let Some(apart) = training_apart(net, optimization, &program)? else { return Ok(vec![program]) };
    Ok(if prefers_apart(&program, &apart, budget)? { vec![apart, program] } else { vec![program, apart] })
}

/// The program of a network with batch norms of the largest residuals as nodes of their own; `None` where `program`, which [`training`] made of it,
/// has none that were fused.
///
/// # Errors
/// As [`training`].
pub fn training_apart(net: Net, optimization: &Optimization, program: &Program) -> Result<Option<Program>, TrainError> {
    if !net.options().passes.fuse {
        return Ok(None);
    }
    let apart = training(net.with_norms_apart(), optimization)?;
    Ok((apart.graph.nodes().len() != program.graph.nodes().len()).then_some(apart))
}

/// Whether the program with norms apart comes first within a budget: where a kernel of the other would hold more than three quarters
/// of it, and the largest kernel then holds less.
///
/// # Errors
/// [`TrainError::Graph`] when a program cannot be followed.
pub fn prefers_apart(program: &Program, apart: &Program, budget: Bytes) -> Result<bool, TrainError> {
    let (most, _) = need(program)?;
    Ok(most > budget / 4 * 3 && need(apart)?.0 < most)
}

/// The same for a last partial batch, which may be split into fewer parts, or not at all where that does not help.
pub(crate) fn training_rest(net: Net, optimization: &Optimization) -> Result<Program, TrainError> {
    let samples = net.options().batch_size;
    let fewer = |split: SplitBatch| SplitBatch { parts: split.parts.min(samples), ..split };
    let split = net.options().split_batch.clone().map(fewer);
    match training_split(net.clone(), optimization, split) {
        Err(TrainError::Split(SplitError::NoGain { .. })) => training_split(net, optimization, None),
        done => done,
    }
}

fn training_split(net: Net, optimization: &Optimization, split: Option<SplitBatch>) -> Result<Program, TrainError> {
    let scaled = is_scaled(&net, optimization);
    let net = lowered(net)?;
    let fuse = net.options().passes.fuse;
    let loss = net.loss().ok_or_else(|| TrainError::Model("the network has no loss".into()))?;
    let iteration = |graph: Graph, loss: ValueId| {
        let options = Options {
            update_at: optimization.update_at,
            decay_vectors: optimization.decay_vectors,
            loss_scaling: scaled.then(LossScaleUpdate::default),
            ..Options::train(loss, optimization.optimizer)
        };
        linearized(differentiate(graph, &options)?.graph, fuse)
    };
    match split {
        Some(asked) => crate::split::iteration(net.graph(), loss, &asked, iteration),
        None => iteration(net.into_graph(), loss),
    }
}

/// Whether training needs loss scaling: gradients below 6e-8 vanish in f16.
pub(crate) fn is_scaled(net: &Net, optimization: &Optimization) -> bool {
    net.options().passes.storage == Some(DType::F16) && optimization.optimizer != Optimizer::None
}

/// The forward pass of a network built for evaluation, after its passes. Where the batch is to be split and that does not help
/// here, it is whole: evaluation needs less than training.
///
/// # Errors
/// [`TrainError::Model`] when a pass cannot take it, or [`TrainError::Graph`].
pub fn evaluation(net: Net) -> Result<Program, TrainError> {
    let net = lowered(net)?;
    let fuse = net.options().passes.fuse;
    let iteration = |graph: Graph, _: ValueId| linearized(graph, fuse);
    if let (Some(asked), Some(loss)) = (net.options().split_batch.clone(), net.loss()) {
        match crate::split::iteration(net.graph(), loss, &asked, iteration) {
            Err(TrainError::Split(_) | TrainError::Graph(GraphError::Pass { .. })) => {}
            done => return done,
        }
    }
    linearized(net.into_graph(), fuse)
}

/// The program of a whole graph; where layers are fused with gradients and statistics fused and small launches in groups.
fn linearized(graph: Graph, fuse: bool) -> Result<Program, TrainError> {
    let graph = match fuse {
        true => group(&fuse_statistics(&fuse_gradients(&graph)?.graph)?.graph)?.graph,
        false => graph,
    };
    Ok(Program::linearize(graph, InPlace::Allowed)?)
}

fn lowered(net: Net) -> Result<Net, TrainError> {
    net.lower().map_err(|refusal| TrainError::Model(refusal.into()))
}
