//! Copies that hide behind kernels are free, unless every launch beside them begins later: then making again may be cheaper.
//!
//! A chain of convolutions whose kernels take a second each, and links that bring a map back in 1.6: to wait for a copy costs that,
//! to hide it a delay, to make the map again a second.

use crate::iteration::{Iteration, options, sgd};
use vdnn_autograd::UpdateAt;
use vdnn_layers::{Conv2d, Flatten, Layer, Linear, Net, NetOptions};
use vdnn_memory::{Problem, compile_with_policy, policies, step_time_bound};
use vdnn_schedule::{Action, Choice, Direction, Schedule, Space};
use vdnn_sim::{Links, oracle_seconds, simulate};

const BATCH: u64 = 2;
/// Seconds that a map's copy takes down and up.
const DOWN: f64 = 0.8;
const UP: f64 = 1.6;

fn chain(layers: usize) -> Iteration {
    let options = NetOptions { batch_size: BATCH, image: [4, 8, 8], ..NetOptions::default() };
    let mut net = Net::new("chain", &options).unwrap();
    let mut x = net.image();
    for layer in 0..layers {
        x = Conv2d::new(4, 4, 3).padding(1).no_bias().push(&mut net, &format!("conv{layer}"), x).unwrap();
    }
    let x = Flatten.push(&mut net, "flatten", x).unwrap();
    let x = Linear::new(4 * 8 * 8, 3).no_bias().push(&mut net, "fc", x).unwrap();
    net.classify(x, 0.0).unwrap();
    let mut iteration = Iteration::training(net, sgd(0.0), UpdateAt::Layer);
    for id in iteration.program.graph.node_ids() {
        let seconds = if iteration.program.graph.node(id).op.is_view() { 0.0 } else { 1.0 };
        let choice = Choice { algorithm: "one".into(), workspace: 0, seconds, deterministic: true };
        iteration.kernels.choices[id.index()] = vec![choice];
    }
    iteration
}

/// Links with these delays of launches.
fn links(launch_delay_d2h: f64, launch_delay_h2d: f64) -> Links {
    let map = (BATCH * 4 * 8 * 8 * 4) as f64;
    Links { launch_delay_d2h, launch_delay_h2d, ..Links::new(map / DOWN, map / UP, map / DOWN) }
}

/// The schedule of a policy in a share of what everything takes, planned for some links.
fn planned(iteration: &Iteration, policy: &str, share: f64, links: Links) -> Schedule {
    let problem = |device| Problem { links, ..iteration.problem(options(), device) };
    let compiled = |policy: &str, device| {
        compile_with_policy(&problem(device), policies::find(policy).unwrap().as_ref()).unwrap().0
    };
    let homes = iteration.homes.extent();
    let above = compiled("none", None).peak_bytes(Space::Device) - homes;
    let budget = homes + (above as f64 * share) as u64;
    let schedule = compiled(policy, Some(budget));
    assert!(schedule.peak_bytes(Space::Device) <= budget);
    assert_eq!(vdnn_check::check(&schedule, &iteration.program), vec![]);
    let seconds = simulate(&schedule, &iteration.kernels, &links).unwrap().seconds;
    let bound = step_time_bound(&problem(Some(budget))).seconds;
    assert!(bound <= seconds * (1.0 + 1e-9), "{policy}: bound {bound}, yet {seconds}");
    schedule
}

fn seconds(iteration: &Iteration, schedule: &Schedule, links: Links) -> f64 {
    simulate(schedule, &iteration.kernels, &links).unwrap().seconds
}

fn runs_again(schedule: &Schedule) -> usize {
    schedule.commands.iter().filter(|command| matches!(command.action, Action::Launch { run: 1.., .. })).count()
}

/// `hybrid` copies where that is free, and makes again where a copy costs two seconds and a kernel one.
fn copies_or_makes_again(layers: usize, share: f64) {
    let iteration = chain(layers);
    let oracle = oracle_seconds(&iteration.program, &iteration.kernels);
    let (free, late) = (links(0.0, 0.0), links(0.0, 2.0));
    let copying = planned(&iteration, "hybrid", share, free);
    assert!(copying.transfer_bytes(Direction::Prefetch) > 0 && runs_again(&copying) == 0);
    assert!((seconds(&iteration, &copying, free) - oracle).abs() < 1e-9, "copies hide");

    let again = planned(&iteration, "hybrid", share, late);
    assert_eq!(again.transfer_bytes(Direction::Prefetch), 0);
    let lasts = seconds(&iteration, &again, late);
    assert!((lasts - (oracle + runs_again(&again) as f64)).abs() < 1e-9, "{lasts} of {oracle}");
    let had = seconds(&iteration, &copying, late);
    assert!(lasts < had, "{lasts} made again, {had} copied, oracle {oracle}");
}

#[test]
fn a_long_chain_copies_or_makes_again_by_what_launches_lose() {
    copies_or_makes_again(12, 0.7);
}

/// So short that `hybrid` leaves it to `optimal`, whose proof must hold with delays as well.
#[test]
fn a_proof_knows_what_launches_lose() {
    copies_or_makes_again(4, 0.8);
}

/// Delays so small that copying stays the better way.
#[test]
fn small_delays_change_little() {
    let iteration = chain(12);
    let (free, late) = (links(0.0, 0.0), links(0.01, 0.02));
    let copying = planned(&iteration, "hybrid", 0.7, late);
    assert!(copying.transfer_bytes(Direction::Prefetch) > 0 && runs_again(&copying) == 0);
    let (oracle, lasts) = (seconds(&iteration, &copying, free), seconds(&iteration, &copying, late));
    assert!(oracle < lasts && lasts < oracle + 1.0, "{oracle} {lasts}");
}

/// The bound says nothing of delays, so it is the same with them.
#[test]
fn the_bound_is_the_same_with_delays() {
    let iteration = chain(6);
    for budget in (0..20).map(|i| iteration.homes.extent() + 2048 * i) {
        let bound = |links| step_time_bound(&Problem { links, ..iteration.problem(options(), Some(budget)) });
        assert_eq!(bound(links(0.5, 2.0)), bound(links(0.0, 0.0)));
    }
}
