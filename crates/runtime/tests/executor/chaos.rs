//! Any legal interleaving gives the same bits; an illegal schedule is caught by some.

use crate::net::{fill, kept, load, offloaded, program, train};
use crate::writer::Writer;
use std::sync::Arc;
use vdnn_graph::op::{Concat, Conv2d, Split};
use vdnn_graph::{Graph, InPlace, Op, Program};
use vdnn_runtime::{ChaosDevice, CpuDevice, Device, DeviceError};
use vdnn_schedule::{Action, Schedule, Space};
use vdnn_tensor::{DType, TensorType};

const SEEDS: std::ops::Range<u64> = 0..200;

#[test]
fn two_hundred_interleavings_one_result() {
    let program = program();
    let (mut executor, id) = load(CpuDevice::new().unwrap(), kept(&program)).unwrap();
    let expected = train(&mut executor, id, 2).unwrap();
    for seed in SEEDS {
        let (mut executor, id) = load(ChaosDevice::new(seed), offloaded(&program)).unwrap();
        assert_eq!(train(&mut executor, id, 2).unwrap(), expected, "seed {seed}");
    }
}

#[test]
fn a_seed_is_one_interleaving() {
    // Without its first wait the result depends on the interleaving, and on nothing else.
    let program = program();
    let outcome = |seed| run(seed, &program, without_wait(&offloaded(&program).1, 0));
    let outcomes: Vec<_> = SEEDS.map(outcome).collect();
    assert_eq!(SEEDS.map(outcome).collect::<Vec<_>>(), outcomes);
    let distinct: std::collections::BTreeSet<_> = outcomes.iter().collect();
    assert!(distinct.len() > 2, "{} outcomes", distinct.len());
}

/// Bits, or the error's text.
fn run(seed: u64, program: &Arc<Program>, schedule: Schedule) -> Result<Vec<u8>, String> {
    let (mut executor, id) =
        load(ChaosDevice::new(seed), (Arc::clone(program), schedule)).map_err(|e| e.to_string())?;
    train(&mut executor, id, 1).map_err(|error| error.to_string())
}

fn without_wait(schedule: &Schedule, number: usize) -> Schedule {
    let is_wait = |at: &usize| matches!(schedule.commands[*at].action, Action::Wait(_));
    let at = (0..schedule.commands.len()).filter(is_wait).nth(number).unwrap();
    let mut schedule = schedule.clone();
    schedule.commands.remove(at);
    schedule
}

/// Cases B33, B34, B36: each wait left out in turn. Some seed sees other bits, a poison or a conflict.
#[test]
fn every_missing_wait_is_caught() {
    let program = program();
    let schedule = offloaded(&program).1;
    let expected = run(0, &program, schedule.clone()).unwrap();
    for number in 0..4 {
        let outcomes: Vec<_> = SEEDS.map(|seed| run(seed, &program, without_wait(&schedule, number))).collect();
        let conflicts = outcomes.iter().filter(|o| o.as_ref().is_err_and(|e| e.contains("the same bytes"))).count();
        let other_bits = outcomes.iter().filter(|o| o.as_ref().is_ok_and(|bits| *bits != expected)).count();
        assert!(conflicts > 0, "wait {number}: no conflict in {SEEDS:?}");
        assert!(other_bits > 0, "wait {number}: no other bits in {SEEDS:?}");
    }
}

/// Case B33: the block goes back before its copy is done.
#[test]
fn a_free_before_its_offload_is_done_is_caught() {
    let program = program();
    let mut schedule = offloaded(&program).1;
    let is_free = |action: &Action| matches!(action, Action::Free(_));
    let free = schedule.commands.iter().position(|command| is_free(&command.action)).unwrap();
    let command = schedule.commands.remove(free);
    // Two commands earlier: before the wait for the offload.
    schedule.commands.insert(free - 2, command);
    let expected = run(0, &program, offloaded(&program).1).unwrap();
    assert!(SEEDS.map(|seed| run(seed, &program, schedule.clone())).any(|outcome| outcome != Ok(expected.clone())));
}

#[test]
fn a_lost_record_is_a_deadlock_that_names_the_wait() {
    let program = program();
    let mut schedule = offloaded(&program).1;
    schedule.commands.retain(|command| !matches!(command.action, Action::Record(id) if id.index() == 2));
    let (mut executor, id) = load(ChaosDevice::new(1), (program, schedule)).unwrap();
    let error = executor.run(id).unwrap_err();
    assert!(matches!(&error, DeviceError::Deadlock { waiting } if waiting.contains("wait loss computed")), "{error}");
}

/// Values that are read before anything wrote them are poison, never a lucky zero.
#[test]
fn unwritten_bytes_are_poison() {
    let (program, mut schedule) = kept(&program());
    let name = |schedule: &Schedule, action: &Action| match action {
        Action::Launch { node, .. } => schedule.nodes[node.index()].clone(),
        _ => String::new(),
    };
    let at = schedule.commands.iter().position(|command| name(&schedule, &command.action) == "e").unwrap();
    schedule.commands.remove(at);
    let loss = run(5, &program, schedule).unwrap();
    assert!(f32::from_le_bytes(loss[..4].try_into().unwrap()).is_nan());
}

