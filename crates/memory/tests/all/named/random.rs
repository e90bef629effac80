//! The same graphs on machines of chance, under other options: what the three named machines may not bring up.

use super::graphs::GRAPHS;
use super::machines::MACHINES;
use super::{Instance, brute};
use crate::iteration::options;
use crate::random::Random;
use vdnn_memory::policies::{self, MemoryPolicy};
use vdnn_memory::{Budgets, MemoryPlan, Options, Prefetch, Problem, Sync, compile};
use vdnn_schedule::{Choice, KernelTable, Space};
use vdnn_sim::{Links, simulate};

/// Up to two algorithms and one in pieces a kernel, whole seconds and odd workspaces, so that plans tie and lie askew.
fn kernels(instance: &Instance, random: &mut Random) -> KernelTable {
    let mut table = KernelTable::new(Vec::new());
    for _ in instance.program.graph.node_ids() {
        let seconds = random.between(1, 12) as f64;
        let workspace = random.pick(&[0, 700, 4096, 9000, 20_000]);
        let choice = |i: u64, name: &str| Choice {
            algorithm: format!("{name}{i}"),
            workspace: workspace / (1 + 2 * i),
            seconds: seconds + i as f64 * (1 + workspace % 3) as f64,
            deterministic: true,
        };
        table.choices.push((0..random.between(1, 2)).map(|i| choice(i, "whole")).collect());
        table.pieces.push((1..random.between(1, 2)).map(|i| choice(i, "pieces")).collect());
    }
    table
}

fn links(random: &mut Random) -> Links {
    let rate = 1024.0 * random.pick(&[0.3, 1.0, 2.0, 9.0]);
    let (h2d, share) = (rate * random.pick(&[0.5, 1.0, 1.7]), random.pick(&[0.5, 0.8, 1.0]));
    let latency = random.pick(&[0.0, 0.5]);
    let (launch_delay_d2h, launch_delay_h2d) = random.pick(&[(0.0, 0.0), (0.0, 0.0), (0.0, 0.7), (0.3, 2.5)]);
    Links { latency, launch_delay_d2h, launch_delay_h2d, ..Links::new(rate, h2d, share * rate.min(h2d)) }
}

fn any_options(random: &mut Random) -> Options {
    let sync = random.pick(&[Sync::Events, Sync::Events, Sync::PerLayer]);
    let prefetch = random.pick(&[Prefetch::Cost, Prefetch::Paper]);
    Options { sync, prefetch, alignment: random.pick(&[4, 64, 256]), ..options() }
}

#[test]
fn on_machines_of_chance_too() {
    let (mut compared, mut refused) = (0, 0);
    for seed in 0..90 {
        let mut random = Random::new(90_000 + seed);
        let mut instance = Instance::new(random.pick(&GRAPHS), &MACHINES[0]);
        instance.kernels = kernels(&instance, &mut random);
        let problem =
            Problem { links: links(&mut random), options: any_options(&mut random), ..instance.problem(None) };
        let keep = compile(&problem, &MemoryPlan::keep_all(&instance.program), "keep").unwrap();
        let (top, floor) = (keep.peak_bytes(Space::Device), brute::least_extent(&problem));
        let budget = floor + random.below(top.saturating_sub(floor) + 1);
        let problem = Problem { budgets: Budgets { device: Some(budget), host: None, disk: None }, ..problem };
        let name = format!("seed {seed}, {} in {budget} bytes of {floor} to {top}", instance.graph);
        let plan = policies::Optimal.plan(&problem).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        let schedule = compile(&problem, &plan, "optimal").unwrap();
        assert_eq!(vdnn_check::check(&schedule, &instance.program), vec![], "{name}");
        let seconds = simulate(&schedule, &instance.kernels, &problem.links).unwrap().seconds;
        let best = brute::least_seconds(&problem);
        assert!((seconds - best).abs() <= best * 1e-9, "{name}: best {best}, optimal {seconds}");
        compared += 1;
        let below = Problem { budgets: Budgets { device: Some(floor - 1), host: None, disk: None }, ..problem };
        assert_eq!(policies::Optimal.plan(&below).unwrap_err().floor, floor, "{name}");
        refused += 1;
    }
    println!("{compared} compared, {refused} refused below the floor");
}

/// Host memory is a limit like the device's: what needs more of it is no plan.
#[test]
fn within_a_host_budget_too() {
    let instance = Instance::named("chain-relu", "fast-link");
    let floor = instance.refusal("optimal", 0).floor;
    let seconds = |host| {
        let problem =
            Problem { budgets: Budgets { device: Some(floor + 4096), host, disk: None }, ..instance.problem(None) };
        let plan = policies::Optimal.plan(&problem).ok()?;
        let schedule = compile(&problem, &plan, "optimal").unwrap();
        assert!(host.is_none_or(|host| schedule.peak_bytes(Space::Host) <= host));
        Some((
            simulate(&schedule, &instance.kernels, &problem.links).unwrap().seconds,
            schedule.peak_bytes(Space::Host),
        ))
    };
    let (free, used) = seconds(None).unwrap();
    assert!(used > 0);
    assert_eq!(seconds(Some(used)).unwrap().0, free);
    let (tight, less) = seconds(Some(used - 1)).unwrap();
    assert!(tight > free && less < used);
}
