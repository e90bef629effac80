//! Compiles every CUDA kernel for every supported architecture, without a GPU.
//!
//! NVRTC is looked for in `VDNN_NVRTC_DIR`, then in a virtual environment under `target/`, then where the device looks.
//! A warning is a failure: kernels are checked by nobody else before they reach a GPU.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use vdnn_cuda::CudaError;
use vdnn_cuda::kernels;
use vdnn_cuda::library::{self, LibraryOptions};
use vdnn_cuda::nvrtc::{Compiled, KernelSource, check_compiles};

/// The oldest architecture we run on, and the one we measure on.
const ARCHITECTURES: [&str; 2] = ["sm_80", "sm_90"];
/// The compiler that `--install` fetches. Later ones emit code too new for drivers in use.
const PACKAGE: &str = "nvidia-cuda-nvrtc==13.0.88";
/// Bytes that kernels of a source may spill, where that was measured to be quicker than more registers for fewer threads
/// (docs/decisions/0024-sums-in-one-launch.md).
const MAY_SPILL: [(&str, u64); 1] = [("batch_norm_pair_relu_nhwc.", 8)];
/// Makes the assembler tell registers and spills.
const VERBOSE: [&str; 1] = ["--ptxas-options=-v"];

/// Runs the chore.
pub fn run(args: &[String]) -> anyhow::Result<()> {
    match args {
        [] => {}
        [flag] if flag == "--install" => install()?,
        _ => bail!("expected no arguments or --install, found {args:?}"),
    }
    let named = std::env::var_os("VDNN_NVRTC_DIR").map(PathBuf::from);
    let options = LibraryOptions { cudnn: None, folders: named.into_iter().chain(installed()).collect() };
    let nvrtc = library::nvrtc(&options)
        .context("no NVRTC: set VDNN_NVRTC_DIR to its folder, or run `cargo xtask nvrtc --install`")?;
    println!("NVRTC {}.{}", nvrtc.version.0, nvrtc.version.1);
    let mut failures = 0;
    for (name, outcome) in compile_all(nvrtc) {
        match outcome {
            Ok(images) => failures += images.iter().map(|image| report(name, image)).sum::<usize>(),
            Err(error) => {
                println!("{error}");
                failures += 1;
            }
        }
    }
    if failures > 0 {
        bail!(
            "{failures} of {} images failed, spilled or came with warnings",
            kernels::ALL.len() * ARCHITECTURES.len()
        );
    }
    Ok(())
}

type Outcome = (&'static str, Result<Vec<Compiled>, CudaError>);

/// Compiles every source, as many at once as there are processors, in the order of the list.
fn compile_all(nvrtc: &library::Nvrtc) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut made = Vec::new();
        while let Some((index, (name, text))) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            kernels::ALL.get(index).map(|source| (index, *source))
        } {
            let source = KernelSource { name, text, options: &VERBOSE };
            made.push((index, (name, check_compiles(nvrtc, &source, &ARCHITECTURES))));
        }
        made
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all: Vec<(usize, Outcome)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a compiling thread ends")).collect()
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Prints an image's registers; 1 if the compiler warned, or spilled more than it may.
fn report(name: &str, image: &Compiled) -> usize {
    let (facts, warnings): (Vec<&str>, Vec<&str>) = image.log.lines().partition(|line| is_fact(line));
    println!("{name} {}: {} bytes", image.architecture, image.cubin.len());
    for (function, use_of) in resources(&facts) {
        println!("  {function:<36} {use_of}");
    }
    let warnings = warnings.into_iter().filter(|line| !line.trim().is_empty());
    let most = MAY_SPILL.iter().find(|(source, _)| name.starts_with(source)).map_or(0, |&(_, bytes)| bytes);
    let spills = facts.iter().copied().filter(|line| spilled(line).is_some_and(|bytes| bytes > most));
    let complaints: Vec<&str> = warnings.chain(spills).collect();
    for line in &complaints {
        println!("  {}", line.trim());
    }
    usize::from(!complaints.is_empty())
}

/// Lines of the assembler that are neither warning nor error.
fn is_fact(line: &str) -> bool {
    let about_stack = line.contains("bytes stack frame") || line.contains("bytes spill");
    about_stack || line.starts_with("ptxas info")
}

/// Bytes that a line of the assembler says a kernel stores for want of registers.
fn spilled(line: &str) -> Option<u64> {
    line.split_once(" bytes spill stores")?.0.split_whitespace().last()?.parse().ok()
}

/// (function, registers and shared memory) from the assembler's words.
fn resources<'a>(facts: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    let mut function = "";
    let mut found = Vec::new();
    for line in facts {
        if let Some(name) = line.split("entry function '").nth(1) {
            function = name.split('\'').next().unwrap_or_default();
        } else if let Some(at) = line.find("Used ") {
            found.push((function, &line[at..]));
        }
    }
    found
}

fn environment() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/nvrtc")
}

/// Library folders of the environment that `--install` made.
fn installed() -> Vec<PathBuf> {
    let pythons = std::fs::read_dir(environment().join("lib")).into_iter().flatten().flatten();
    pythons.map(|python| python.path().join("site-packages/nvidia/cu13/lib")).filter(|lib| lib.is_dir()).collect()
}

fn install() -> anyhow::Result<()> {
    if !installed().is_empty() {
        return Ok(());
    }
    let folder = environment();
    run_program(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    run_program(Command::new(folder.join("bin/python3")).args(["-m", "pip", "install", "--quiet", PACKAGE]))
}

fn run_program(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_assembler() {
        let log = "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'relu_v4' for 'sm_90'\n\
                   ptxas info    : Function properties for relu_v4\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes \
                   spill loads\nptxas info    : Used 32 registers, 4 bytes smem";
        let facts: Vec<&str> = log.lines().collect();
        assert!(facts.iter().all(|line| is_fact(line)));
        assert_eq!(resources(&facts), [("relu_v4", "Used 32 registers, 4 bytes smem")]);
        assert_eq!(facts.iter().filter_map(|line| spilled(line)).collect::<Vec<_>>(), [0]);
        assert_eq!(spilled("    8 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads"), Some(12));
        assert!(!is_fact("relu.cu(3): warning #177-D: variable \"x\" was declared but never referenced"));
    }
}
