//! Every mutant of a compiled schedule under many interleavings: `cargo run --release --example mutants_full [SEEDS]`,
//! 1,000 unless given. Prints, per rule, how many mutants were made, refused, harmless and missed; fails when one was missed.

#[allow(dead_code)]
#[path = "../tests/all/iteration.rs"]
mod iteration;
#[allow(dead_code)]
#[path = "../tests/all/mutants.rs"]
mod mutants;
#[allow(dead_code)]
#[path = "../tests/all/plan.rs"]
mod plan;
#[allow(dead_code)]
#[path = "../tests/all/random.rs"]
mod random;

use std::process::ExitCode;

fn main() -> ExitCode {
    let seeds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000);
    let started = std::time::Instant::now();
    let counts = mutants::judge(seeds, mutants::subject());
    println!("{}{seeds} interleavings of each accepted mutant, {:?}", mutants::table(&counts), started.elapsed());
    if counts.values().any(|count| count.missed > 0) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
