//! The paper and beyond: what to do with every idle stretch of every value, under a budget in bytes.
//!
//! ```text
//!           forward                     │              backward
//!  X  ▓▓▓▓▓▓▓ use                       │                      use ▓▓▓
//!             └────────── gap (idle) ───┼──────────────────────┘
//!             offload ▓▓▓▓              │            ▓▓▓▓ prefetch
//!                        └ release      │            └ fetch
//!                          bytes are free for others
//! ```
//!
//! The way of the data: [`Problem`] (program, gaps, kernel choices, links, budgets) → [`MemoryPolicy::plan`] →
//! [`MemoryPlan`] → [`compile`] (place in arenas, emit commands, insert events) → `Schedule`. All of it is pure: the same
//! problem gives the same schedule. This crate knows no CUDA, no handles and no data, and proves nothing: `check` does.
//!
//! Words: a *storage* is the bytes that values sharing them lie in (see `vdnn_graph::Aliases`); a *gap* lies between two
//! consecutive uses of a storage; a *stretch* is a time a storage spends on the device without leaving it.

mod address;
mod algorithms;
mod bound;
mod compile;
mod disk;
mod emit;
mod error;
mod estimate;
mod fit;
mod held;
mod homes;
mod joint;
mod layer_spans;
mod liveness;
mod peak;
pub mod placement;
mod plan;
pub mod policies;
mod problem;
mod recompute;
mod stream;
mod stretch;
mod takeover;
mod window;

pub use bound::{Cut, StepTimeBound, step_time_bound};
pub use compile::{compile, compile_with_policy};
pub use error::{Infeasible, LargestBuffer, PlanError, TooLarge};
pub use fit::{Fitted, fit_to_budget};
pub use homes::{HomeEntry, HomeLayout};
pub use liveness::{Access, Gap, Liveness};
pub use placement::Placement;
pub use plan::{Allocation, MemoryPlan, Residency, Tier, VariantId};
pub use policies::MemoryPolicy;
pub use problem::{Budgets, Encoded, Options, Prefetch, Problem, State, Sync};
pub use recompute::{Forget, NotRepeatable, Recomputation, recompute};
