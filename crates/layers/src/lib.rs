//! What users compose: layers that push ops into a [`Net`], with PyTorch's parameter names and initial values.
//!
//! A [`Layer`] is a small plain struct of settings; [`Layer::push`] adds its ops and parameters to the graph and returns
//! the value it makes. Each call is one layer of the graph, as the paper counts them. Nothing here knows of gradients
//! (`autograd` adds them) or of devices (`runtime` and `cuda` run the ops).
//!
//! ```
//! use vdnn_layers::{Conv2d, Layer, Linear, Flatten, Net, NetOptions, Relu, Sequential};
//! let mut net = Net::new("tiny", &NetOptions { batch_size: 4, image: [1, 8, 8], ..NetOptions::default() })?;
//! let body = Sequential::new()
//!     .then("conv", Conv2d::new(1, 4, 3).padding(1))
//!     .then("relu", Relu)
//!     .then("flatten", Flatten)
//!     .then("fc", Linear::new(4 * 8 * 8, 10));
//! let image = net.image();
//! let logits = body.push(&mut net, "", image)?;
//! net.classify(logits, 0.0)?;
//! assert_eq!(net.graph().persistents().len(), 4);
//! # Ok::<(), vdnn_layers::LayerError>(())
//! ```

mod accuracy;
mod adaptive_avg_pool2d;
mod add;
mod avg_pool2d;
mod batch_norm;
mod concat;
mod conv2d;
mod dropout;
mod error;
mod flatten;
mod init;
mod linear;
mod local_response_norm;
mod max_pool2d;
mod net;
mod relu;
mod reuse;
mod sequential;
mod softmax_cross_entropy;

pub use accuracy::accuracy;
pub use adaptive_avg_pool2d::AdaptiveAvgPool2d;
pub use add::add;
pub use avg_pool2d::AvgPool2d;
pub use batch_norm::BatchNorm2d;
pub use concat::concat;
pub use conv2d::Conv2d;
pub use dropout::Dropout;
pub use error::LayerError;
pub use flatten::Flatten;
pub use init::{Init, stable_hash};
pub use linear::Linear;
pub use local_response_norm::LocalResponseNorm;
pub use max_pool2d::MaxPool2d;
pub use net::{Mode, Net, NetOptions};
pub use relu::Relu;
pub use reuse::Reuse;
pub use sequential::Sequential;
pub use softmax_cross_entropy::SoftmaxCrossEntropy;

use vdnn_graph::ValueId;

/// Something that turns one value into another and may own parameters.
pub trait Layer {
    /// Pushes the layer's ops under `name`, reading `x`, and returns what it makes.
    ///
    /// # Errors
    /// [`LayerError`] when shapes do not fit or a name is taken.
    fn push(&self, net: &mut Net, name: &str, x: ValueId) -> Result<ValueId, LayerError>;
}

/// `prefix.name`, or `name` alone at the top.
pub fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") }
}
