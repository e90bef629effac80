//! What can stop a training run.

use std::path::PathBuf;
use thiserror::Error;
use vdnn_autograd::AutogradError;
use vdnn_check::Violation;
use vdnn_graph::GraphError;
use vdnn_memory::PlanError;
use vdnn_runtime::DeviceError;
use vdnn_tensor::TensorType;

/// A run that cannot start or go on.
#[derive(Debug, Error)]
pub enum TrainError {
    /// The model cannot be built as asked.
    #[error("{0}")]
    Model(Box<dyn std::error::Error + Send + Sync>),
    /// The graph cannot be differentiated.
    #[error(transparent)]
    Autograd(#[from] AutogradError),
    /// The graph is not a program.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The batch cannot be split as asked.
    #[error(transparent)]
    Split(#[from] crate::SplitError),
    /// No plan within the budgets.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The schedule did not pass its check. This is a defect of the policy or the compiler, never of the input.
    #[error("the schedule of policy {policy} is refused: {} violations, the first: {}", violations.len(), violations[0].message)]
    Refused {
        /// Name of the policy.
        policy: String,
        /// What is wrong; never empty.
        violations: Vec<Violation>,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An algorithm asked for by name is not among the node's choices.
    #[error(
        "{node} has no algorithm {algorithm} here; it has {available}. Use a schedule planned for this device and model"
    )]
    UnknownAlgorithm {
        /// The node.
        node: String,
        /// What was asked for.
        algorithm: String,
        /// What there is.
        available: String,
    },
    /// Algorithms asked for from a schedule of another network.
    #[error(
        "the algorithms are to come from a schedule of {found}, the network is {expected}; use a schedule of {expected}"
    )]
    OtherNetwork {
        /// Name of the network.
        expected: String,
        /// Name of the schedule's network.
        found: String,
    },
    /// No schedule was compiled for a batch of this size.
    #[error(
        "no schedule was compiled for a batch of {found}; compiled are {compiled:?}. Shapes are static: name the size when the run is set up, or drop the batch"
    )]
    BatchSize {
        /// Samples in the batch.
        found: u64,
        /// Sizes with a schedule.
        compiled: Vec<u64>,
    },
    /// The loss is no number any more. Parameters are as they were before the step.
    #[error(
        "the loss of step {step} is {loss}: training stopped before the update. Try a smaller learning rate, or check the data"
    )]
    NotFinite {
        /// The step, counted from 0 over the whole run.
        step: u64,
        /// What the loss was.
        loss: f64,
    },
    /// Gradients in f16 are not finite although the loss scale could not be smaller. Parameters are as they were before the
    /// step.
    #[error(
        "step {step}: gradients overflow f16 with a loss scale of {scale}, the least there is ({in_a_row} steps in a row were skipped). Try a smaller learning rate, or bf16, which has the range of f32"
    )]
    LossScale {
        /// The step, counted from 0 over the whole run.
        step: u64,
        /// The scale in that step.
        scale: f64,
        /// Steps skipped one after the other, this one counted.
        in_a_row: u64,
    },
    /// No label of a batch counts.
    #[error("all {count} labels of step {step} are ignored: the mean loss over no samples is undefined")]
    NoLabels {
        /// The step.
        step: u64,
        /// Labels in the batch.
        count: usize,
    },
    /// Images in another form or number than the network takes.
    #[error(
        "expected images that fill {expected}, found {found} {form}. A network takes bytes where it normalises them itself (NetOptions::bytes) and numbers elsewhere"
    )]
    Images {
        /// The type of the network's images.
        expected: Box<TensorType>,
        /// How many were given.
        found: usize,
        /// Of what.
        form: &'static str,
    },
    /// A second batch was to be copied to the device, and there is no room for one.
    #[error(
        "there is no room for a second batch on the device: set Recipe::staging, or load each batch before its step"
    )]
    NoStaging,
    /// A checkpoint file could not be written or read.
    #[error("{}: {reason}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What was expected and found.
        reason: String,
    },
}
