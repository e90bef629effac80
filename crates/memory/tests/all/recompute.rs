//! `recompute`: which nodes run again, when, how often, and what is dropped; that the result is a plan like any other; and
//! what cannot be made again.
//!
//! Orders are written as names, later runs with as many primes.

use crate::cases::{classify, net, recomputed_launches, same_as_kept};
use crate::iteration::{Iteration, differences, options, sgd};
use crate::network::random_network;
use crate::plan::is_faithful;
use crate::random::Random;
use expect_test::{Expect, expect};
use std::collections::BTreeMap;
use vdnn_autograd::UpdateAt;
use vdnn_graph::op::{BatchNorm, BatchNormUpdate, Conv2d as Conv2dOp, Sgd};
use vdnn_graph::{Graph, InPlace, LayerId, Op, Phase, Program, Role, ValueId};
use vdnn_layers::{
    AvgPool2d, BatchNorm2d, Conv2d, Dropout, Flatten, Layer, Linear, MaxPool2d, Mode, Net, Relu, add, concat,
};
use vdnn_memory::{Forget, Liveness, MemoryPlan, NotRepeatable, Recomputation, Residency, recompute};
use vdnn_runtime::ChaosDevice;
use vdnn_tensor::{DType, TensorType};

fn train(net: Net) -> Iteration {
    Iteration::training(net, sgd(0.9), UpdateAt::Layer)
}

fn root(program: &Program, name: &str) -> ValueId {
    program.aliases.root(program.graph.find_value(name).unwrap_or_else(|| panic!("no value {name}")))
}

/// The storages that hold the named values, forgotten once.
fn forgotten(program: &Program, names: &[&str]) -> BTreeMap<ValueId, Forget> {
    names.iter().map(|name| (root(program, name), Forget::Once)).collect()
}

/// Every storage of a feature map that is read in backward, except those of the named values.
fn all_but(program: &Program, kept: &[&str]) -> BTreeMap<ValueId, Forget> {
    let liveness = Liveness::analyse(program, &MemoryPlan::keep_all(program).order);
    let last = |id: ValueId| liveness.accesses(id).last().unwrap().step;
    let crosses = |id: ValueId| program.node_at(last(id)).phase != Phase::Forward;
    let of = |id: &&ValueId| program.graph.value(**id).role == Role::FeatureMap && crosses(**id);
    let kept: Vec<ValueId> = kept.iter().map(|name| root(program, name)).collect();
    liveness.roots().iter().filter(of).filter(|id| !kept.contains(id)).map(|&id| (id, Forget::Once)).collect()
}

/// Later runs, and the step of the plain order each group of them comes before.
fn text(program: &Program, made: &Recomputation) -> String {
    let mut text = String::new();
    for u in &made.order {
        let name = &program.graph.node(u.node).name;
        if u.run > 0 {
            text.push_str(&format!("{name}{} ", "'".repeat(usize::from(u.run))));
        } else if !text.is_empty() && !text.ends_with('\n') {
            text.push_str(&format!("| {name}\n"));
        }
    }
    let drops = made.drops.iter().map(|((value, u), residency)| {
        assert_eq!(*residency, Residency::Drop);
        let (value, node) = (&program.graph.value(*value).name, &program.graph.node(u.node).name);
        format!("{value} until {node}{}", "'".repeat(usize::from(u.run)))
    });
    text + "drop " + &drops.collect::<Vec<_>>().join(", ")
}

/// Runs, drops and bits of making storages again.
fn check(iteration: &Iteration, forgotten: &BTreeMap<ValueId, Forget>, expected: &Expect) {
    let program = &iteration.program;
    let made = recompute(program, forgotten).unwrap();
    expected.assert_eq(&text(program, &made));
    assert_eq!(made, recompute(program, forgotten).unwrap(), "a pure function");
    let later = made.order.len() - program.order.len();
    let plain: Vec<_> = made.order.iter().filter(|u| u.run == 0).map(|u| u.node).collect();
    assert_eq!(plain, program.order, "first runs stay in order");
    let plan = plan_of(program, made);
    assert!(is_faithful(program, &plan));
    // Every drop frees its bytes for at least a step: it covers the gap between forward and the rewriting.
    let liveness = Liveness::analyse(program, &plan.order);
    for (id, u) in plan.gaps.keys() {
        let gap = liveness.gaps(*id).find(|gap| plan.order[gap.to.step.index()] == *u).unwrap();
        assert!(gap.to.writes && !gap.to.reads, "{gap:?}");
    }
    assert_eq!(recomputed_launches(&iteration.checked(options(), &plan)), later);
    same_as_kept(iteration, &plan);
}

