//! Whole networks on the CPU device.

mod mixed;
mod policies;
mod rounding;
mod setup;
mod streaming;
