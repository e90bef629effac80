//! The networks: small ones to train on a CPU, torchvision's, the paper's, and very deep ones.
//!
//! [`build`] makes any of them by name, from the image to loss and accuracy, with torchvision's parameter names, so that
//! weights load both ways. [`models`] lists them. Each file is one family and reads like the paper it comes from.
//!
//! ```
//! let net = vdnn_models::build("resnet50", &vdnn_models::Options { batch_size: 32, ..Default::default() })?;
//! assert_eq!(net.n_parameters(), 25_557_032);
//! # Ok::<(), vdnn_models::ModelError>(())
//! ```

mod alexnet;
mod densenet;
mod googlenet;
mod options;
mod overfeat;
mod registry;
mod resnet;
mod vgg;

pub use options::{ModelError, Options};
pub use registry::{ModelSpec, build, find, models};
