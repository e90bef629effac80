//! What is differentiated, and what is done with the gradients.

use vdnn_graph::ValueId;
use vdnn_graph::op::{Adam, LossScaleUpdate, Sgd};

/// The value whose gradients are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// A loss made by softmax cross-entropy; its own gradient is 1.
    Loss(ValueId),
    /// Any value, with its gradient given by the host as an input of the same type (gradient checks, golden tests).
    Value {
        /// The value.
        value: ValueId,
        /// Name of the input to add.
        seed_name: String,
    },
}

impl Root {
    /// The value whose gradients are taken.
    pub fn value(&self) -> ValueId {
        match self {
            Root::Loss(value) | Root::Value { value, .. } => *value,
        }
    }
}

/// What updates the parameters. Its buffers become states of the graph, starting at zero.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Optimizer {
    /// Gradients only.
    #[default]
    None,
    /// Stochastic gradient descent; state `<parameter>.momentum` when there is momentum.
    Sgd(Sgd),
    /// Adam or AdamW; states `<parameter>.exp_avg` and `<parameter>.exp_avg_sq`.
    Adam(Adam),
}

/// Where updates stand in the iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum UpdateAt {
    /// Right after the last backward node of the last layer that reads the parameter.
    #[default]
    Layer,
    /// After the whole backward pass, in the order in which gradients were completed.
    End,
}

/// Everything [`crate::differentiate`] can be asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// What is differentiated.
    pub root: Root,
    /// What is done with the gradients.
    pub optimizer: Optimizer,
    /// Where updates stand.
    pub update_at: UpdateAt,
    /// Whether weight decay applies to vectors too: biases, gammas and betas. (It never applies to running statistics.)
    pub decay_vectors: bool,
    /// Values, parameters or inputs whose gradients the host reads back after the iteration.
    pub keep: Vec<ValueId>,
    /// Dynamic loss scaling, for feature maps in f16: gradients on the way are those of the loss times a scale, those of
    /// parameters are divided by it, and no update runs unless all of them are finite. Updates then stand at the end, whatever
    /// [`Options::update_at`] says. Kept gradients of other values are scaled ones.
    pub loss_scaling: Option<LossScaleUpdate>,
}

impl Options {
    /// Gradients of a root and nothing else.
    pub fn new(root: Root) -> Self {
        Options {
            root,
            optimizer: Optimizer::None,
            update_at: UpdateAt::Layer,
            decay_vectors: true,
            keep: Vec::new(),
            loss_scaling: None,
        }
    }

    /// Training on a loss.
    pub fn train(loss: ValueId, optimizer: Optimizer) -> Self {
        Options { optimizer, ..Options::new(Root::Loss(loss)) }
    }
}
