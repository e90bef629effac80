//! The kernels' device code, compiled as C++ and run on the CPU through the same launch plans that a GPU gets, against
//! plain formulas in f64. It finds wrong indices, wrong grids and wrong arguments; the numbers of a real device are
//! `xtask`'s and the device tests' business.
//!
//! Without a C++ compiler the tests say so and pass.
#![allow(unsafe_code)]

mod batch_norm;
mod conv2d_stats;
mod dropout;
mod elementwise;
mod emulator;
mod group;
mod half;
mod image;
mod loss;
mod loss_scaling;
mod normalise;
mod optimizer;
mod pool;
mod reduce;
mod tensor;
