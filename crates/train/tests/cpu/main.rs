//! Whole networks on the CPU device.

mod disk;
mod f16;
mod feeding;
mod mixed;
mod policies;
mod random_fused;
mod rounding;
mod setup;
mod split_batch;
mod streaming;
