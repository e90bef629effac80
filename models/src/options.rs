//! What can be asked of every network.

use thiserror::Error;
use vdnn_graph::Precision;
use vdnn_graph::op::Normalise;
use vdnn_graph::passes::{Passes, SplitBatch};
use vdnn_layers::{LayerError, Mode};
use vdnn_tensor::DType;

/// Settings of a network; what is `None` takes the network's own default.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Samples in a batch.
    pub batch_size: u64,
    /// Height and width of the images.
    pub image_size: Option<u64>,
    /// Channels of the images.
    pub channels: Option<u64>,
    /// Number of classes.
    pub classes: Option<u64>,
    /// Probability of dropping, for networks that have dropout.
    pub dropout: Option<f64>,
    /// Label smoothing of the loss.
    pub label_smoothing: f64,
    /// Training or evaluation.
    pub mode: Mode,
    /// Seed of initial values and dropout masks.
    pub seed: u64,
    /// Element type of images, feature maps and parameters, as layers push them.
    pub dtype: DType,
    /// Arithmetic of f32 matrix products.
    pub precision: Precision,
    /// Images come as bytes and are normalised so; `None` for numbers.
    pub bytes: Option<Normalise>,
    /// Fusion and half-precision storage, which [`Net::lower`](vdnn_layers::Net::lower) brings about.
    pub passes: Passes,
    /// Into how many parts the batch is split where samples are treated independently, and how far; `None` for whole batches.
    pub split_batch: Option<SplitBatch>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            batch_size: 64,
            image_size: None,
            channels: None,
            classes: None,
            dropout: None,
            label_smoothing: 0.0,
            mode: Mode::Train,
            seed: 0,
            dtype: DType::F32,
            precision: Precision::F32,
            bytes: None,
            passes: Passes::NONE,
            split_batch: None,
        }
    }
}

/// Why a network could not be built.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ModelError {
    /// No network of this name.
    #[error("there is no model {name:?}; did you mean {nearest}? (`vdnn models` lists them all)")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The most similar name there is.
        nearest: String,
    },
    /// A member of a family that does not exist.
    #[error("{name}: expected {expected}")]
    Depth {
        /// The name asked for.
        name: String,
        /// Which members exist.
        expected: &'static str,
    },
    /// A setting that must be at least 1.
    #[error("{model}: expected {setting} of at least 1, found 0")]
    Zero {
        /// The network.
        model: String,
        /// Name of the setting.
        setting: &'static str,
    },
    /// A layer did not fit.
    #[error("{model} with images of {channels}x{image_size}x{image_size}: {source}")]
    Layer {
        /// The network.
        model: String,
        /// Channels of the images.
        channels: u64,
        /// Height and width of the images.
        image_size: u64,
        /// What the layer said.
        source: Box<LayerError>,
    },
}
