//! Tests of the checks: a schedule built by hand, every mutant of it, and a byte-level interpreter as the judge.

mod emit;
mod interpret;
mod mutants;
mod network;
mod rules;
mod scale;
