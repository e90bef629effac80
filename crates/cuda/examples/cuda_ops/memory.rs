//! Memory: what is planned is what free memory loses, nothing is taken after the first iteration, limits are refused.

use crate::feeds::Run;
use crate::nets::network;
use crate::policies::body;
use crate::{Outcome, Report, cuda, described};
use serde_json::json;
use vdnn_cuda::context::Context;
use vdnn_runtime::{Device, DeviceError};
use vdnn_schedule::Space;

pub fn run(report: &mut Report) -> Outcome {
    kept(report)?;
    refused(report)
}

fn kept(report: &mut Report) -> Outcome {
    let context = Context::open(0)?;
    let free = || context.memory().map(|(free, _)| free as i64);
    let image = [3, 64, 64];
    for (index, policy) in ["none", "all"].into_iter().enumerate() {
        let run = Run { policy, ..Run::small(64, image) };
        let before = free()?;
        let device = cuda()?;
        let opened = before - free()?;
        let first = device.description().context_bytes;
        let mut trainer = run.trainer(&network(image, body), Box::new(device))?;
        let (planned, prepared) = (trainer.peak_bytes(Space::Device), free()?);
        run.steps(&mut trainer, 1)?;
        let (one, measured) = (free()?, trainer.measured_peak());
        run.steps(&mut trainer, 4)?;
        let (five, later) = (free()?, trainer.measured_peak());
        // All that free memory lost is the arena and what is stated as context.
        let stated = (trainer.description().context_bytes - first) as i64;
        let lost = before - five - opened;
        let facts = json!({
            "planned": planned, "measured": measured, "later": later, "lost": lost, "stated_context": stated,
            "opened": opened, "first_step": prepared - one, "more_steps": one - five,
            "context_bytes": trainer.description().context_bytes,
        });
        let passed = measured == Some(planned) && later == measured && one == five && lost == planned as i64 + stated;
        report.case(&format!("memory of {policy}"), passed, facts);
        drop(trainer);
        // The libraries keep what they loaded the first time.
        let left = before - free()?;
        report.case("memory given back", index == 0 || left <= 16 << 20, json!({"bytes_still_taken": left}));
    }
    Ok(())
}

fn refused(report: &mut Report) -> Outcome {
    let mut device = cuda()?;
    report.case("device", true, described(&device));
    let too_much = device.reserve(1 << 46, 0);
    let told = matches!(&too_much, Err(DeviceError::OutOfMemory { space: "device", .. }));
    report.case("more than the GPU has", told, json!({"text": format!("{:?}", too_much.err().map(|e| e.to_string()))}));
    let host = device.reserve(1 << 20, 1 << 46);
    let told = matches!(&host, Err(DeviceError::OutOfMemory { space: "pinned host", .. }));
    report.case("more than the host has", told, json!({"text": format!("{:?}", host.err().map(|e| e.to_string()))}));
    let mut bytes = vec![7u8; 100 << 20];
    device.reserve(256 << 20, 1 << 20)?;
    let offset = 3 << 20;
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = (index * 31 % 251) as u8;
    }
    let mut back = vec![0u8; bytes.len()];
    device.write(Space::Device, offset, &bytes)?;
    device.read(Space::Device, offset, &mut back)?;
    report.case("written bytes are read", back == bytes, json!({}));
    let beyond = device.write(Space::Device, 200 << 20, &bytes).is_err();
    report.case("a write beyond the arena is refused", beyond, json!({}));
    let other = vdnn_cuda::CudaDevice::open(4096);
    let told = matches!(&other, Err(DeviceError::Unavailable { .. }));
    report.case("a GPU that is not there", told, json!({"text": other.err().map(|e| e.to_string())}));
    Ok(())
}
