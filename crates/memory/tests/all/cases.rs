//! Cases from the field: recomputation with statistics (B15) and dropout (B29), values with several users (B31), batches of
//! several sizes in one run (B41).

use crate::iteration::{Iteration, State, differences, number, options, sgd};
use std::sync::Arc;
use vdnn_autograd::UpdateAt;
use vdnn_graph::{NodeId, Phase, Program, Use, ValueId};
use vdnn_layers::{
    BatchNorm2d, Conv2d, Dropout, Flatten, Layer, Linear, MaxPool2d, Mode, Net, NetOptions, Relu, Reuse, add, concat,
};
use vdnn_memory::{
    Allocation, HomeLayout, Liveness, MemoryPlan, Options, PlanError, Problem, Residency, Sync, compile_with_policy,
    policies,
};
use vdnn_runtime::{ChaosDevice, CpuDevice, Device, Executor, ScheduleId};
use vdnn_schedule::{Action, Direction, Schedule, Space};

/// A network without layers yet.
pub fn net(batch_size: u64, mode: Mode, image: [u64; 3]) -> Net {
    Net::new("case", &NetOptions { batch_size, image, mode, seed: 3, ..NetOptions::default() }).unwrap()
}

/// A linear layer to three classes, and the loss.
pub fn classify(net: &mut Net, x: ValueId) {
    let x = Flatten.push(net, "flatten", x).unwrap();
    let features = net.channels(x);
    let x = Linear::new(features, 3).push(net, "fc", x).unwrap();
    net.classify(x, 0.0).unwrap();
}

/// Runs the named forward nodes again right before the first backward step that reads what they make, and drops all of it
/// from its last use in forward until then.
pub fn recomputed(program: &Program, names: &[&str]) -> MemoryPlan {
    let graph = &program.graph;
    let find = |name: &&str| NodeId(graph.nodes().iter().position(|node| node.name == *name).unwrap() as u32);
    let nodes: Vec<NodeId> = names.iter().map(find).collect();
    let roots: Vec<ValueId> =
        nodes.iter().flat_map(|&id| &graph.node(id).outputs).map(|&id| program.aliases.root(id)).collect();
    let needs = |id: &NodeId| {
        let node = graph.node(*id);
        node.phase == Phase::Backward && node.inputs.iter().any(|&id| roots.contains(&program.aliases.root(id)))
    };
    let at = program.order.iter().position(needs).unwrap();
    let mut plan = MemoryPlan::keep_all(program);
    plan.order.splice(at..at, nodes.iter().map(|&node| Use { node, run: 1 }));
    let liveness = Liveness::analyse(program, &plan.order);
    for root in roots {
        for gap in liveness.gaps(root).filter(|gap| gap.to.writes && !gap.to.reads) {
            let ends = plan.order[gap.to.step.index()];
            if ends.run == 1 {
                plan.gaps.insert((root, ends), Residency::Drop);
            }
        }
    }
    assert!(!plan.gaps.is_empty());
    plan
}

/// Launches of later runs.
pub fn recomputed_launches(schedule: &Schedule) -> usize {
    schedule.commands.iter().filter(|c| matches!(c.action, Action::Launch { run, .. } if run > 0)).count()
}

/// Equal bits of a plan and of keeping everything, on the CPU and under some interleavings.
pub fn same_as_kept(iteration: &Iteration, plan: &MemoryPlan) -> State {
    let kept = iteration.checked(options(), &iteration.kept(plan));
    let expected = iteration.run_on_cpu(&kept, 2);
    for sync in [Sync::Events, Sync::PerLayer] {
        let schedule = iteration.checked(Options { sync, ..options() }, plan);
        assert!(differences(&iteration.run_on_cpu(&schedule, 2), &expected).is_empty());
        for seed in 0..8 {
            let found = iteration.run(Box::new(ChaosDevice::new(seed)), &schedule, 2).unwrap();
            assert_eq!(differences(&found, &expected), Vec::<String>::new(), "{sync:?}, seed {seed}");
        }
    }
    expected
}

