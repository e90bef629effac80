//! Half precision and f32 with channels innermost: every kernel against plain loops in f64 on the rounded inputs, in each type,
//! dense, as slices of pixels and at odd places.

mod batch_norm;
mod batch_norm_pair;
mod batch_norm_pool;
mod elements;
mod pool;
pub mod tensor;
mod unfold;
