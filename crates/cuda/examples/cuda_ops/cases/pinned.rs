//! B39, B40: pinned host memory is what was asked for and a page at most, and where it cannot be had, that is said before anything is
//! taken.

use super::BATCH;
use crate::feeds::Run;
use crate::nets::network;
use crate::policies::body;
use crate::{Outcome, Report, cuda};
use serde_json::{Value, json};
use std::error::Error;
use vdnn_cuda::context::Context;
use vdnn_cuda::memory::{HostLimits, PinnedArena};
use vdnn_memory::PlanError;
use vdnn_runtime::{Device, DeviceError};
use vdnn_schedule::Space;
use vdnn_train::{Network, TrainError};

const IMAGE: [u64; 3] = [3, 64, 64];
const MIB: u64 = 1 << 20;
/// What stacks of threads and the allocator may add to the process meanwhile.
const SLACK: u64 = 8 * MIB;
/// The largest page of an ordinary system.
const PAGE: u64 = 64 << 10;

pub fn run(report: &mut Report) -> Outcome {
    // 129.5 MiB took others 256, and 5 GiB took 8.
    for bytes in [129 * MIB + MIB / 2, 1025 * MIB + 1, 5120 * MIB] {
        report.outcome(&format!("B39 {bytes} bytes pinned"), pinned(bytes));
    }
    let network = network(IMAGE, body);
    report.outcome("B40 a host budget below the plan's need", budget(&network));
    report.outcome("B40 more pinned memory than the host has", refused());
    Ok(())
}

/// Resident bytes of this process.
fn resident() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    Ok(line.split_whitespace().next().ok_or("no number after VmRSS")?.parse::<u64>()? * 1024)
}

/// Fails where an allocator rounds up, or where more is taken than is reported.
fn pinned(bytes: u64) -> Outcome<(bool, Value)> {
    if HostLimits::of_process().pinnable().is_some_and(|most| most < 2 * bytes) {
        return Ok((true, json!({"not_run": "the host has too little memory"})));
    }
    let context = Context::open(0)?;
    let before = resident()?;
    let arena = PinnedArena::new(&context, bytes)?;
    let (reserved, taken) = (arena.reserved_bytes(), resident()?.saturating_sub(before));
    drop(arena);
    let left = resident()?.saturating_sub(before);
    let facts = json!({"reserved": reserved, "taken": taken, "left": left});
    let exact = (bytes..=bytes + PAGE).contains(&reserved) && taken.abs_diff(reserved) <= SLACK;
    Ok((exact && left <= SLACK, facts))
}

/// Fails where the need shows only when steps run, or its figure is wrong: with a budget of just that the run starts.
fn budget(network: &dyn Network) -> Outcome<(bool, Value)> {
    let run = |host_budget| Run { policy: "all", host_budget, ..Run::small(BATCH, IMAGE) };
    let before = resident()?;
    let Err(error) = run(Some(MIB)).trainer(network, Box::new(cuda()?)) else {
        return Err("a host budget of 1 MiB was accepted".into());
    };
    let needed = match error.downcast_ref::<TrainError>() {
        Some(TrainError::Plan(PlanError::HostBudget { needed, budget: MIB })) => *needed,
        _ => return Err(error),
    };
    let text = error.to_string();
    let said = ["host memory", "host budget", &format!("{needed} bytes"), &format!("{MIB} bytes")];
    let told = said.iter().all(|part| text.contains(part));
    let grown = resident()?.saturating_sub(before);
    let peak = run(Some(needed)).trainer(network, Box::new(cuda()?))?.peak_bytes(Space::Host);
    let facts = json!({"text": text, "needed": needed, "host_peak": peak, "bytes_resident_more": grown});
    Ok((told && peak <= needed && needed > MIB, facts))
}

/// Fails where it is called the GPU's memory, where something stays pinned or taken, or where the device is of no use afterwards.
fn refused() -> Outcome<(bool, Value)> {
    const TOO_MUCH: u64 = 1 << 46;
    let context = Context::open(0)?;
    let mut device = cuda()?;
    let (before, free) = (resident()?, context.memory()?.0);
    let error = device.reserve(256 * MIB, TOO_MUCH).err().ok_or("64 TiB of host memory were pinned")?;
    let (grown, lost) = (resident()?.saturating_sub(before), free as i64 - context.memory()?.0 as i64);
    let host = matches!(&error, DeviceError::OutOfMemory { space: "pinned host", bytes: TOO_MUCH, .. });
    let text = full(&error);
    let told = text.contains("--host-budget") && text.contains("available") && text.contains(&TOO_MUCH.to_string());
    let usable = device.reserve(256 * MIB, 64 * MIB).is_ok();
    let facts = json!({"text": text, "bytes_resident_more": grown, "device_bytes_lost": lost, "usable": usable});
    Ok((host && told && grown <= SLACK && lost == 0 && usable, facts))
}

/// An error with its causes.
fn full(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
