//! Whole networks on the CPU device.

mod disk;
mod mixed;
mod policies;
mod rounding;
mod setup;
mod streaming;
