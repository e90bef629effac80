//! Case B32: ten thousand layers are built, differentiated, planned, compiled, checked and dropped in a stack of 2 MiB, in
//! about linear time.

use std::time::{Duration, Instant};
use vdnn_autograd::{Options as Differentiation, differentiate};
use vdnn_graph::{InPlace, Program};
use vdnn_layers::{Conv2d, Flatten, Layer, Linear, Net, NetOptions, Relu};
use vdnn_memory::{Budgets, HomeLayout, Options, Prefetch, Problem, Sync, compile_with_policy, policies};
use vdnn_schedule::{Direction, Space};
use vdnn_sim::Machine;

pub const STACK: usize = 2 << 20;
const LAYERS: usize = 10_000;

/// Generous against a busy machine; anything quadratic in these sizes takes minutes.
const LIMIT: Duration = Duration::from_secs(60);

/// A convolution and a ReLU for every two layers.
pub fn chain(layers: usize) -> Program {
    let options = NetOptions { batch_size: 2, image: [2, 2, 2], ..NetOptions::default() };
    let mut net = Net::new("deep", &options).unwrap();
    let mut x = net.image();
    for i in 0..layers / 2 {
        x = Conv2d::new(2, 2, 1).push(&mut net, &format!("conv{i}"), x).unwrap();
        x = Relu.push(&mut net, &format!("relu{i}"), x).unwrap();
    }
    let x = Flatten.push(&mut net, "flatten", x).unwrap();
    let x = Linear::new(8, 2).push(&mut net, "fc", x).unwrap();
    net.classify(x, 0.0).unwrap();
    let loss = net.loss().unwrap();
    let options = Differentiation::train(loss, crate::iteration::sgd(0.9));
    Program::linearize(differentiate(net.into_graph(), &options).unwrap().graph, InPlace::Allowed).unwrap()
}

/// Plans and compiles between the floor and what is used without a limit.
fn halfway<'a>(name: &str, peak: u64, with: &dyn Fn(u64) -> Problem<'a>) {
    let started = Instant::now();
    let policy = policies::find(name).unwrap();
    let floor = policy.plan(&with(0)).unwrap_err().floor;
    let budget = floor + (peak - floor) / 2;
    let (schedule, _) = compile_with_policy(&with(budget), policy.as_ref()).unwrap();
    assert!(schedule.peak_bytes(Space::Device) <= budget);
    println!("{name} halfway from its floor: {:?}", started.elapsed());
}

#[test]
fn ten_thousand_layers_under_every_policy() {
    let body = || {
        let started = Instant::now();
        let program = chain(LAYERS);
        let machine = Machine::named("titan-x").unwrap();
        let kernels = machine.kernel_table(&program).unwrap();
        let homes = HomeLayout::for_graphs(&[&program.graph], 64);
        println!("{LAYERS} layers, {} steps, differentiated in {:?}", program.n_steps(), started.elapsed());
        let plain = Options { min_offload: 0, alignment: 64, ..Options::default() };
        let paper = Options { prefetch: Prefetch::Paper, sync: Sync::PerLayer, ..plain };
        for (name, options) in [("none", plain), ("baseline", plain), ("all", plain), ("all", paper), ("conv", plain)] {
            let started = Instant::now();
            let problem = Problem {
                program: &program,
                kernels: &kernels,
                links: machine.links(),
                homes: &homes,
                budgets: Budgets::default(),
                options,
                encoded: None,
            };
            let policy = policies::find(name).unwrap();
            let (schedule, plan) = compile_with_policy(&problem, policy.as_ref()).unwrap();
            let compiled = started.elapsed();
            assert!(vdnn_check::check(&schedule, &program).is_empty());
            let moves = schedule.transfer_bytes(Direction::Offload) > 0;
            assert_eq!(moves, matches!(name, "all" | "conv"));
            let peak = schedule.peak_bytes(Space::Device);
            let with =
                |device| Problem { budgets: Budgets { device: Some(device), host: None, disk: None }, ..problem };
            let floor = policy.plan(&with(0)).unwrap_err().floor;
            assert!(floor <= peak);
            drop((schedule, plan));
            println!(
                "{name} {:?}: compiled in {compiled:?}, with check and floor {:?}",
                options.sync,
                started.elapsed()
            );
            if matches!(name, "all" | "none") {
                halfway(if name == "none" { "dyn" } else { name }, peak, &with);
            }
        }
    };
    let started = Instant::now();
    std::thread::Builder::new().stack_size(STACK).spawn(body).unwrap().join().unwrap();
    assert!(started.elapsed() < LIMIT, "took {:?}", started.elapsed());
}
