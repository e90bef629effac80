//! Tries every part of the crate on a real GPU and compares the results with plain loops on the host.
//!
//! Prints one JSON line per case and PASS or FAIL at the end; exits 1 on FAIL or without a GPU.
//! `VDNN_CUDNN_PATH` chooses the cuDNN.

#![allow(unsafe_code)]

mod convolutions;
mod copies;
mod kernels;
#[path = "../../tests/shared/layers.rs"]
mod layers;
mod products;
mod statistics;

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use vdnn_cuda::CudaError;
use vdnn_cuda::context::{Context, Stream, Streams};
use vdnn_cuda::library::{Libraries, LibraryOptions};
use vdnn_cuda::memory::DeviceArena;

/// What the cases share.
pub struct Bench {
    /// All libraries.
    pub libraries: Libraries,
    /// The first GPU.
    pub context: Arc<Context>,
    /// Its three streams.
    pub streams: Streams,
    failures: Vec<String>,
}

impl Bench {
    fn open() -> Result<Self, CudaError> {
        let libraries = Libraries::open(&LibraryOptions::default())?;
        let context = Context::open(0)?;
        let streams = Streams::new(&context)?;
        Ok(Self { libraries, context, streams, failures: Vec::new() })
    }

    /// Prints a case and remembers whether it failed.
    pub fn report(&mut self, case: &str, passed: bool, mut facts: Value) {
        facts["case"] = json!(case);
        facts["ok"] = json!(passed);
        println!("{facts}");
        if !passed {
            self.failures.push(facts.to_string());
        }
    }

    /// Bytes of device memory free now.
    pub fn free(&self) -> u64 {
        self.context.memory().map_or(0, |(free, _)| free)
    }
}

/// Numbers in -1..1 that depend on the seed alone.
pub fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Root mean square of the difference over that of the reference; infinite when a number is missing.
pub fn relative_error(pairs: &[(f32, f64)]) -> f64 {
    if pairs.iter().any(|(got, _)| !got.is_finite()) {
        return f64::INFINITY;
    }
    let difference: f64 = pairs.iter().map(|(got, want)| (f64::from(*got) - want).powi(2)).sum();
    let reference: f64 = pairs.iter().map(|(_, want)| want * want).sum();
    (difference / reference.max(f64::MIN_POSITIVE)).sqrt()
}

/// Writes f32 numbers to the device and waits.
pub fn upload(arena: &DeviceArena, stream: &Stream, offset: u64, values: &[f32]) -> Result<(), CudaError> {
    arena.write(stream, offset, bytemuck::cast_slice(values))
}

/// Reads f32 numbers from the device.
pub fn download(arena: &DeviceArena, stream: &Stream, offset: u64, count: usize) -> Result<Vec<f32>, CudaError> {
    let mut values = vec![0f32; count];
    arena.read(stream, offset, bytemuck::cast_slice_mut(&mut values))?;
    Ok(values)
}

/// A group of cases.
type Part = fn(&mut Bench) -> Result<(), CudaError>;

fn run(bench: &mut Bench) -> Result<(), CudaError> {
    let context = bench.context.clone();
    let cudnn = bench.libraries.cudnn;
    let facts = json!({
        "device": context.name, "architecture": context.architecture(), "total": context.total_bytes,
        "free": bench.free(), "multiprocessors": context.multiprocessors, "driver": context.driver_version,
        "nvrtc": bench.libraries.nvrtc.version, "cublas": bench.libraries.cublas.version,
        "cudnn": vdnn_cudnn_sys::version_text(cudnn.version), "cudnn_path": cudnn.opened.path,
        "cudnn_why": cudnn.opened.why,
    });
    bench.report("context", true, facts);
    let parts: [(&str, Part); 5] = [
        ("copies", copies::run),
        ("kernels", kernels::run),
        ("products", products::run),
        ("convolutions", convolutions::run),
        ("statistics", statistics::run),
    ];
    for (name, part) in parts {
        let (start, free) = (Instant::now(), bench.free());
        let outcome = part(bench);
        let taken = free.saturating_sub(bench.free());
        let error = outcome.as_ref().err().map(ToString::to_string);
        let facts = json!({
            "seconds": start.elapsed().as_secs_f64(), "device_bytes_still_taken": taken, "error": error,
        });
        bench.report(name, outcome.is_ok(), facts);
    }
    Ok(())
}

fn main() {
    let outcome = Bench::open().and_then(|mut bench| run(&mut bench).map(|()| bench.failures));
    match outcome {
        Ok(failures) if failures.is_empty() => println!("PASS"),
        Ok(failures) => {
            println!("FAIL {}", failures.len());
            std::process::exit(1);
        }
        Err(error) => {
            println!("FAIL {error}");
            std::process::exit(1);
        }
    }
}
