//! What differentiated graphs compute, in f64 on the CPU's kernels: finite differences and exact cases.

mod cases;
mod gradcheck;
mod interpreter;
mod networks;
mod ops;
mod optimizers;
mod split_batch;
mod stems;
