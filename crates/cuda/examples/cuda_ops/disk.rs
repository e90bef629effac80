//! Values that rest on disk: a host budget that does not hold what leaves, and the bits of keeping everything.

use crate::feeds::{LINKS, Run, numbers};
use crate::nets::network;
use crate::policies::body;
use crate::{Outcome, Report, cuda};
use serde_json::{Value, json};
use vdnn_runtime::Device;
use vdnn_schedule::{Direction, Schedule, Space};
use vdnn_sim::{DiskRates, Links};
use vdnn_train::{Network, Trainer};

const IMAGE: [u64; 3] = [3, 64, 64];
const BATCH: u64 = 64;
const STEPS: u64 = 3;
const DISK_BUDGET: u64 = 4 << 30;

/// Losses, and all numbers that last.
type End = (Vec<f64>, Vec<(String, Vec<f32>)>);

/// Trains with files in the folder for temporary ones.
fn finish(run: &Run<'_>, network: &dyn Network) -> Outcome<(End, Trainer)> {
    let mut device = cuda()?;
    device.set_disk_folder(&std::env::temp_dir());
    let mut trainer = run.trainer(network, Box::new(device))?;
    let losses = run.steps(&mut trainer, STEPS)?;
    Ok(((losses, numbers(&mut trainer)?), trainer))
}

pub fn run(report: &mut Report) -> Outcome {
    let network = network(IMAGE, body);
    let (want, trainer) = finish(&Run::small(BATCH, IMAGE), &network)?;
    let schedule = Schedule::clone(&trainer.planned().schedule);
    drop(trainer);
    let (_, trainer) = finish(&Run { policy: "all", ..Run::small(BATCH, IMAGE) }, &network)?;
    let host = trainer.peak_bytes(Space::Host);
    drop(trainer);
    for share in [75, 50, 30] {
        let algos_from = Some(schedule.clone());
        let (host_budget, disk_budget) = (Some(host * share / 100), Some(DISK_BUDGET));
        let links = Links { disk: Some(DiskRates { write: 2e9, read: 4e9, latency: 1e-4 }), ..LINKS };
        let run = Run { policy: "all", algos_from, host_budget, disk_budget, links, ..Run::small(BATCH, IMAGE) };
        let outcome = compare(&run, &network, &want);
        report.outcome(&format!("all, {share} % of its host memory"), outcome);
    }
    Ok(())
}

fn compare(run: &Run<'_>, network: &dyn Network, want: &End) -> Outcome<(bool, Value)> {
    let (got, mut trainer) = finish(run, network)?;
    let details = trainer.description().details;
    let schedule = trainer.planned().schedule.clone();
    trainer.set_timing(true);
    run.steps(&mut trainer, 2)?;
    let timeline = trainer.timeline().ok_or("no timeline")?;
    let (host, written) = (trainer.peak_bytes(Space::Host), schedule.disk_bytes(Direction::Offload));
    let facts = json!({
        "losses": got.0, "host_budget": run.host_budget, "host_bytes": host, "disk_bytes": trainer.peak_bytes(Space::Disk),
        "written": written, "read": schedule.disk_bytes(Direction::Prefetch), "ms": timeline.seconds * 1e3,
        "details": details,
    });
    let within = run.host_budget.is_none_or(|budget| host <= budget);
    Ok((got == *want && within && written > 0 && details.contains("values rest on disk"), facts))
}
