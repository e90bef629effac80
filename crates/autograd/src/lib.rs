//! Extends a graph, ahead of time, with backward and update nodes.
//!
//! [`differentiate`] walks the forward nodes once, last to first, and applies one rule per op (`src/rules/<op>.rs`). A rule
//! says which values it reads; what it reads is what the memory crate must keep, move or recompute. The result is one
//! static graph whose push order is the order of the iteration:
//!
//! ```text
//!   forward          backward of layer n, then n−1, …
//!   conv1 … loss  │  dW ─ db ─ dX ─ update W, b  │  dW ─ db ─ dX ─ update …
//! ```
//!
//! The weight gradient comes before the data gradient, and a parameter is updated as soon as its gradient is complete and
//! nothing reads it any more ([`UpdateAt::Layer`]), so that gradients of parameters do not pile up;
//! save with loss scaling, where updates wait until all gradients are known to be finite (`src/loss_scaling.rs`).
//! Left to others: running anything, and any decision about memory. No data and no closures are held here.

mod differentiate;
mod encode;
mod error;
mod loss_scaling;
mod options;
mod rules;
mod tape;
mod update;

pub use differentiate::{TrainGraph, differentiate};
pub use encode::encode;
pub use error::AutogradError;
pub use loss_scaling::{GOOD_STEPS, LOSS_SCALE, SKIPPED_STEPS};
pub use options::{Optimizer, Options, Root, UpdateAt};
