//! B37, B45: what the driver says of free memory, beside what was planned and what is stated.

use crate::account::account;
use crate::feeds::Run;
use crate::nets::network;
use crate::{Outcome, Report, cuda};
use serde_json::{Value, json};
use vdnn_cuda::context::Context;
use vdnn_cuda::memory::PAGE;
use vdnn_graph::{Op, Role, ValueId};
use vdnn_layers::{Conv2d, Flatten, Layer, LayerError, Linear, MaxPool2d, Net, Relu, Sequential};
use vdnn_runtime::Device;
use vdnn_schedule::{Action, Direction, Schedule, Space};
use vdnn_sim::simulate;
use vdnn_train::{Network, Planned, Trainer};

const IMAGE: [u64; 3] = [3, 32, 32];
const BATCH: u64 = 64;
/// Two maps of the network below; by the figures of an H200 three should be away at the peak.
const LEAST_FALL: u64 = 128 << 20;

pub fn run(report: &mut Report) -> Outcome {
    report.outcome("B37 offloads lower the peak and not the pace", offloads());
    for policy in ["none", "all"] {
        let words = ["alexnet", "64", policy].map(String::from);
        // Fails where anything takes device memory that is neither planned nor stated as context.
        report.outcome(&format!("B45 figures add up to what the driver lost, {policy}"), account(&words));
    }
    Ok(())
}

/// Convolutions that take longer than copies of their maps of 64 MiB.
fn slow(net: &mut Net, x: ValueId) -> Result<ValueId, LayerError> {
    let mut chain = Sequential::new();
    for (name, inputs) in [("1", 3u64), ("2", 256), ("3", 256), ("4", 256), ("5", 256), ("6", 256)] {
        chain = chain
            .then(&format!("conv{name}"), Conv2d::new(inputs, 256, 3).padding(1))
            .then(&format!("relu{name}"), Relu);
    }
    chain = chain.then("pool", MaxPool2d::new(4, 4)).then("flatten", Flatten).then("fc", Linear::new(256 * 8 * 8, 10));
    chain.push(net, "", x)
}

/// What a policy planned, took and needed.
struct Found {
    planned: u64,
    measured: Option<u64>,
    /// Free memory lost from before the device was opened until it had run, less what is stated as context.
    lost: i64,
    /// Least seconds of an iteration.
    seconds: f64,
    trainer: Trainer,
    schedule: Schedule,
}

impl Found {
    /// To a page, which the driver's tables take now and then.
    fn is_as_planned(&self) -> bool {
        let near = |bytes: i64| bytes.abs_diff(self.planned as i64) <= PAGE;
        near(self.lost) && self.measured.is_some_and(|bytes| near(bytes as i64))
    }
}

fn find(run: &Run<'_>, network: &dyn Network) -> Outcome<Found> {
    let context = Context::open(0)?;
    let device = cuda()?;
    let (before, first) = (context.memory()?.0 as i64, device.description().context_bytes as i64);
    let mut trainer = run.trainer(network, Box::new(device))?;
    run.steps(&mut trainer, 3)?;
    let stated = trainer.description().context_bytes as i64 - first;
    let lost = before - context.memory()?.0 as i64 - stated;
    let (planned, measured) = (trainer.peak_bytes(Space::Device), trainer.measured_peak());
    let schedule = Schedule::clone(&trainer.planned().schedule);
    trainer.set_timing(true);
    let mut seconds = f64::INFINITY;
    for _ in 0..5 {
        run.steps(&mut trainer, 1)?;
        seconds = trainer.timeline().map_or(seconds, |timeline| seconds.min(timeline.seconds));
    }
    Ok(Found { planned, measured, lost, seconds, trainer, schedule })
}

/// Fails where offloaded maps keep their bytes until somebody waits, where copies run on the compute stream, or where what is needed
/// at once, is small, or the loader still holds leaves.
fn offloads() -> Outcome<(bool, Value)> {
    let network = network(IMAGE, slow);
    let kept = find(&Run::small(BATCH, IMAGE), &network)?;
    let (most, fastest) = (kept.planned, kept.seconds);
    let by_plan = kept.is_as_planned();
    drop(kept.trainer);
    let run = Run { policy: "all", algos_from: Some(kept.schedule), ..Run::small(BATCH, IMAGE) };
    let mut found = find(&run, &network)?;
    let planned = found.trainer.planned();
    let predicted = simulate(&found.schedule, &planned.kernels, &run.links)?;
    let (left, wrong) = leaves(planned, run.options.min_offload);
    let timeline = found.trainer.timeline().ok_or("no timeline")?;
    let hidden = timeline.hidden_copy_share(&found.schedule).unwrap_or(0.0);
    let facts = json!({
        "planned": found.planned, "measured": found.measured, "lost": found.lost, "planned_of_none": most,
        "ms": found.seconds * 1e3, "predicted_ms": predicted.seconds * 1e3, "ms_of_none": fastest * 1e3,
        "hidden_copy_share": hidden, "predicted_hidden": predicted.hidden_copy_share(&found.schedule),
        "offloads": left, "should_have_stayed": wrong,
    });
    let falls = by_plan && found.is_as_planned() && found.planned + LEAST_FALL <= most;
    let paced = found.seconds <= 2.0 * predicted.seconds && found.seconds <= 2.0 * fastest && hidden > 0.25;
    Ok((falls && paced && left > 0 && wrong.is_empty(), facts))
}

/// How many values leave, and the names of those that should not: the batch, small ones, the input of the last feature layer.
fn leaves(planned: &Planned, least: u64) -> (usize, Vec<String>) {
    let (program, schedule) = (&planned.program, &planned.schedule);
    let graph = &program.graph;
    let flatten = graph.nodes().iter().find(|node| node.op == Op::Flatten).map(|node| node.inputs[0]);
    let pool = flatten.and_then(|pooled| graph.nodes().iter().find(|node| node.outputs.contains(&pooled)));
    let last = pool.map(|node| program.aliases.root(node.inputs[0]));
    let offloaded = schedule.commands.iter().filter_map(|command| match &command.action {
        Action::Transfer { direction: Direction::Offload, src, .. } => Some(schedule.buffer(src.buffer)),
        _ => None,
    });
    let batch = |root: Option<ValueId>| root.is_some_and(|root| graph.value(root).role == Role::Input);
    let (mut count, mut wrong) = (0, Vec::new());
    for buffer in offloaded {
        count += 1;
        if buffer.bytes < least || batch(buffer.root) || buffer.root == last {
            wrong.push(buffer.name.clone());
        }
    }
    // Without a last feature layer nothing was compared with it.
    if last.is_none() {
        wrong.push("no layer before the classifier".to_string());
    }
    (count, wrong)
}