fn plan_of(program: &Program, made: Recomputation) -> MemoryPlan {
    MemoryPlan { order: made.order, gaps: made.drops, ..MemoryPlan::keep_all(program) }
}

fn conv(from: u64, to: u64) -> Conv2d {
    Conv2d::new(from, to, 3).padding(1)
}

/// Convolutions with ReLUs in place: three storages of two nodes each.
fn chain() -> Iteration {
    let mut net = net(2, Mode::Train, [2, 6, 6]);
    let mut x = net.image();
    for (i, channels) in [2, 3, 3].into_iter().enumerate() {
        x = conv(channels, 3).push(&mut net, &format!("conv{}", i + 1), x).unwrap();
        x = Relu.push(&mut net, &format!("relu{}", i + 1), x).unwrap();
    }
    classify(&mut net, x);
    train(net)
}

#[test]
fn a_chain_is_made_again_from_what_is_there() {
    let chain = chain();
    let program = &chain.program;
    check(
        &chain,
        &forgotten(program, &["relu1"]),
        &expect![[r#"
        conv1' relu1' | conv2.weight_grad
        drop conv1 until conv1'"#]],
    );
    check(
        &chain,
        &forgotten(program, &["relu1", "relu2"]),
        &expect![[r#"
        conv1' relu1' conv2' relu2' | conv3.weight_grad
        drop conv1 until conv1', conv2 until conv2'"#]],
    );
    check(&chain, &BTreeMap::new(), &expect!["drop "]);
}

/// Both nodes of a storage that is written twice run again, though only the second one's value is read.
#[test]
fn a_relu_in_place_runs_again_with_what_it_overwrites() {
    let chain = chain();
    let made = recompute(&chain.program, &forgotten(&chain.program, &["relu2"])).unwrap();
    let again: Vec<&str> =
        made.order.iter().filter(|u| u.run > 0).map(|u| &*chain.program.graph.node(u.node).name).collect();
    assert_eq!(again, ["conv2", "relu2"]);
    // One drop, at the first of the two: the second writes over what the first wrote.
    assert_eq!(made.drops.len(), 1);
    assert_eq!(chain.program.graph.node(made.drops.keys().next().unwrap().1.node).name, "conv2");
}

/// Forgotten after each use: once for the weight gradient that reads the value, once for the ReLU's own backward.
#[test]
fn what_is_forgotten_after_each_use_is_made_for_each() {
    let chain = chain();
    let each = [(root(&chain.program, "relu1"), Forget::AfterEachUse)].into();
    check(
        &chain,
        &each,
        &expect![[r#"
        conv1' relu1' | conv2.weight_grad
        conv1'' relu1'' | relu1.data_grad
        drop conv1 until conv1', conv1 until conv1''"#]],
    );
}

/// With patience it waits for uses that are near, and ahead of its first use it is there before other steps than that.
#[test]
fn what_is_made_again_waits_for_near_uses_and_may_be_made_ahead() {
    let chain = chain();
    let program = &chain.program;
    let made = |forget| recompute(program, &[(root(program, "relu1"), forget)].into()).unwrap();
    assert_eq!(made(Forget::WhenIdle(1)), made(Forget::AfterEachUse));
    assert_eq!(made(Forget::WhenIdle(100)), made(Forget::Once));
    let step = |name: &str| program.order.iter().position(|&id| program.graph.node(id).name == name).unwrap() as u32;
    let from = step("conv2.weight_grad") - 1;
    let before = program.graph.node(program.order[from as usize]).name.clone();
    let ahead = [(root(program, "relu1"), Forget::Ahead { from, idle: 100 })].into();
    let text = text(program, &recompute(program, &ahead).unwrap());
    assert!(text.starts_with(&format!("conv1' relu1' | {before}\n")), "{text}");
}

/// Two residual blocks, the second with a convolution on its shortcut.
fn residual() -> Iteration {
    let mut net = net(2, Mode::Train, [2, 6, 6]);
    let image = net.image();
    let x = conv(2, 3).push(&mut net, "stem", image).unwrap();
    let mut x = Relu.push(&mut net, "stem.relu", x).unwrap();
    for (block, channels) in [("a", 3), ("b", 4)] {
        let name = |part: &str| format!("{block}.{part}");
        let from = net.channels(x);
        let y = conv(from, channels).push(&mut net, &name("conv1"), x).unwrap();
        let y = BatchNorm2d::new(channels).push(&mut net, &name("bn1"), y).unwrap();
        let y = Relu.push(&mut net, &name("relu1"), y).unwrap();
        let y = conv(channels, channels).push(&mut net, &name("conv2"), y).unwrap();
        let y = BatchNorm2d::new(channels).push(&mut net, &name("bn2"), y).unwrap();
        let shortcut = match block {
            "a" => x,
            _ => Conv2d::new(from, channels, 1).push(&mut net, &name("shortcut"), x).unwrap(),
        };
        let sum = add(&mut net, &name("add"), y, shortcut).unwrap();
        x = Relu.push(&mut net, &name("relu2"), sum).unwrap();
    }
    classify(&mut net, x);
    train(net)
}

#[test]
fn residual_blocks_are_made_again_from_their_inputs() {
    let residual = residual();
    let program = &residual.program;
    let inside = all_but(program, &["stem.relu", "a.relu2", "b.relu2"]);
    check(
        &residual,
        &inside,
        &expect![[r#"
        fc' | loss.data_grad
        b.conv1' b.bn1' b.relu1' b.conv2' | b.bn2.data_grad
        a.conv1' a.bn1' a.relu1' a.conv2' | a.bn2.data_grad
        drop a.conv1 until a.conv1', a.bn1 until a.bn1', a.conv2 until a.conv2', b.conv1 until b.conv1', b.bn1 until b.bn1', b.conv2 until b.conv2', fc until fc'"#]],
    );
    // A block's own input too: it is made again with its shortcut, through the block before.
    check(
        &residual,
        &all_but(program, &["b.relu2"]),
        &expect![[r#"
        fc' | loss.data_grad
        stem' stem.relu' a.conv1' a.bn1' a.relu1' a.conv2' a.bn2' a.add' a.relu2' | b.shortcut.weight_grad
        b.conv1' b.bn1' b.relu1' b.conv2' | b.bn2.data_grad
        drop stem until stem', a.conv1 until a.conv1', a.bn1 until a.bn1', a.conv2 until a.conv2', a.bn2 until a.bn2', b.conv1 until b.conv1', b.bn1 until b.bn1', b.conv2 until b.conv2', fc until fc'"#]],
    );
}

/// Batch norm again reads the statistics it saved, and never updates the running ones twice.
#[test]
fn batch_norm_is_made_again_from_saved_statistics() {
    let residual = residual();
    let program = &residual.program;
    check(
        &residual,
        &forgotten(program, &["a.bn1"]),
        &expect![[r#"
        a.bn1' a.relu1' | a.conv2.weight_grad
        drop a.bn1 until a.bn1'"#]],
    );
    let made = recompute(program, &all_but(program, &[])).unwrap();
    let effects = made.order.iter().filter(|u| program.graph.node(u.node).op.has_effect());
    assert!(effects.clone().count() > 4);
    assert!(effects.clone().all(|u| u.run == 0));
}

/// Two dense layers: what a concatenation adds lies beside what was there, in one storage.
fn dense() -> Iteration {
    let mut net = net(2, Mode::Train, [2, 5, 5]);
    let image = net.image();
    let mut x = conv(2, 3).push(&mut net, "stem", image).unwrap();
    for layer in ["a", "b"] {
        let name = |part: &str| format!("{layer}.{part}");
        let channels = net.channels(x);
        let y = BatchNorm2d::new(channels).push(&mut net, &name("bn"), x).unwrap();
        let y = Relu.push(&mut net, &name("relu"), y).unwrap();
        let y = conv(channels, 2).push(&mut net, &name("conv"), y).unwrap();
        x = concat(&mut net, &name("concat"), &[x, y]).unwrap();
    }
    let x = MaxPool2d::new(2, 2).push(&mut net, "pool", x).unwrap();
    classify(&mut net, x);
    train(net)
}

#[test]
fn dense_layers_are_made_again_beside_what_was_there() {
    let dense = dense();
    let program = &dense.program;
    assert_eq!(root(program, "stem"), root(program, "b.concat"), "one storage");
    // Inside layers only: the block stays, and no concatenation runs again.
    check(
        &dense,
        &forgotten(program, &["a.bn", "b.bn"]),
        &expect![[r#"
        b.bn' b.relu' | b.conv.weight_grad
        a.bn' a.relu' | a.conv.weight_grad
        drop a.bn until a.bn', b.bn until b.bn'"#]],
    );
    // The block alone, then all of it.
    check(
        &dense,
        &forgotten(program, &["b.concat"]),
        &expect![[r#"
        stem' a.conv' a.concat' b.conv' b.concat' | pool.data_grad
        drop b.concat until stem'"#]],
    );
    check(
        &dense,
        &all_but(program, &[]),
        &expect![[r#"
        stem' a.bn' a.relu' a.conv' a.concat' b.bn' b.relu' b.conv' b.concat' pool' flatten' fc' | loss.data_grad
        drop a.bn until a.bn', b.bn until b.bn', b.concat until stem', pool until pool', fc until fc'"#]],
    );
}

/// A dropout over a flattened value overwrites what it reads under two names. The mask is the same again.
#[test]
fn dropout_over_a_view_is_made_again() {
    let mut net = net(4, Mode::Train, [2, 6, 6]);
    let image = net.image();
    let x = conv(2, 3).push(&mut net, "conv1", image).unwrap();
    let x = AvgPool2d::new(2, 2).push(&mut net, "pool", x).unwrap();
    let x = Flatten.push(&mut net, "flat", x).unwrap();
    let x = Dropout(0.5).push(&mut net, "dropout", x).unwrap();
    let x = Linear::new(27, 5).push(&mut net, "fc1", x).unwrap();
    let x = Relu.push(&mut net, "relu", x).unwrap();
    classify(&mut net, x);
    let iteration = train(net);
    let program = &iteration.program;
    assert_eq!(root(program, "pool"), root(program, "dropout"), "one storage under three names");
    check(
        &iteration,
        &forgotten(program, &["dropout", "relu"]),
        &expect![[r#"
            conv1' pool' flat' dropout' fc1' relu' flatten' | fc.weight_grad
            drop conv1 until conv1', pool until pool', fc1 until fc1'"#]],
    );
}

fn weight() -> TensorType {
    TensorType::new([4, 4, 1, 1], DType::F32)
}

/// A convolution read again in backward, by a stand-in for a gradient, after `between` has changed what lasts.
fn read_late(between: impl FnOnce(&mut Graph, ValueId)) -> (Program, ValueId) {
    let mut graph = Graph::new("late");
    let image = graph.input("image", TensorType::new([2, 4, 3, 3], DType::F32)).unwrap();
    let w = graph.parameter("w", weight()).unwrap();
    let y = graph.push("conv", Op::Conv2d(Conv2dOp::default()), &[image, w]).unwrap()[0];
    graph.push("pool", Op::AdaptiveAvgPool2d(vdnn_graph::op::AdaptiveAvgPool2d { output: [1, 1] }), &[y]).unwrap();
    between(&mut graph, w);
    graph.push_at("gradient", Op::LocalResponseNorm(lrn()), &[y], Phase::Backward, LayerId(0)).unwrap();
    (Program::linearize(graph, InPlace::Allowed).unwrap(), y)
}

fn lrn() -> vdnn_graph::op::LocalResponseNorm {
    vdnn_graph::op::LocalResponseNorm { size: 3, alpha: 1e-4, beta: 0.75, k: 1.0 }
}

/// A weight that was updated in the meantime is gone for good.
#[test]
fn what_was_overwritten_for_good_is_not_made_again() {
    let (program, y) = read_late(|_, _| ());
    assert_eq!(recompute(&program, &[(y, Forget::Once)].into()).unwrap().order.len(), 4);
    let update = |graph: &mut Graph, w: ValueId| {
        let dw = graph.input("dw", weight()).unwrap();
        let rate = graph.input("learning_rate", TensorType::new([1], DType::F32)).unwrap();
        let iteration = graph.input("iteration", TensorType::new([1], DType::U64)).unwrap();
        let plain = Sgd { momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false };
        graph.push_at("sgd", Op::Sgd(plain), &[w, dw, rate, iteration], Phase::Update, LayerId(0)).unwrap();
    };
    let (program, y) = read_late(update);
    let w = root(&program, "w");
    assert_eq!(recompute(&program, &[(y, Forget::Once)].into()), Err(NotRepeatable { root: w }));
    assert!(recompute(&program, &BTreeMap::new()).is_ok());
}

/// What a normalisation reads was made by an effect, which another effect has moved on since.
#[test]
fn an_effect_is_never_repeated() {
    let mut graph = Graph::new("late");
    let channels = || TensorType::new([4], DType::F32);
    let image = graph.input("image", TensorType::new([2, 4, 3, 3], DType::F32)).unwrap();
    let [mean, variance] = ["mean", "variance"].map(|name| graph.state(name, channels()).unwrap());
    let [gamma, beta] = ["gamma", "beta"].map(|name| graph.parameter(name, channels()).unwrap());
    let statistics = graph.push("stats", Op::BatchNormStats, &[image]).unwrap();
    let update = || Op::BatchNormUpdate(BatchNormUpdate { momentum: 0.1, count: 18 });
    let inputs = [statistics[0], statistics[1], mean, variance];
    let first = graph.push("update1", update(), &inputs).unwrap();
    let norm = Op::BatchNorm(BatchNorm { eps: 1e-5 });
    let y = graph.push("norm", norm, &[image, first[0], first[1], gamma, beta]).unwrap()[0];
    graph.push("update2", update(), &[statistics[0], statistics[1], first[0], first[1]]).unwrap();
    graph.push_at("gradient", Op::LocalResponseNorm(lrn()), &[y], Phase::Backward, LayerId(0)).unwrap();
    let program = Program::linearize(graph, InPlace::Allowed).unwrap();
    let refused = recompute(&program, &[(y, Forget::Once)].into()).unwrap_err();
    assert_eq!(refused, NotRepeatable { root: root(&program, "mean") });
}

/// Random networks, random storages forgotten, once or after each use: faithful, compiled, checked, the same bits. With encoded
/// rules the bits of the plain ones.
#[test]
fn random_storages_of_random_networks() {
    let (mut plain, mut encoded) = ([0; 2], [0; 2]);
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let iteration = train(random_network(&mut random));
        plain[one_network(seed, &iteration, &iteration, &mut random)] += 1;
        if let Some(other) = iteration.encoded() {
            encoded[one_network(seed, &other, &iteration, &mut random)] += 1;
        }
    }
    println!("[made again, refused]: {plain:?}, of encoded networks {encoded:?}");
    // Made ahead, a value may lie where something else is still needed: that is refused.
    assert!(plain == [150, 0] && encoded[0] > 60 && encoded[1] <= 2, "{plain:?} {encoded:?}");
}

/// 0 for a network whose storages were made again with the bits of `reference` kept, 1 for one where that was refused.
fn one_network(seed: u64, iteration: &Iteration, reference: &Iteration, random: &mut Random) -> usize {
    let program = &iteration.program;
    let percent = random.pick(&[30, 60, 100]);
    let from = random.pick(&[0, 1, 2, 3]) * program.n_steps() as u32 / 4;
    let ways = [Forget::Once, Forget::AfterEachUse, Forget::WhenIdle(3), Forget::Ahead { from, idle: 4 }];
    let chosen: Vec<ValueId> = all_but(program, &[]).into_keys().filter(|_| random.chance(percent)).collect();
    let forgotten = chosen.into_iter().map(|id| (id, random.pick(&ways))).collect();
    let Ok(made) = recompute(program, &forgotten) else { return 1 };
    let plan = plan_of(program, made);
    assert!(is_faithful(program, &plan), "network {seed}: {plan:?}");
    let kept = reference.checked(options(), &reference.kept(&plan));
    let schedule = iteration.checked(options(), &plan);
    let found = iteration.run(Box::new(ChaosDevice::new(seed)), &schedule, 2).unwrap();
    assert_eq!(differences(&found, &reference.run_on_cpu(&kept, 2)), Vec::<String>::new(), "network {seed}");
    0
}

/// What comes along when something else is made again need not have waited for it: masks and indices leave as well.
#[test]
fn a_mask_is_made_again_with_its_map() {
    let mut net = net(2, Mode::Train, [2, 6, 6]);
    let mut x = net.image();
    for i in 1..3 {
        x = conv(net.channels(x), 3).push(&mut net, &format!("conv{i}"), x).unwrap();
        x = Relu.push(&mut net, &format!("relu{i}"), x).unwrap();
        x = MaxPool2d::new(2, 1).push(&mut net, &format!("pool{i}"), x).unwrap();
    }
    classify(&mut net, x);
    let encoded = train(net).encoded().unwrap();
    let program = &encoded.program;
    check(
        &encoded,
        &forgotten(program, &["pool1"]),
        &expect![[r#"
        conv1' relu1' pool1' | conv2.weight_grad
        drop conv1 until conv1', pool1 until pool1', relu1.mask until relu1', pool1.indices until pool1'"#]],
    );
    check(
        &encoded,
        &forgotten(program, &["relu1.mask", "pool1.indices"]),
        &expect![[r#"
        conv1' relu1' pool1' | pool1.data_grad
        drop conv1 until conv1', pool1 until pool1', relu1.mask until relu1', pool1.indices until pool1'"#]],
    );
    check(
        &encoded,
        &forgotten(program, &["pool1", "relu1.mask", "pool1.indices", "relu2.mask", "pool2.indices"]),
        &expect![[r#"
            conv1' relu1' pool1' conv2' relu2' pool2' | pool2.data_grad
            drop conv1 until conv1', pool1 until pool1', conv2 until conv2', relu1.mask until relu1', pool1.indices until pool1', relu2.mask until relu2', pool2.indices until pool2'"#]],
    );
}
