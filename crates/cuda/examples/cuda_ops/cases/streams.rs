//! B35: what libraries compute is queued behind what made its inputs, and before what reads its outputs.
//!
//! Kernels of our own write maps of 32 MiB just before a small convolution or product of a library reads them. A handle left on
//! another stream, or bound to the stream of a device opened before, reads what the last iteration left there.

use super::{BATCH, IMAGE, Trace, hash, trace, wide};
use crate::feeds::Run;
use crate::nets::network;
use crate::{Outcome, Report, cuda, cuda_with};
use serde_json::{Value, json};
use vdnn_cuda::{CudaDevice, CudaOptions};
use vdnn_runtime::Device;
use vdnn_schedule::Schedule;
use vdnn_train::{Feed, Network};

const STEPS: u64 = 20;

pub fn run(report: &mut Report) -> Outcome {
    let network = network(IMAGE, wide);
    let mut run = Run::small(BATCH, IMAGE);
    // Each command runs alone: whatever stream it is on, its inputs are there.
    let waiting = cuda_with(CudaOptions { synchronous: true, ..CudaOptions::default() })?;
    let mut trainer = run.trainer(&network, Box::new(waiting))?;
    let want = trace(&run, &mut trainer, STEPS)?;
    run.algos_from = Some(Schedule::clone(&trainer.planned().schedule));
    drop(trainer);
    for (replay, how) in [(true, "captured"), (false, "issued")] {
        let outcome = device(replay).and_then(|device| follows(&run, &network, device, &want));
        report.outcome(&format!("B35 libraries follow the compute stream, {how}"), outcome);
    }
    report.outcome("B35 two devices in turn", in_turn(&run, &network, &want));
    Ok(())
}

fn device(replay: bool) -> Outcome<CudaDevice> {
    let mut device = cuda()?;
    device.set_replay(replay);
    Ok(device)
}

fn follows(run: &Run<'_>, network: &dyn Network, device: CudaDevice, want: &Trace) -> Outcome<(bool, Value)> {
    let mut trainer = run.trainer(network, Box::new(device))?;
    let got = trace(run, &mut trainer, STEPS)?;
    let details = trainer.description().details;
    let differs = got.iter().zip(want).filter(|(a, b)| a != b).count();
    // A handle on another stream makes capture fail, which the details say.
    let captured = !details.contains("one by one");
    Ok((got == *want && captured, json!({"steps_that_differ": differs, "details": details})))
}

/// Two devices on one card, each with streams and handles of its own, step by step in turn.
fn in_turn(run: &Run<'_>, network: &dyn Network, want: &Trace) -> Outcome<(bool, Value)> {
    let mut trainers =
        [run.trainer(network, Box::new(device(true)?))?, run.trainer(network, Box::new(device(false)?))?];
    let mut differ = [0; 2];
    for (step, want) in (0..).zip(want) {
        let (images, labels) = run.batch(step);
        for (trainer, differ) in trainers.iter_mut().zip(&mut differ) {
            let loss = trainer.step(Feed::new(&images, &labels), 0.02)?.loss;
            *differ += usize::from([loss.to_bits(), hash(trainer)?] != *want);
        }
    }
    Ok((differ == [0; 2], json!({"steps_that_differ": differ})))
}
