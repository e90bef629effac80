//! B33, B34, B36: copies run long, kernels are short, and the arena is the smallest there is, so that bytes are given to others
//! as soon as the schedule says they may be. Weights after every step have the bits of keeping everything.
//!
//! Beside each, the mistake: the same schedule without the waits that the case is about. It must show, or the case proves nothing.

use super::careless::{Careless, LeftOut, waits};
use super::{BATCH, IMAGE, Trace, trace, wide};
use crate::feeds::Run;
use crate::nets::network;
use crate::policies::floor;
use crate::{Outcome, Report, cuda};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use vdnn_cuda::context::{Context, Event, Streams, Timing};
use vdnn_cuda::memory::{DeviceArena, PinnedArena, Rows, offload};
use vdnn_graph::ValueId;
use vdnn_layers::{Flatten, Layer, LayerError, Linear, MaxPool2d, Net, Relu, Sequential};
use vdnn_memory::State;
use vdnn_runtime::Device;
use vdnn_schedule::{Action, Buffer, BufferId, BufferKind, Direction, Schedule, Space, StreamRole};
use vdnn_train::{Network, TrainError};

const STEPS: u64 = 20;
const FEW_STEPS: u64 = 5;

pub fn run(report: &mut Report) -> Outcome {
    let network = network(IMAGE, wide);
    let (mut tight, want) = kept(Run::small(BATCH, IMAGE), &network, STEPS)?;
    tight.policy = "all";
    tight.budget = Some(floor(&mut tight, &network)?);
    let compute = StreamRole::Compute;
    // Fails where a block goes to the next value before the copy of the last one has left it.
    for (replay, how) in [(true, "captured"), (false, "issued")] {
        let name = format!("B33 bytes are reused at once after they left, {how}");
        report.outcome(&name, same(&tight, &network, replay, &want, |schedule| reused(schedule, Direction::Offload)));
        // Fails where a kernel runs before its copy has come back, or the copy lands on bytes that a kernel still reads.
        let name = format!("B34 bytes are reused at once after they came back, {how}");
        report.outcome(&name, same(&tight, &network, replay, &want, |schedule| reused(schedule, Direction::Prefetch)));
    }
    let mistakes: [(&str, LeftOut); 3] = [
        ("B33 shows when nobody waits for offloads", (compute, Some(StreamRole::Offload))),
        ("B34 shows when nobody waits for prefetches", (compute, Some(StreamRole::Prefetch))),
        ("B36 shows when a slot is read before it is written", (StreamRole::Prefetch, None)),
    ];
    for (name, left_out) in mistakes {
        report.outcome(name, shows(&tight, &network, left_out, &want[..FEW_STEPS as usize]));
    }
    streamed(report)?;
    report.outcome("B36 the host waits for a copy of 512 MiB", large_copy());
    Ok(())
}

/// What a run that keeps everything comes to, and the run with its algorithms.
fn kept<'a>(mut run: Run<'a>, network: &dyn Network, steps: u64) -> Outcome<(Run<'a>, Trace)> {
    let mut trainer = run.trainer(network, Box::new(cuda()?))?;
    let want = trace(&run, &mut trainer, steps)?;
    run.algos_from = Some(Schedule::clone(&trainer.planned().schedule));
    Ok((run, want))
}

/// The bits wanted, and how often the schedule does what the case is about.
fn same(
    run: &Run<'_>,
    network: &dyn Network,
    replay: bool,
    want: &[[u64; 2]],
    count: fn(&Schedule) -> usize,
) -> Outcome<(bool, Value)> {
    let mut device = cuda()?;
    device.set_replay(replay);
    let mut trainer = run.trainer(network, Box::new(device))?;
    let got = trace(run, &mut trainer, want.len() as u64)?;
    let (schedule, peak) = (trainer.planned().schedule.clone(), trainer.peak_bytes(Space::Device));
    let differs = got.iter().zip(want).position(|(a, b)| a != b);
    let (found, details) = (count(&schedule), trainer.description().details);
    let facts = json!({
        "first_step_that_differs": differs, "found_in_schedule": found, "peak_bytes": peak, "budget": run.budget,
        "offload_bytes": schedule.transfer_bytes(Direction::Offload), "details": details,
    });
    let within = run.budget.is_none_or(|budget| peak <= budget);
    Ok((got == want && found > 0 && within && !details.contains("one by one"), facts))
}

