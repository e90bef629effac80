//! The rules, one file each. `sequence` has no file: races and sharing are followed over two iterations in a row, and
//! what only the second one breaks is reported under that name.

pub(crate) mod budget;
pub(crate) mod content;
pub(crate) mod events;
pub(crate) mod fork_join;
pub(crate) mod initialised;
pub(crate) mod lifetime;
pub(crate) mod operands;
pub(crate) mod races;
pub(crate) mod refines;
pub(crate) mod sharing;
pub(crate) mod well_formed;
