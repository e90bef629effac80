//! Every network of the zoo under every policy on a modelled machine: planned, compiled and checked.

use std::sync::Arc;
use vdnn_autograd::{Optimizer, UpdateAt};
use vdnn_graph::Program;
use vdnn_graph::op::Sgd;
use vdnn_layers::Mode;
use vdnn_memory::{HomeLayout, Options, Prefetch, State, Sync, policies};
use vdnn_models::Options as ModelOptions;
use vdnn_schedule::{Action, Cause, Command, Direction, Space};
use vdnn_sim::Machine;
use vdnn_train::{Optimization, Settings, Subject, TrainError, plan, program};

fn sgd() -> Optimization {
    let sgd = Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 0.0, nesterov: false };
    Optimization { optimizer: Optimizer::Sgd(sgd), update_at: UpdateAt::Layer, decay_vectors: true }
}

fn training_program(model: &str, batch: u64) -> Program {
    let build = |batch_size: u64, mode: Mode| {
        let options = ModelOptions { batch_size, mode, ..ModelOptions::default() };
        vdnn_models::build(model, &options).map_err(Into::into)
    };
    let net = program::network(&build, batch, Mode::Train).unwrap();
    program::training(net, &sgd()).unwrap()
}

fn plan_all(model: &str, batch: u64, options: Options) {
    let machine = Machine::named("titan-x").unwrap();
    let program = Arc::new(training_program(model, batch));
    let kernels = machine.kernel_table(&program).unwrap();
    let homes = HomeLayout::for_graphs(&[&program.graph], 256);
    for entry in policies::REGISTRY {
        let settings = Settings { options, ..Settings::new(policies::find(entry.name).unwrap(), machine.links()) };
        let started = std::time::Instant::now();
        let planned = plan::plan(Subject::new(Arc::clone(&program), kernels.clone()), &homes, &settings)
            .unwrap_or_else(|error| panic!("{model} {}: {error}", entry.name));
        println!(
            "{model} {} peak {} host {} commands {} in {:?}",
            entry.name,
            planned.schedule.peak_bytes(Space::Device),
            planned.schedule.peak_bytes(Space::Host),
            planned.schedule.commands.len(),
            started.elapsed()
        );
    }
}

#[test]
fn small_networks_under_all_options() {
    for prefetch in [Prefetch::Paper, Prefetch::Lookahead(2), Prefetch::Cost] {
        for sync in [Sync::PerLayer, Sync::Events] {
            let options = Options { prefetch, sync, min_offload: 0, memory_optimal_workspace: 0, ..Options::default() };
            for model in ["vgg-small", "resnet-small"] {
                plan_all(model, 8, options);
            }
        }
    }
}

#[test]
fn the_papers_networks() {
    for model in ["alexnet", "googlenet", "vgg16", "resnet50", "densenet121", "vgg-116"] {
        plan_all(model, 16, Options { memory_optimal_workspace: 0, ..Options::default() });
    }
}

/// All parameters and states away between their uses, within three quarters of what keeping them needs.
#[test]
fn networks_whose_state_streams() {
    let machine = Machine::named("titan-x").unwrap();
    for (model, batch) in [("alexnet", 16), ("googlenet", 16), ("vgg16", 16), ("resnet50", 16), ("densenet121", 8)] {
        let program = Arc::new(training_program(model, batch));
        let subject = Subject::priced(Arc::clone(&program), true, |program| {
            Ok::<_, TrainError>(machine.kernel_table(program).unwrap())
        });
        let subject = subject.unwrap();
        let at_home = HomeLayout::for_graphs(&[&program.graph], 256);
        let mut settings = Settings::new(policies::find("none").unwrap(), machine.links());
        settings.options.memory_optimal_workspace = 0;
        let kept = plan::plan(subject.clone(), &at_home, &settings).unwrap();
        settings.options.state = State::Host;
        settings.budgets.device = Some(kept.schedule.peak_bytes(Space::Device) / 4 * 3);
        let homes = plan::layout(&[&program.graph], &settings.options);
        for name in ["all", "dyn", "hybrid"] {
            settings.policy = policies::find(name).unwrap();
            let planned = plan::plan(subject.clone(), &homes, &settings)
                .unwrap_or_else(|error| panic!("{model} {name}: {error}"));
            let bytes = planned.streamed_bytes();
            assert!(bytes > 0 && planned.schedule.transfer_bytes(Direction::Prefetch) >= bytes, "{model} {name}");
            assert!(planned.schedule.peak_bytes(Space::Host) >= bytes, "{model} {name}");
        }
    }
}

/// One stream brings bytes back, so a copy that queued behind one needed later would stall the kernels.
#[test]
fn bytes_come_back_in_the_order_of_need() {
    let machine = Machine::named("titan-x").unwrap();
    let program = Arc::new(training_program("vgg16", 128));
    let kernels = machine.kernel_table(&program).unwrap();
    let homes = HomeLayout::for_graphs(&[&program.graph], 256);
    for name in ["conv", "all", "conv-m", "all-m"] {
        let settings = Settings::new(policies::find(name).unwrap(), machine.links());
        let planned = plan::plan(Subject::new(Arc::clone(&program), kernels.clone()), &homes, &settings).unwrap();
        let needs: Vec<u32> = planned.schedule.commands.iter().filter_map(need_of_prefetch).collect();
        assert!(needs.len() > 5 && needs.is_sorted(), "{name}: {needs:?}");
    }
}

fn need_of_prefetch(command: &Command) -> Option<u32> {
    match (&command.action, command.because) {
        (Action::Transfer { direction: Direction::Prefetch, .. }, Cause::For(step)) => Some(step.0),
        _ => None,
    }
}
