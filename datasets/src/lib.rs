//! Data sets, the order in which samples are seen, and loaders that prefetch batches.
//!
//! ```text
//!  registry::open("fashion-mnist-sample")
//!      │ Splits { train, test }                 a Source: sample index → pixels and label
//!      ▼
//!  Sampler::new(len, batch_size, order, last)   (seed, epoch) → permutation → batches
//!      │
//!      ▼
//!  Loader::new(source, sampler, options)        worker threads → bounded channels → Batch
//! ```
//!
//! ```
//! use vdnn_datasets::{LastBatch, Loader, LoaderOptions, Order, Sampler, registry};
//!
//! let splits = registry::open("fashion-mnist-sample", &registry::OpenOptions::default())?;
//! let sampler = Sampler::new(splits.train.len(), 64, Order::Shuffled { seed: 0 }, LastBatch::Keep)?;
//! let mut samples = 0;
//! for batch in Loader::new(splits.train, sampler, &LoaderOptions::default())? {
//!     samples += batch?.len; // images [len, 1, 28, 28] of bytes, labels [len]
//! }
//! assert_eq!(samples, 10_000);
//! # Ok::<(), vdnn_datasets::Error>(())
//! ```
//!
//! Images are bytes from the source to the device, and a [`Normalization`] goes with them.
//!
//! Three promises hold everywhere. The order of samples is a pure function of (seed, epoch), so a run resumes at
//! any batch without replaying. The number of workers never changes a batch. A file that is not what it should be
//! is an error that names the file, what was expected and what was found.
//!
//! Left to others: copying batches to a device, augmentation, fetching files over a network.

mod batch;
mod dataset;
mod error;
mod folder;
pub mod idx;
mod image_folder;
mod loader;
mod normalization;
pub mod registry;
mod resample;
mod sample;
mod sampler;
mod source;
mod synthetic;

pub use batch::Batch;
pub use dataset::Dataset;
pub use error::Error;
pub use folder::{load_folder, read_folder};
pub use image_folder::ImageFolder;
pub use loader::{Loader, LoaderOptions};
pub use normalization::Normalization;
pub use sample::fashion_mnist_sample;
pub use sampler::{LastBatch, Order, Position, SHUFFLE_VERSION, Sampler};
pub use source::{Source, Split, Splits};
pub use synthetic::Synthetic;
