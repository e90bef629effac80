//! The bound beside every policy's schedules of known networks, and for a network of ten thousand layers.

use super::{ROUNDING, links};
use crate::depth::{STACK, chain};
use crate::iteration::{Iteration, sgd};
use std::time::{Duration, Instant};
use vdnn_autograd::{UpdateAt, encode};
use vdnn_graph::Program;
use vdnn_memory::{
    Budgets, Encoded, HomeLayout, Options, Problem, State, compile_with_policy, policies, step_time_bound,
};
use vdnn_models::{Options as ModelOptions, build};
use vdnn_schedule::{KernelTable, Space};
use vdnn_sim::{Links, Machine, simulate};

fn policies_hold(
    names: &[&str],
    program: &Program,
    price: impl Fn(&Program) -> KernelTable,
    links: Links,
    options: Options,
) {
    let kernels = &price(program);
    let homes = HomeLayout::for_graphs(&[&program.graph], options.alignment);
    let encoded = encode(program).unwrap();
    let encoded_kernels = encoded.as_ref().map(&price);
    let encoded = encoded.as_ref().zip(encoded_kernels.as_ref());
    let encoded = encoded.map(|(program, kernels)| Encoded { program, kernels });
    let problem = |device| Problem {
        program,
        kernels,
        links,
        homes: &homes,
        budgets: Budgets { device, host: None, disk: None },
        options,
        encoded,
    };
    for name in names {
        let policy = policies::find(name).unwrap();
        let floor = policy.plan(&problem(Some(0))).unwrap_err().floor;
        let (free, _) = compile_with_policy(&problem(None), policy.as_ref()).unwrap();
        let top = free.peak_bytes(Space::Device);
        for budget in [Some(floor), Some(floor + (top - floor) / 3), Some(top), None] {
            let (schedule, plan) = compile_with_policy(&problem(budget), policy.as_ref()).unwrap();
            let kernels = problem(budget).of(&plan).kernels;
            let seconds = simulate(&schedule, kernels, &links).unwrap().seconds;
            // What a schedule uses is a budget it keeps.
            for budget in [budget, Some(schedule.peak_bytes(Space::Device))] {
                let bound = step_time_bound(&problem(budget));
                let name = format!("{} under {name} with {budget:?}", program.graph.name);
                assert!(bound.seconds <= seconds * ROUNDING, "{name}: {bound:?}, {seconds} s");
                assert!(bound.gap(seconds) > -1e-9, "{name}");
            }
        }
    }
}

fn program_of(model: &str, options: ModelOptions) -> Program {
    let net = build(model, &options).unwrap();
    (*Iteration::training(net, sgd(0.9), UpdateAt::Layer).program).clone()
}

#[test]
fn no_policy_is_quicker_on_small_networks() {
    for model in ["vgg-small", "resnet-small", "resnet-cifar-8", "googlenet"] {
        let (image_size, channels) = if model == "googlenet" { (64, 3) } else { (28, 1) };
        let (image_size, channels, classes) = (Some(image_size), Some(channels), Some(10));
        let options = ModelOptions { batch_size: 4, image_size, channels, classes, ..ModelOptions::default() };
        let program = program_of(model, options);
        let kernels = crate::iteration::kernels_in_pieces(&program);
        assert!(kernels.pieces.iter().any(|pieces| !pieces.is_empty()), "{model} has no kernel in pieces");
        for rate in [1e8, 1e9, 1e10] {
            // `optimal` refuses them; it is held against the bound in `named`.
            let names = policies::REGISTRY.map(|entry| entry.name).into_iter().filter(|name| *name != "optimal");
            let names: Vec<&str> = names.collect();
            policies_hold(
                &names,
                &program,
                crate::iteration::kernels_in_pieces,
                links(rate),
                crate::iteration::options(),
            );
        }
    }
}

#[test]
fn no_policy_is_quicker_on_the_papers_card() {
    let machine = Machine::named("titan-x").unwrap();
    for (model, batch_size) in
        [("alexnet", 128), ("vgg16", 64), ("googlenet", 64), ("resnet50", 32), ("densenet121", 16)]
    {
        let program = program_of(model, ModelOptions { batch_size, ..ModelOptions::default() });
        let price = |program: &Program| machine.kernel_table(program).unwrap();
        policies_hold(&["all", "conv-m", "dyn"], &program, price, machine.links(), Options::default());
    }
}

/// Ten thousand layers take less than a second, and about twice as long as five thousand.
#[test]
fn ten_thousand_layers_in_a_second() {
    let time = |layers: usize| {
        let program = chain(layers);
        let machine = Machine::named("titan-x").unwrap();
        let kernels = machine.kernel_table(&program).unwrap();
        let homes = HomeLayout::for_graphs(&[&program.graph], 64);
        let bytes: u64 = program.graph.value_ids().map(|id| program.graph.value(id).ty.bytes()).sum();
        let links = Links::new(1e6, 1e6, 1e6);
        let budgets = Budgets { device: Some(homes.extent() + bytes / 20), host: None, disk: None };
        let options = Options { min_offload: 0, alignment: 64, state: State::Device, ..Options::default() };
        let problem =
            Problem { program: &program, kernels: &kernels, links, homes: &homes, budgets, options, encoded: None };
        let timed = |_| {
            let started = Instant::now();
            let bound = step_time_bound(&problem);
            (started.elapsed(), bound)
        };
        let (taken, bound) = (0..3).map(timed).min_by_key(|timed| timed.0).unwrap();
        println!("{layers} layers, {} steps: {taken:?}, {bound:?}", program.n_steps());
        assert!(bound.seconds > bound.kernel_seconds);
        taken
    };
    let body = move || {
        let (half, whole) = (time(5_000), time(10_000));
        let limit = if cfg!(debug_assertions) { 4 } else { 1 };
        assert!(whole < Duration::from_secs(limit), "{whole:?}");
        assert!(whole < half * 4 + Duration::from_millis(100), "{half:?} for half of {whole:?}");
    };
    std::thread::Builder::new().stack_size(STACK).spawn(body).unwrap().join().unwrap();
}
