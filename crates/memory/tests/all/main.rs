//! Tests of planning and compiling as a whole: random networks under random plans on an adversarial device, mutants, deep
//! networks, windows and floors by hand, golden schedules, the paper's figures.

mod bound;
mod cases;
mod copies;
mod delays;
mod depth;
mod figures;
mod floors;
mod golden;
mod inputs;
mod iteration;
mod ladder;
mod mutants;
mod named;
mod network;
mod plan;
mod random;
mod random_graphs;
mod recompute;
mod staging;
mod streaming;
mod sweep;
mod takeovers;
mod windows;
