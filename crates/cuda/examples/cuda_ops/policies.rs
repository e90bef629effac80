//! A network large enough to offload, under every policy with the same algorithms: the same bits.

use crate::feeds::{Run, numbers};
use crate::nets::network;
use crate::{Outcome, Report, cuda};
use serde_json::{Value, json};
use vdnn_cuda::CudaDevice;
use vdnn_graph::ValueId;
use vdnn_layers::{BatchNorm2d, Conv2d, Flatten, Layer, LayerError, Linear, MaxPool2d, Net, Relu, Sequential};
use vdnn_memory::{PlanError, Sync};
use vdnn_runtime::Device;
use vdnn_schedule::{Direction, Schedule, Space, split_pieces};
use vdnn_train::{Encodings, Network, TrainError, Trainer};

const IMAGE: [u64; 3] = [3, 64, 64];
const BATCH: u64 = 64;
const STEPS: u64 = 3;

/// The network: feature maps of some tens of MiB.
pub fn body(net: &mut Net, x: ValueId) -> Result<ValueId, LayerError> {
    let mut chain = Sequential::new();
    for (name, inputs, outputs) in [("1", 3u64, 32u64), ("2", 32, 32), ("3", 32, 64), ("4", 64, 64)] {
        chain = chain
            .then(&format!("conv{name}"), Conv2d::new(inputs, outputs, 3).padding(1).no_bias())
            .then(&format!("bn{name}"), BatchNorm2d::new(outputs))
            .then(&format!("relu{name}"), Relu);
        if name == "2" || name == "4" {
            chain = chain.then(&format!("pool{name}"), MaxPool2d::new(2, 2));
        }
    }
    chain = chain.then("flatten", Flatten).then("fc", Linear::new(64 * 16 * 16, 10));
    chain.push(net, "", x)
}

/// What a run ends with, to the last bit.
#[derive(PartialEq)]
struct End {
    losses: Vec<f64>,
    numbers: Vec<(String, Vec<f32>)>,
}

fn finish(run: &Run<'_>, network: &dyn Network) -> Outcome<(End, Trainer)> {
    finish_on(cuda()?, run, network)
}

fn finish_on(device: CudaDevice, run: &Run<'_>, network: &dyn Network) -> Outcome<(End, Trainer)> {
    let mut trainer = run.trainer(network, Box::new(device))?;
    let losses = run.steps(&mut trainer, STEPS)?;
    let numbers = numbers(&mut trainer)?;
    Ok((End { losses, numbers }, trainer))
}

/// Commands issued one by one: the bits of captured graphs.
fn one_by_one(run: &Run<'_>, network: &dyn Network, want: &End) -> Outcome<(bool, Value)> {
    let mut device = cuda()?;
    device.set_replay(false);
    let (got, trainer) = finish_on(device, run, network)?;
    let captured = finish(run, network)?.1.description().details;
    let offload_bytes = trainer.planned().schedule.transfer_bytes(Direction::Offload);
    let facts = json!({"losses": got.losses, "offload_bytes": offload_bytes, "captured": captured});
    // A device that could not capture says so.
    Ok((got == *want && !captured.contains("one by one"), facts))
}

pub fn run(report: &mut Report) -> Outcome {
    let network = network(IMAGE, body);
    let base = Run::small(BATCH, IMAGE);
    let (want, trainer) = finish(&base, &network)?;
    let schedule = Schedule::clone(&trainer.planned().schedule);
    let peak = trainer.peak_bytes(Space::Device);
    drop(trainer);
    let (again, _) = finish(&base, &network)?;
    report.case("the same run twice", again == want, json!({"losses": want.losses, "peak_bytes": peak}));
    for policy in ["baseline", "all", "conv", "dyn"] {
        for sync in [Sync::Events, Sync::PerLayer] {
            let mut run = Run { policy, algos_from: Some(schedule.clone()), ..Run::small(BATCH, IMAGE) };
            run.options.sync = sync;
            if policy == "dyn" {
                run.budget = Some(floor(&mut run, &network)?);
            }
            let outcome = compare(&run, &network, &want);
            report.outcome(&format!("{policy}, {sync:?}"), outcome);
            let outcome = one_by_one(&run, &network, &want);
            report.outcome(&format!("{policy}, {sync:?}, issued one by one"), outcome);
        }
    }
    for encodings in [Encodings::Auto, Encodings::Never] {
        let algos_from = Some(schedule.clone());
        let mut run = Run { policy: "hybrid", encodings, algos_from, ..Run::small(BATCH, IMAGE) };
        run.budget = Some(floor(&mut run, &network)?);
        report.outcome(&format!("hybrid at its floor, encodings {encodings:?}"), compare(&run, &network, &want));
    }
    report.outcome("hybrid in pieces", in_pieces(&network));
    for policy in ["none-m", "all-m", "conv-m"] {
        let run = Run { policy, ..Run::small(BATCH, IMAGE) };
        report.outcome(policy, close(&run, &network, &want));
    }
    Ok(())
}

