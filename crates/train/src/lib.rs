//! From a model and a policy to a training loop.
//!
//! ```text
//!  Network ─build─► graph ─differentiate─► Program ─plan, compile, check─► Schedule ┐
//!    (train, last partial batch, evaluation: the same homes)                        ├─► Trainer ─► Device
//!  feeds (images, labels), learning rate, iteration ────────────────────────────────┘
//! ```
//!
//! [`program`] and [`plan`] are the pure half, usable without a device; [`Trainer`] runs. It reads no environment and
//! knows no CUDA: a device comes in as a box.

mod checkpoint;
mod error;
mod feed;
mod learning_rate;
mod loss_scale;
mod mean;
pub mod plan;
pub mod program;
pub mod split;
mod trainer;
mod weights;

pub use checkpoint::{Checkpoint, RunState};
pub use error::TrainError;
pub use feed::{Feed, Images};
pub use learning_rate::{Decay, LearningRate};
pub use loss_scale::{INITIAL_LOSS_SCALE, LossScale};
pub use mean::WeightedMean;
pub use plan::{Encodings, Planned, Settings, Subject};
pub use program::{BuildError, Network, Optimization};
pub use split::{SplitError, SplitFound};
pub use trainer::{Evaluation, EvaluationSum, LoadedBatch, Recipe, RunningStep, StagedBatch, StepResult, Trainer};
pub use weights::weights_sha256;
