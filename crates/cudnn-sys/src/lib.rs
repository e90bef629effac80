//! cuDNN's raw calls, loaded at run time: the lowest of three levels (raw, checked, owning).
//!
//! Types and constants come from `cudarc::cudnn::sys`, re-exported as [`sys`]. The calls themselves are not taken
//! from there, for two reasons. That crate opens `libcudnn.so` by its bare name, so on a machine with two cuDNN
//! versions the one in the system path wins, whatever was loaded before; and it panics when the library or a symbol
//! is missing. Here a [`Cudnn`] is opened from a path that [`search`] found and explains, its functions sit in a
//! [`Functions`] table resolved once, and every way to fail is an [`OpenError`].
//!
//! This crate holds no policy: descriptors, plans and errors with text are `vdnn-cuda`'s.

#![allow(unsafe_code)]

mod open;
pub mod search;
mod table;

pub use cudarc::cudnn::sys;
pub use open::{Cudnn, OpenError, Opened, load_global, major_of, open, open_first, version_text};
pub use table::{Functions, MissingSymbol, Status};

/// The major version of cuDNN that the constants in [`sys`] belong to.
pub const MAJOR: usize = 9;

/// Re-exported for [`function_table`], which names it in its expansion.
#[doc(hidden)]
pub use libloading;