/// The least budget of a policy with the run's algorithms, as its refusal of one byte states it.
pub fn floor(run: &mut Run<'_>, network: &dyn Network) -> Outcome<u64> {
    run.budget = Some(1);
    let Err(error) = run.trainer(network, Box::new(cuda()?)) else {
        return Err("a budget of one byte was accepted".into());
    };
    match error.downcast_ref::<TrainError>() {
        Some(TrainError::Plan(PlanError::Infeasible(refusal))) => Ok(refusal.floor),
        _ => Err(error),
    }
}

fn compare(run: &Run<'_>, network: &dyn Network, want: &End) -> Outcome<(bool, Value)> {
    let (got, mut trainer) = finish(run, network)?;
    let schedule = trainer.planned().schedule.clone();
    trainer.set_timing(true);
    run.steps(&mut trainer, 2)?;
    let timeline = trainer.timeline().ok_or("no timeline")?;
    let encoded = trainer.planned().encoded_nodes();
    let differing = got.numbers.iter().zip(&want.numbers).filter(|(a, b)| a != b).count();
    let facts = json!({
        "losses": got.losses, "differing": differing, "peak_bytes": trainer.peak_bytes(Space::Device),
        "measured_peak": trainer.measured_peak(), "host_bytes": trainer.peak_bytes(Space::Host),
        "offload_bytes": schedule.transfer_bytes(Direction::Offload), "ms": timeline.seconds * 1e3,
        "compute_busy_ms": timeline.compute_busy(&schedule) * 1e3,
        "hidden_copy_share": timeline.hidden_copy_share(&schedule), "encoded_nodes": encoded,
    });
    let within = run.budget.is_none_or(|budget| trainer.peak_bytes(Space::Device) <= budget);
    // Only `hybrid` takes encodings; whether they pay at its floor depends on the times measured.
    let may = run.policy == "hybrid" && run.encodings == Encodings::Auto;
    Ok((got == *want && within && (encoded == 0 || may), facts))
}

/// `hybrid` a little above its floor, with kernels in pieces of the batch if any pays: the bits of `none` in the same pieces.
fn in_pieces(network: &dyn Network) -> Outcome<(bool, Value)> {
    let mut tight = Run { policy: "hybrid", ..Run::small(BATCH, IMAGE) };
    let floor = floor(&mut tight, network)?;
    tight.budget = Some(floor + floor / 10);
    let (got, trainer) = finish(&tight, network)?;
    let schedule = Schedule::clone(&trainer.planned().schedule);
    let peak = trainer.peak_bytes(Space::Device);
    drop(trainer);
    let names: Vec<&String> = schedule.algorithms.iter().filter(|name| split_pieces(name).1 > 1).collect();
    let (want, _) = finish(&Run { algos_from: Some(schedule.clone()), ..Run::small(BATCH, IMAGE) }, network)?;
    let facts = json!({"pieces": names, "losses": got.losses, "peak_bytes": peak, "budget": tight.budget});
    Ok((got == want && tight.budget.is_some_and(|budget| peak <= budget), facts))
}

/// With algorithms of its own a policy's numbers are close.
fn close(run: &Run<'_>, network: &dyn Network, want: &End) -> Outcome<(bool, Value)> {
    let (got, trainer) = finish(run, network)?;
    let error = got.losses.iter().zip(&want.losses).map(|(a, b)| ((a - b) / b).abs()).fold(0.0, f64::max);
    let facts = json!({"loss_error": error, "peak_bytes": trainer.peak_bytes(Space::Device)});
    Ok((error <= 1e-4, facts))
}
