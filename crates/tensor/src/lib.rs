//! Shapes, dtypes, layouts, host tensors and counter-based random numbers.
//!
//! This crate knows nothing of devices, graphs or files. Sizes and offsets are 64-bit everywhere.

mod bytes;
mod dtype;
mod host;
mod layout;
mod philox;
mod shape;

pub use bytes::{BytesError, format_bytes, parse_bytes};
pub use dtype::{DType, Element};
pub use host::{HostTensor, TensorError};
pub use layout::{Layout, MemoryOrder, TensorType};
pub use philox::{Philox, philox4x32_10};
pub use shape::Shape;

/// A number of bytes: sizes, offsets and addresses inside an arena.
pub type Bytes = u64;
