//! Every mutant of a compiled schedule under many interleavings: `cargo run --release --example mutants_full [SEEDS]`,
//! 1,000 unless given, then one with everything on disk. Prints, per rule, how many mutants were made, refused, harmless and missed; fails when one was missed.

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
    let mut missed = 0;
    for subject in [mutants::subject(), mutants::on_disk()] {
        let counts = mutants::judge(seeds, subject);
        println!("{}{seeds} interleavings of each accepted mutant, {:?}", mutants::table(&counts), started.elapsed());
        missed += counts.values().map(|count| count.missed).sum::<usize>();
    }
    if missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
