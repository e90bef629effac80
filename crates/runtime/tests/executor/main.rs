//! Hand-written schedules on every device of this crate.

mod chaos;
mod cpu;
mod errors;
mod net;
mod null;
mod staging;
mod writer;
