//! Kernels of the CPU device, one file an op: forward, gradients, and the plain loop beside the fast path where the two
//! differ.
//!
//! ```text
//!   choices(graph, node) ──► algorithm, workspace ──► (schedule) ──► launch(Launch { op, operands, workspace })
//! ```
//!
//! Rules every kernel keeps:
//! - bits never depend on the number of threads: work is cut into fixed pieces, sums run in a fixed order;
//! - operands may be sliced (rows at a stride), so a kernel works per sample, with [`View::part`](crate::View::part);
//! - scratch memory is the workspace it is given; of its own a kernel keeps at most lists of slices, and the matrix
//!   product packs into a cache-sized block;
//! - half precision and channels last go by way of f32 (`by_way_of_f32`), so a kernel sees f32 or f64 in NCHW order;
//! - the in-place pairs of `Op::in_place` and `Op::updates` work.
//!
//! Left to others: threads, streams and finding the bytes (the device).

mod accuracy;
mod adam;
mod adaptive_avg_pool2d;
mod add;
mod avg_pool2d;
mod batch_norm;
mod batch_norm_add_relu;
mod batch_norm_pair_relu;
mod batch_norm_relu;
mod batch_norm_relu_max_pool2d;
mod bias;
mod by_way_of_f32;
mod cast;
mod choices;
mod concat;
mod conv2d;
mod conv2d_relu;
mod conv2d_stats;
mod dropout;
mod flatten;
mod group;
mod launch;
mod linear;
mod local_response_norm;
mod loss_scale_update;
mod matrix;
mod max_pool2d;
mod normalise;
mod operand;
mod order;
mod real;
mod reduce;
mod relu;
mod sgd;
mod softmax_cross_entropy;
mod stretch;
mod unfold;
mod unscale;

pub use choices::{LOOP, choices, choices_of, pieces, pieces_of};
pub use launch::{Launch, launch};
pub use operand::{Input, Output};
