//! Runs every op, then whole networks under all policies, on the GPU and on the CPU, and compares.
//!
//! Prints one JSON line a case and a table with PASS or FAIL at the end; exits 1 on FAIL or without a GPU. Parts are chosen
//! by name (`ops half pieces nets policies memory feeding disk profile cases model account`, and `bf16`, `f16`, `tf32` of `half`); without
//! names all but the last two run, which take further words: `model NAME BATCH POLICY` and `account NAME BATCH POLICY [BUDGET IN MiB] , NAME …`. `VDNN_CUDNN_PATH` chooses the cuDNN, `VDNN_CACHE_DIR` where measurements are kept.

mod account;
mod build;
mod cases;
mod disk;
mod encoded;
mod feeding;
mod feeds;
mod half;
mod memory;
mod model;
mod nets;
mod ops;
mod pieces;
mod policies;
mod profiles;
mod single;
mod statistics;
mod watched;

use serde_json::{Value, json};
use std::error::Error;
use std::time::Instant;
use vdnn_cuda::context::Context;
use vdnn_cuda::library::LibraryOptions;
use vdnn_cuda::{CudaDevice, CudaOptions, MeasureOptions};
use vdnn_runtime::Device;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The results so far.
#[derive(Default)]
pub struct Report {
    parts: Vec<(String, usize, Vec<String>)>,
}

impl Report {
    fn begin(&mut self, part: &str) {
        self.parts.push((part.to_string(), 0, Vec::new()));
    }

    /// Prints a case and remembers whether it failed.
    pub fn case(&mut self, name: &str, passed: bool, mut facts: Value) {
        facts["case"] = json!(name);
        facts["ok"] = json!(passed);
        println!("{facts}");
        if let Some((_, count, failures)) = self.parts.last_mut() {
            *count += 1;
            if !passed {
                failures.push(name.to_string());
            }
        }
    }

    /// A case that may have failed on the way.
    pub fn outcome(&mut self, name: &str, outcome: Outcome<(bool, Value)>) {
        match outcome {
            Ok((passed, facts)) => self.case(name, passed, facts),
            Err(error) => self.case(name, false, json!({"error": error.to_string()})),
        }
    }

    fn failed(&self) -> usize {
        self.parts.iter().map(|(_, _, failures)| failures.len()).sum()
    }

    fn table(&self) {
        for (part, count, failures) in &self.parts {
            let verdict = if failures.is_empty() { "PASS" } else { "FAIL" };
            println!("{verdict} {part:10} {count:4} cases, {} failed: {}", failures.len(), failures.join(", "));
        }
    }
}

/// A GPU that measures quickly.
pub fn cuda() -> Outcome<CudaDevice> {
    cuda_with(CudaOptions::default())
}

/// The same with other options than for measuring.
pub fn cuda_with(options: CudaOptions) -> Outcome<CudaDevice> {
    let measure = MeasureOptions { seconds: 20.0, repetitions: 2, pieces_from: 1 << 16, ..MeasureOptions::default() };
    Ok(CudaDevice::open_with(0, &LibraryOptions::default(), CudaOptions { measure, ..options })?)
}

/// Root mean square of the difference over that of the reference; infinite when a number is missing.
pub fn relative_error(got: &[f32], want: &[f32]) -> f64 {
    if got.len() != want.len() || got.iter().any(|number| !number.is_finite()) {
        return f64::INFINITY;
    }
    let square = |sum: f64, (a, b): (&f32, &f32)| sum + (f64::from(*a) - f64::from(*b)).powi(2);
    let difference = got.iter().zip(want).fold(0.0, square);
    let reference: f64 = want.iter().map(|b| f64::from(*b).powi(2)).sum();
    (difference / reference.max(1e-20)).sqrt()
}

fn run(part: &str, words: &[String], report: &mut Report) -> Outcome {
    match part {
        "ops" => ops::run(report),
        "half" => half::run(report, None),
        "bf16" | "f16" | "tf32" => half::run(report, Some(part)),
        "pieces" => pieces::run(report),
        "nets" => nets::run(report),
        "policies" => policies::run(report),
        "memory" => memory::run(report),
        "feeding" => feeding::run(report),
        "disk" => disk::run(report),
        "profile" => profiles::run(report),
        "cases" => cases::run(report),
        "model" => model::run(report, words),
        "account" => account::run(report, words),
        other => Err(format!(
            "expected ops, half, bf16, f16, tf32, pieces, nets, policies, memory, feeding, disk, profile, cases, model or account, found {other}"
        )
        .into()),
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wordy = words.iter().position(|word| word == "model" || word == "account").unwrap_or(words.len());
    let (mut parts, rest) = (words[..wordy].to_vec(), &words[wordy..]);
    if words.is_empty() {
        parts = ["ops", "half", "pieces", "nets", "policies", "memory", "feeding", "disk", "profile", "cases"]
            .map(String::from)
            .to_vec();
    }
    parts.extend(rest.first().cloned());
    // The context is kept, so that devices opened one after the other do not each make one.
    let _context = match Context::open(0) {
        Ok(context) => context,
        Err(error) => {
            println!("FAIL {error}");
            std::process::exit(1);
        }
    };
    let mut report = Report::default();
    for part in &parts {
        report.begin(part);
        let start = Instant::now();
        if let Err(error) = run(part, rest.get(1..).unwrap_or_default(), &mut report) {
            report.case(part, false, json!({"error": error.to_string()}));
        }
        println!("{}", json!({"part": part, "seconds": start.elapsed().as_secs_f64()}));
    }
    report.table();
    println!("{}", if report.failed() == 0 { "PASS" } else { "FAIL" });
    std::process::exit(i32::from(report.failed() > 0));
}

/// What the device says of itself, for reports.
pub fn described(device: &dyn Device) -> Value {
    let description = device.description();
    json!({"name": description.name, "details": description.details, "context_bytes": description.context_bytes})
}
