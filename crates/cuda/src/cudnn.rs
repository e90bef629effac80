//! Convolutions by cuDNN's graph interface, in two levels over the raw calls of `vdnn-cudnn-sys`.
//!
//! *Checked*: [`Descriptor`] owns one backend descriptor, and every call returns the status with cuDNN's own words.
//! *Owning*: a [`ConvolutionProblem`] is given to [`enumerate`], which returns [`Plan`]s, each with its workspace, notes
//! and a name that makes the same plan again; a plan is bound once to the addresses of a launch site and then run.
//!
//! Which plan is taken is decided above: by a policy, from times that [`time_plan`] measured. What follows a
//! convolution is a kernel of its own, or a plan's [`Epilogue`].

mod descriptor;
mod enumerate;
mod operation;
mod plan;
mod problem;
mod timing;

pub use descriptor::{Descriptor, DeviceProperties, Handle, Target};
pub use enumerate::{Listing, Wanted, enumerate};
pub use plan::{Addresses, BoundPlan, Notes, Plan, PlanName};
pub use problem::{ConvolutionProblem, Direction, Epilogue, Order, Precision};
pub use timing::{Repetitions, time_plan};