/// Without some waits the bits differ, or a loss is no number.
fn shows(run: &Run<'_>, network: &dyn Network, left_out: LeftOut, want: &[[u64; 2]]) -> Outcome<(bool, Value)> {
    let mut trainer = run.trainer(network, Box::new(Careless::on(cuda()?, left_out)))?;
    let skipped = waits(&trainer.planned().schedule, left_out).into_iter().filter(|skipped| *skipped).count();
    let (differs, loss) = match trace(run, &mut trainer, want.len() as u64) {
        Ok(got) => (got != want, None),
        Err(error) => match error.downcast_ref::<TrainError>() {
            Some(TrainError::NotFinite { .. }) => (true, Some(error.to_string())),
            _ => return Err(error),
        },
    };
    Ok((differs && skipped > 0, json!({"waits_left_out": skipped, "differs": differs, "loss": loss})))
}

/// How many buffers that are copied so have their bytes given to others later in the iteration.
fn reused(schedule: &Schedule, way: Direction) -> usize {
    let end = |action: &Action| match action {
        Action::Transfer { direction, src, dst } if *direction == way => {
            Some(if way == Direction::Offload { src.buffer } else { dst.buffer })
        }
        _ => None,
    };
    let copied: BTreeSet<BufferId> = schedule.commands.iter().filter_map(|command| end(&command.action)).collect();
    let overlap =
        |a: &Buffer, b: &Buffer| a.space == b.space && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
    let given = |id: &&BufferId| {
        let at = schedule.commands.iter().position(|command| command.action == Action::Free(**id));
        let after = at.map_or(&[][..], |at| &schedule.commands[at..]);
        after.iter().any(|command| match command.action {
            Action::Alloc(other) => overlap(schedule.buffer(**id), schedule.buffer(other)),
            _ => false,
        })
    };
    copied.iter().filter(given).count()
}

/// Two products with weights of 24 and 16 MiB.
fn heavy(net: &mut Net, x: ValueId) -> Result<ValueId, LayerError> {
    let chain = Sequential::new()
        .then("pool", MaxPool2d::new(2, 2))
        .then("flatten", Flatten)
        .then("fc1", Linear::new(3 * 32 * 32, 2048))
        .then("relu1", Relu)
        .then("fc2", Linear::new(2048, 2048))
        .then("relu2", Relu)
        .then("fc3", Linear::new(2048, 10));
    chain.push(net, "", x)
}

/// B36: weights and momenta live in host memory. In each iteration their homes are read by copies and written by others, and after
/// it by the host at once. Fails where the host, or the next iteration's copy, reads a home before the last copy has reached it.
fn streamed(report: &mut Report) -> Outcome {
    let network = network(IMAGE, heavy);
    let (mut run, want) = kept(Run::small(BATCH, IMAGE), &network, STEPS / 2)?;
    run.policy = "all";
    run.options.state = State::Host;
    run.budget = Some(floor(&mut run, &network)?);
    for (replay, how) in [(true, "captured"), (false, "issued")] {
        let name = format!("B36 host homes are read and written in turn, {how}");
        report.outcome(&name, same(&run, &network, replay, &want, read_and_written));
    }
    Ok(())
}

/// Homes in host memory that copies read and write in one iteration.
fn read_and_written(schedule: &Schedule) -> usize {
    let ends = |way: Direction| -> BTreeSet<BufferId> {
        let end = |action: &Action| match action {
            Action::Transfer { direction, src, dst } if *direction == way => {
                Some(if way == Direction::Offload { dst.buffer } else { src.buffer })
            }
            _ => None,
        };
        schedule.commands.iter().filter_map(|command| end(&command.action)).collect()
    };
    let home = |id: &&BufferId| {
        let buffer = schedule.buffer(**id);
        (buffer.space, buffer.kind) == (Space::Host, BufferKind::Home)
    };
    ends(Direction::Offload).intersection(&ends(Direction::Prefetch)).filter(home).count()
}

/// B36: 512³ numbers are copied to the host and compared there as soon as their event has happened. Fails where waiting for an event
/// does not wait for the copy before it.
fn large_copy() -> Outcome<(bool, Value)> {
    const BYTES: u64 = 4 * 512 * 512 * 512;
    let context = Context::open(0)?;
    let streams = Streams::new(&context)?;
    let (device, host) = (DeviceArena::new(&context, BYTES)?, PinnedArena::new(&context, BYTES)?);
    let numbers: Vec<u8> = (0..BYTES / 4).flat_map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    device.write(&streams.compute, 0, &numbers)?;
    let event = Event::new(&context, Timing::Off)?;
    let all = Rows::contiguous(0, BYTES);
    offload(&streams.offload, &device, all, &host, all)?;
    streams.offload.record(&event)?;
    let mut last = [0u8; 4];
    host.read(BYTES - 4, &mut last)?;
    let early = last == numbers[numbers.len() - 4..];
    event.synchronize()?;
    let mut got = vec![0u8; numbers.len()];
    host.read(0, &mut got)?;
    // That nothing is there at first says that the copy does run beside the host.
    Ok((got == numbers, json!({"bytes": BYTES, "there_before_the_wait": early})))
}
