//! A profile of a small network, in two pieces.

use crate::nets::{network, vgg};
use crate::{Outcome, Report, cuda};
use serde_json::json;
use std::time::Instant;
use vdnn_cuda::profile::{ProfileOptions, profile};
use vdnn_layers::Mode;
use vdnn_runtime::Device;
use vdnn_train::{Optimization, program};

pub fn run(report: &mut Report) -> Outcome {
    let net = program::network(&network([3, 32, 32], vgg), 64, Mode::Train)?;
    let program = program::training(net, &Optimization::sgd(0.9, 1e-4))?;
    let graphs = [&program.graph];
    let mut device = cuda()?;
    let start = Instant::now();
    let none = ProfileOptions { seconds: 0.0, ..ProfileOptions::default() };
    let rates = profile(&mut device, &graphs, &[], none, None)?;
    let missing = rates.missing;
    let all = profile(&mut device, &graphs, &[], ProfileOptions::default(), Some(rates.profile))?;
    let seconds = start.elapsed().as_secs_f64();
    let found = &all.profile;
    let fast = [found.d2h, found.h2d, found.duplex_each].iter().all(|rate| *rate > 1e9);
    let every = program.graph.nodes().iter().all(|node| {
        found.find(&vdnn_schedule::kernel_key(&program.graph, node)).is_some_and(|choices| !choices.is_empty())
    });
    let facts = json!({
        "d2h": found.d2h, "h2d": found.h2d, "duplex_each": found.duplex_each, "kernels": found.kernels.len(),
        "missing_at_first": missing, "seconds": seconds, "device": found.device,
    });
    let short = |time: Option<f64>| time.is_some_and(|time| (0.0..50e-6).contains(&time));
    let launch = device.launch_times();
    let times = [launch.map(|launch| launch.overhead()), launch.map(|launch| launch.chained)];
    let stated = [found.launch_overhead, found.launch_delay_d2h, found.launch_delay_h2d];
    let facts_of_launches = json!({
        "overhead": times[0], "chained": times[1], "delay_d2h": stated[1], "delay_h2d": stated[2],
        "device": device.description().details,
    });
    let good = times.into_iter().chain(stated).all(short);
    report.case("launches by themselves, in chains and beside copies", good, facts_of_launches);
    report.case("profile in two pieces", fast && every && missing > 0 && all.missing == 0, facts);
    let start = Instant::now();
    let again = profile(&mut device, &graphs, &[], ProfileOptions::default(), Some(all.profile.clone()))?;
    let same = again.profile == all.profile && start.elapsed().as_secs_f64() < 1.0;
    report.case("nothing is measured twice", same, json!({}));
    for entry in &found.kernels {
        println!("{}", json!({"kernel": entry.key, "choices": entry.choices}));
    }
    Ok(())
}
