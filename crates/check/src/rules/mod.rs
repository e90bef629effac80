//! The rules, one file each. That a schedule may follow itself is found by `races` and `sharing`, which follow two
//! iterations in a row; `sequence` compares different schedules of one run.

pub(crate) mod atoms;
pub(crate) mod budget;
pub(crate) mod content;
pub(crate) mod events;
pub(crate) mod fork_join;
pub(crate) mod initialised;
pub(crate) mod kernels;
pub(crate) mod lifetime;
pub(crate) mod operands;
pub(crate) mod races;
pub(crate) mod refines;
pub(crate) mod sequence;
pub(crate) mod sharing;
pub(crate) mod staging;
pub(crate) mod tables;
pub(crate) mod well_formed;
