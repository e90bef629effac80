//! One model of the zoo on the GPU: planned and measured memory, planned and measured time.

use crate::feeds::Run;
use crate::{Outcome, Report, cuda};
use serde_json::json;
use std::error::Error;
use std::time::Instant;
use vdnn_layers::{Mode, Net};
use vdnn_schedule::{Direction, Space};
use vdnn_train::Feed;

/// `NAME BATCH POLICY [STEPS]`
pub fn run(report: &mut Report, words: &[String]) -> Outcome {
    let word = |index: usize, default: &str| words.get(index).map_or(default.to_string(), String::clone);
    let (name, policy) = (word(0, "vgg16"), word(2, "none"));
    let (batch_size, steps): (u64, usize) = (word(1, "64").parse()?, word(3, "5").parse()?);
    let build = |batch_size: u64, mode: Mode| -> Result<Net, Box<dyn Error + Send + Sync>> {
        let options = vdnn_models::Options { batch_size, mode, ..vdnn_models::Options::default() };
        Ok(vdnn_models::build(&name, &options)?)
    };
    let run = Run { policy: &policy, classes: 1000, ..Run::small(batch_size, [3, 224, 224]) };
    let start = Instant::now();
    let mut trainer = run.trainer(&build, Box::new(cuda()?))?;
    let prepared = start.elapsed().as_secs_f64();
    let (images, labels) = run.batch(0);
    let feed = Feed::new(&images, &labels);
    let mut times = Vec::new();
    let mut losses = Vec::new();
    for step in 0..steps {
        trainer.set_timing(step + 1 == steps);
        let start = Instant::now();
        losses.push(trainer.step(feed, 1e-3)?.loss);
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let schedule = trainer.planned().schedule.clone();
    let timeline = trainer.timeline().ok_or("no timeline")?;
    let planned: f64 = trainer.planned().kernels.choices.iter().map(|choices| choices[0].seconds).sum();
    let facts = json!({
        "model": name, "batch": batch_size, "policy": policy, "prepare_seconds": prepared, "step_ms": times,
        "losses": losses, "timeline_ms": timeline.seconds * 1e3, "planned_compute_ms": planned * 1e3,
        "compute_busy_ms": timeline.compute_busy(&schedule) * 1e3,
        "hidden_copy_share": timeline.hidden_copy_share(&schedule),
        "peak_bytes": trainer.peak_bytes(Space::Device), "measured_peak": trainer.measured_peak(),
        "host_bytes": trainer.peak_bytes(Space::Host), "offload_bytes": schedule.transfer_bytes(Direction::Offload),
        "context_bytes": trainer.description().context_bytes,
    });
    report.case("model", losses.iter().all(|loss| loss.is_finite()), facts);
    Ok(())
}