/// One channel, batch [1, 2, 3, 4]: what batch norm's running statistics become in one step.
fn statistics_after_one_step(iteration: &Iteration, plan: &MemoryPlan) -> (f32, f32) {
    let schedule = iteration.checked(options(), plan);
    let device: Box<dyn Device> = Box::new(CpuDevice::with_threads(1).unwrap());
    let pair = (Arc::clone(&iteration.program), Arc::clone(&schedule));
    let (mut executor, ids) = Executor::with_schedules(device, &[pair]).unwrap();
    iteration.start(&mut executor, ids[0]).unwrap();
    let batch: Vec<u8> = [1f32, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    executor.write(ids[0], "image", &batch).unwrap();
    executor.write(ids[0], "label", &[0; 16]).unwrap();
    executor.write(ids[0], "learning_rate", &0.1f32.to_le_bytes()).unwrap();
    executor.write(ids[0], "iteration", &[0; 8]).unwrap();
    executor.run(ids[0]).unwrap();
    let state = iteration.state(&mut executor, ids[0]).unwrap();
    (number(&state, "bn.running_mean"), number(&state, "bn.running_var"))
}

/// Case B15: statistics move once an iteration, whatever is recomputed; a forward pass alone moves them too.
#[test]
fn b15_recomputed_batch_norm_updates_its_statistics_once() {
    let build = || {
        let mut net = net(4, Mode::Train, [1, 1, 1]);
        let image = net.image();
        let x = BatchNorm2d::new(1).push(&mut net, "bn", image).unwrap();
        let x = Relu.push(&mut net, "relu", x).unwrap();
        classify(&mut net, x);
        net
    };
    let training = Iteration::training(build(), sgd(0.9), UpdateAt::Layer);
    let again = recomputed(&training.program, &["bn.stats", "bn", "relu"]);
    let forward = Iteration::forward(build());
    let kept = MemoryPlan::keep_all(&training.program);
    let runs = [
        statistics_after_one_step(&training, &kept),
        statistics_after_one_step(&training, &again),
        statistics_after_one_step(&forward, &MemoryPlan::keep_all(&forward.program)),
    ];
    for (mean, variance) in runs {
        assert!((mean - 0.25).abs() < 1e-6, "running mean {mean}");
        assert!((variance - 1.066_666_7).abs() < 1e-6, "running variance {variance}");
    }
    same_as_kept(&training, &again);
    let twice = MemoryPlan { order: with_update_again(&training.program, &again), ..again };
    match training.compile(options(), &twice) {
        Err(PlanError::IllegalPlan { reason }) => assert!(reason.contains("bn.update"), "{reason}"),
        other => panic!("an effect that runs twice must be refused, got {other:?}"),
    }
}

fn with_update_again(program: &Program, plan: &MemoryPlan) -> Vec<Use> {
    let update = program.graph.nodes().iter().position(|node| node.name == "bn.update").unwrap();
    let mut order = plan.order.clone();
    order.push(Use { node: NodeId(update as u32), run: 1 });
    order
}

/// Case B29: a recomputed dropout drops the same elements, and other ones in the next iteration.
#[test]
fn b29_recomputed_dropout_has_the_same_mask() {
    let mut net = net(4, Mode::Train, [2, 6, 6]);
    let image = net.image();
    let x = Conv2d::new(2, 4, 3).padding(1).push(&mut net, "conv1", image).unwrap();
    let x = Relu.push(&mut net, "relu1", x).unwrap();
    let x = Dropout(0.5).push(&mut net, "dropout", x).unwrap();
    let x = Conv2d::new(4, 4, 3).padding(1).push(&mut net, "conv2", x).unwrap();
    classify(&mut net, x);
    let iteration = Iteration::training(net, sgd(0.9), UpdateAt::Layer);
    let plan = recomputed(&iteration.program, &["conv1", "relu1", "dropout"]);
    let schedule = iteration.checked(options(), &plan);
    assert_eq!(recomputed_launches(&schedule), 3);
    same_as_kept(&iteration, &plan);
    // The same batch and weights in two iterations: only the mask differs.
    let device: Box<dyn Device> = Box::new(CpuDevice::with_threads(1).unwrap());
    let (mut executor, ids) = Executor::with_schedules(device, &[(Arc::clone(&iteration.program), schedule)]).unwrap();
    let mut loss_of = |counter: u64| {
        iteration.start(&mut executor, ids[0]).unwrap();
        iteration.iterate(&mut executor, ids[0], 0).unwrap();
        iteration.start(&mut executor, ids[0]).unwrap();
        executor.write(ids[0], "iteration", &counter.to_le_bytes()).unwrap();
        executor.run(ids[0]).unwrap();
        number(&iteration.state(&mut executor, ids[0]).unwrap(), "loss")
    };
    assert_eq!(loss_of(5).to_bits(), loss_of(5).to_bits());
    assert_ne!(loss_of(5).to_bits(), loss_of(6).to_bits());
}

/// A residual block whose input goes to a convolution and to the sum, a branch that nobody reads, a module called twice.
pub fn forked(batch_size: u64, mode: Mode) -> Net {
    let mut net = net(batch_size, mode, [2, 8, 8]);
    let image = net.image();
    let conv = || Conv2d::new(4, 4, 3).padding(1);
    let x = Conv2d::new(2, 4, 3).padding(1).push(&mut net, "stem", image).unwrap();
    let x = BatchNorm2d::new(4).push(&mut net, "bn", x).unwrap();
    let y = conv().push(&mut net, "conv", x).unwrap();
    let unused = conv().push(&mut net, "unused", x).unwrap();
    BatchNorm2d::new(4).push(&mut net, "unused_bn", unused).unwrap();
    let y = Relu.push(&mut net, "relu", y).unwrap();
    let x = add(&mut net, "add", x, y).unwrap();
    let x = Relu.push(&mut net, "relu2", x).unwrap();
    let x = Reuse::new(conv(), "conv").push(&mut net, "again", x).unwrap();
    let x = MaxPool2d::new(2, 2).push(&mut net, "pool", x).unwrap();
    classify(&mut net, x);
    net
}

/// Case B31: a value with several users leaves after its last one in forward and is back before its first in backward.
#[test]
fn b31_values_with_several_users_leave_after_the_last() {
    let iteration = Iteration::training(forked(4, Mode::Train), sgd(0.9), UpdateAt::Layer);
    let program = &iteration.program;
    let policy = policies::find("all").unwrap();
    for sync in [Sync::Events, Sync::PerLayer] {
        let options = Options { sync, ..options() };
        let problem = iteration.problem(options, None);
        let (schedule, plan) = compile_with_policy(&problem, policy.as_ref()).unwrap();
        let bn = program.aliases.root(program.graph.find_value("bn").unwrap());
        let liveness = Liveness::analyse(program, &plan.order);
        let forward = |step: vdnn_graph::Step| program.node_at(step).phase == Phase::Forward;
        let uses: Vec<_> = liveness.accesses(bn).iter().map(|access| access.step).collect();
        let last = uses.iter().rev().find(|&&step| forward(step)).unwrap();
        let first = uses.iter().find(|&&step| !forward(step)).unwrap();
        let moved: Vec<_> = plan.gaps.iter().filter(|((root, _), _)| *root == bn).collect();
        let [(_, Residency::Offload { release, fetch, .. })] = moved[..] else { panic!("{moved:?}") };
        assert!(last < release && fetch <= first, "{sync:?}: used until {last:?} and from {first:?}, {moved:?}");
        assert!(vdnn_check::check(&schedule, program).is_empty());
        same_as_kept(&iteration, &plan);
        // Nothing of one iteration is left in the next: every copy that is taken is given back.
        let count = |is: fn(&Action) -> bool| schedule.commands.iter().filter(|c| is(&c.action)).count();
        assert_eq!(count(|a| matches!(a, Action::Alloc(_))), count(|a| matches!(a, Action::Free(_))));
        assert_eq!(schedule.transfer_bytes(Direction::Offload), schedule.transfer_bytes(Direction::Prefetch));
    }
}

/// A value concatenated with itself: one part lies in place, the other is copied from it.
#[test]
fn a_value_concatenated_twice() {
    let mut net = net(4, Mode::Train, [2, 4, 4]);
    let image = net.image();
    let x = Conv2d::new(2, 2, 3).padding(1).push(&mut net, "conv", image).unwrap();
    let x = concat(&mut net, "twice", &[x, x]).unwrap();
    let x = MaxPool2d::new(2, 2).push(&mut net, "pool", x).unwrap();
    let x = Conv2d::new(4, 2, 1).push(&mut net, "last", x).unwrap();
    classify(&mut net, x);
    let iteration = Iteration::training(net, sgd(0.9), UpdateAt::Layer);
    same_as_kept(&iteration, &MemoryPlan::keep_all(&iteration.program));
    let policy = policies::find("all").unwrap();
    let plan = policy.plan(&iteration.problem(options(), None)).unwrap();
    assert!(!plan.gaps.is_empty());
    same_as_kept(&iteration, &plan);
}

/// One program of a run with several: its schedule and what it is fed.
struct Part {
    iteration: Iteration,
    schedule: Arc<Schedule>,
}

fn part(mut iteration: Iteration, homes: &HomeLayout, policy: &str) -> Part {
    iteration.homes = homes.clone();
    let policy = policies::find(policy).unwrap();
    let problem = Problem { homes, ..iteration.problem(options(), None) };
    let (schedule, _) = compile_with_policy(&problem, policy.as_ref()).unwrap();
    assert!(vdnn_check::check(&schedule, &iteration.program).is_empty());
    Part { schedule: Arc::new(schedule), iteration }
}

fn programs() -> [Iteration; 3] {
    let training = |batch| Iteration::training(forked(batch, Mode::Train), sgd(0.9), UpdateAt::Layer);
    [training(6), training(2), Iteration::forward(forked(7, Mode::Eval))]
}

/// Case B41: full, partial, evaluation, full again on shared homes; the same as each size by itself, unscheduled.
#[test]
fn b41_batches_of_other_sizes_share_homes() {
    let [full, partial, eval] = programs();
    let graphs = [&full.program.graph, &partial.program.graph, &eval.program.graph];
    let homes = HomeLayout::for_graphs(&graphs, 256);
    let parts = [full, partial, eval].map(|iteration| part(iteration, &homes, "all"));
    let runs: Vec<_> = parts.iter().map(|part| (&*part.schedule, &*part.iteration.program)).collect();
    assert_eq!(vdnn_check::sequence(&runs), vec![]);
    let pairs: Vec<_> =
        parts.iter().map(|part| (Arc::clone(&part.iteration.program), Arc::clone(&part.schedule))).collect();
    for device in [Box::new(ChaosDevice::new(41)) as Box<dyn Device>, Box::new(CpuDevice::new().unwrap())] {
        let (mut executor, ids) = Executor::with_schedules(device, &pairs).unwrap();
        parts[0].iteration.start(&mut executor, ids[0]).unwrap();
        let mut carried: Option<State> = None;
        for (iteration, which) in [0, 1, 2, 0, 2, 1, 0].into_iter().enumerate() {
            let (part, id) = (&parts[which], ids[which]);
            part.iteration.iterate(&mut executor, id, iteration as u64).unwrap();
            let found = part.iteration.state(&mut executor, id).unwrap();
            let expected = alone(which, iteration as u64, carried.as_ref());
            assert_eq!(differences(&found, &expected), Vec::<String>::new(), "iteration {iteration}");
            carried = Some(merged(carried, found));
        }
    }
    // What lasts lies at the same addresses in all three.
    let homes_end = |part: &Part| part.schedule.peak_bytes(Space::Device) > homes.extent();
    assert!(parts.iter().all(homes_end));
}

/// One iteration of one size by itself, keeping everything, from a state carried over by hand.
fn alone(which: usize, iteration: u64, from: Option<&State>) -> State {
    let program = programs().into_iter().nth(which).unwrap();
    let plan = MemoryPlan { allocation: Allocation::Liveness, ..MemoryPlan::keep_all(&program.program) };
    let schedule = program.checked(options(), &plan);
    let device: Box<dyn Device> = Box::new(CpuDevice::with_threads(1).unwrap());
    let (mut executor, ids): (_, Vec<ScheduleId>) =
        Executor::with_schedules(device, &[(Arc::clone(&program.program), schedule)]).unwrap();
    program.start(&mut executor, ids[0]).unwrap();
    for (name, bytes) in from.into_iter().flatten() {
        let metric = name == "loss" || name == "accuracy";
        if !metric && executor.home_bytes(ids[0], name).is_ok() {
            executor.write(ids[0], name, bytes).unwrap();
        }
    }
    program.iterate(&mut executor, ids[0], iteration).unwrap();
    program.state(&mut executor, ids[0]).unwrap()
}

/// The newest of every entry; evaluation knows no momentum.
fn merged(old: Option<State>, new: State) -> State {
    let mut state = old.unwrap_or_default();
    state.retain(|(name, _)| new.iter().all(|(newer, _)| newer != name));
    state.extend(new);
    state
}