/// Poison spares the homes of every schedule of a run, not only of the one that runs.
#[test]
fn schedules_take_turns_on_the_same_weights() {
    let program = program();
    let pair = [kept(&program), offloaded(&program)].map(|(program, schedule)| (program, Arc::new(schedule)));
    let turns = |device: Box<dyn Device>, order: [usize; 4]| {
        let (mut executor, ids) = vdnn_runtime::Executor::with_schedules(device, &pair).unwrap();
        fill(&mut executor, ids[0]).unwrap();
        order.map(|turn| train(&mut executor, ids[turn], 1).unwrap())
    };
    let expected = turns(Box::new(CpuDevice::new().unwrap()), [0, 0, 0, 0]);
    assert_eq!(turns(Box::new(CpuDevice::new().unwrap()), [0, 1, 1, 0]), expected);
    for seed in 0..20 {
        assert_eq!(turns(Box::new(ChaosDevice::new(seed)), [1, 0, 0, 1]), expected, "seed {seed}");
    }
}

const CONV: Conv2d = Conv2d { stride: [1; 2], padding: [0; 2], dilation: [1; 2], groups: 1 };

/// `image → a, b (1×1 convolutions) → concat = z → split = p, q → relu(p) over p, relu(q) over q → concat = y`,
/// and `twice = concat(image, image)`. All of z's parts lie inside it, as slices.
fn branches(in_place: InPlace) -> Arc<Program> {
    let f32s = |shape: [u64; 4]| TensorType::new(shape, DType::F32);
    let mut g = Graph::new("branches");
    let image = g.input("image", f32s([3, 2, 2, 2])).unwrap();
    let w1 = g.parameter("w1", f32s([3, 2, 1, 1])).unwrap();
    let w2 = g.parameter("w2", f32s([5, 2, 1, 1])).unwrap();
    let w3 = g.parameter("w3", f32s([12, 8, 1, 1])).unwrap();
    let a = g.push("a", Op::Conv2d(CONV), &[image, w1]).unwrap()[0];
    let b = g.push("b", Op::Conv2d(CONV), &[image, w2]).unwrap()[0];
    let z = g.push("z", Op::Concat(Concat::default()), &[a, b]).unwrap()[0];
    let parts = g.push("s", Op::Split(Split::channels(vec![6, 2])), &[z]).unwrap();
    let p = g.push("p", Op::Relu, &[parts[0]]).unwrap()[0];
    let q = g.push("q", Op::Relu, &[parts[1]]).unwrap()[0];
    let y = g.push("y", Op::Concat(Concat::default()), &[q, p]).unwrap()[0];
    let c = g.push("c", Op::Conv2d(CONV), &[y, w3]).unwrap()[0];
    let twice = g.push("twice", Op::Concat(Concat::default()), &[c, c]).unwrap()[0];
    let out = g.state("out", g.value(twice).ty.clone()).unwrap();
    let _ = out;
    Arc::new(Program::linearize(g, in_place).unwrap())
}

/// Runs the branches and reads every value of `twice` from the device arena.
fn run_branches(device: Box<dyn Device>, in_place: InPlace) -> Vec<u8> {
    let program = branches(in_place);
    let mut w = Writer::new(&program);
    let roots: std::collections::BTreeSet<_> = program.graph.value_ids().map(|id| program.aliases.root(id)).collect();
    for root in roots.into_iter().filter(|&root| program.graph.value(root).producer.is_some()) {
        let name = program.graph.value(root).name.clone();
        w.alloc(&name, w.end(Space::Device));
    }
    for node in program.graph.nodes() {
        w.launch(&node.name);
    }
    let twice = w.region(w.value("twice"));
    let (_, schedule) = w.done();
    let (offset, len) = (schedule.address(&twice), twice.bytes() as usize);
    let (mut executor, ids) = vdnn_runtime::Executor::with_schedules(device, &[(program, Arc::new(schedule))]).unwrap();
    let mut random = vdnn_tensor::Philox::new(9, 9);
    for name in ["image", "w1", "w2", "w3"] {
        let values = (0..executor.home_bytes(ids[0], name).unwrap() / 4)
            .flat_map(|_| (random.uniform() - 0.5).to_le_bytes())
            .collect::<Vec<_>>();
        executor.write(ids[0], name, &values).unwrap();
    }
    executor.run(ids[0]).unwrap();
    let mut bytes = vec![0; len];
    executor.device_mut().read(Space::Device, offset, &mut bytes).unwrap();
    bytes
}

/// Concat slices, split parts, in-place results on slices and the same value concatenated twice.
#[test]
fn shared_bytes_give_the_bits_of_bytes_apart() {
    let expected = run_branches(Box::new(CpuDevice::new().unwrap()), InPlace::PersistentsOnly);
    assert!(expected.iter().any(|&byte| byte != 0));
    assert_eq!(run_branches(Box::new(CpuDevice::new().unwrap()), InPlace::Allowed), expected);
    for seed in 0..20 {
        assert_eq!(run_branches(Box::new(ChaosDevice::new(seed)), InPlace::Allowed), expected, "seed {seed}");
    }
}
