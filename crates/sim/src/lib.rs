//! Cost models, machine descriptions, discrete-event run of a schedule.
//!
//! ```text
//!   Machine (JSON) ──┐                        Schedule ─────┐
//!                    ├─► KernelTable, Links ────────────────┼─► Simulator ─► Timeline
//!   Profile ─────────┘   (what a kernel costs, what it
//!                         borrows, how fast copies go)
//! ```
//!
//! A [`Machine`] prices kernels by formula, a [`ProfileCost`] by what was measured; both fill the same
//! [`vdnn_schedule::KernelTable`], from which policies choose. Left to others: choosing (the `memory` crate), proving a
//! schedule right (`check`), reading files and the clock (programs).

mod convolution;
mod cost;
mod error;
mod links;
mod machine;
mod machine_file;
mod oracle;
mod pieces;
mod profile_cost;
mod simulator;

pub use cost::{DEFAULT_ALGORITHM, flops, moves_nothing, traffic_bytes};
pub use error::{CostError, SimError, Stuck};
pub use links::{DiskRates, Links};
pub use machine::{
    Convolution, ConvolutionAlgorithm, Drive, Link, MACHINE_FORMAT, Machine, PeakFlops, When, WorkspaceRule,
};
pub use oracle::oracle_seconds;
pub use profile_cost::{Estimate, ProfileCost};
pub use simulator::{Simulator, simulate};
