//! The CUDA device and its parts: libraries, context, memory, convolutions, matrix products, kernels.
//!
//! This is the only crate that speaks to a GPU. It decides nothing: sizes, addresses, plans and order come from a
//! schedule. All libraries are opened at run time, so one binary runs with and without them; without a driver every
//! entry point returns a [`CudaError`] that says what is missing.
//!
//! | module | what |
//! | --- | --- |
//! | [`CudaDevice`] | a schedule's commands on three streams, from the parts below |
//! | [`profile`] | kernels and links measured for planning elsewhere |
//! | [`library`], [`doctor`] | which libraries were found, why, and what to do about missing ones |
//! | [`context`] | device, streams, events, captured graphs |
//! | [`memory`] | device arena, pinned arena, copies between them |
//! | [`cudnn`] | convolution plans: list, time, name, bind, run |
//! | [`blas`] | matrix products in a given workspace |
//! | [`kernels`] | what cuDNN and cuBLAS do not do: sources, grids, arguments, workspace |
//! | [`nvrtc`] | kernel sources to machine code, modules, launches |

#![allow(unsafe_code)]

pub mod blas;
pub mod context;
pub mod cudnn;
mod device;
pub mod doctor;
pub mod driver;
mod error;
pub mod kernels;
pub mod library;
pub mod memory;
pub mod nvrtc;
pub mod profile;

pub use device::{CudaDevice, CudaOptions, LaunchTimes, MeasureOptions};
pub use error::CudaError;
