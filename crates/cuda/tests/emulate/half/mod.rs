//! Half precision: every kernel against plain loops in f64 on the rounded inputs, in both types, dense, as slices of pixels
//! and at odd places.

mod batch_norm;
mod batch_norm_pair;
mod batch_norm_pool;
mod elements;
mod pool;
pub mod tensor;
mod unfold;
