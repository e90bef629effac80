//! Whole networks on the CPU device.

mod policies;
mod rounding;
mod setup;
mod streaming;
