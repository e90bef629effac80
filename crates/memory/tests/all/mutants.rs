//! Every mutant of a compiled schedule is refused by the checks, or harmless: the same bits under any legal interleaving.
//!
//! The schedule is `all` with event-based waits on a network of twenty layers with everything that makes it hard, then one in
//! which everything leaves in every gap, so that copies serve several. The full
//! count of interleavings for each harmless mutant runs in `examples/mutants_full.rs`.

use crate::iteration::{Iteration, State, options, sgd};
use crate::plan::{every_gap, every_gap_on_disk};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vdnn_autograd::UpdateAt;
use vdnn_check::Rule;
use vdnn_check::mutants::{Mutant, mutants};
use vdnn_layers::{
    BatchNorm2d, Conv2d, Dropout, Flatten, Layer, Linear, MaxPool2d, Net, NetOptions, Relu, add, concat,
};
use vdnn_memory::{Budgets, Problem, compile, compile_with_policy, policies};
use vdnn_runtime::{ChaosDevice, cpu};
use vdnn_schedule::{Direction, Schedule, Space};

/// What became of the mutants of one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Mutants made.
    pub made: usize,
    /// Refused by a check.
    pub refused: usize,
    /// Accepted, and the same bits under every interleaving tried.
    pub harmless: usize,
    /// Accepted, and other bits or a failure under some interleaving: a hole in the checks.
    pub missed: usize,
}

/// The iteration and its schedule.
pub fn subject() -> (Iteration, Schedule) {
    let mut iteration = Iteration::training(twenty_layers(), sgd(0.9), UpdateAt::Layer);
    in_pieces(&mut iteration, "conv2");
    let policy = policies::find("all").unwrap();
    let (schedule, _) = compile_with_policy(&iteration.problem(options(), None), policy.as_ref()).unwrap();
    assert!(vdnn_check::check(&schedule, &iteration.program).is_empty());
    (iteration, schedule)
}

/// One layer's convolutions run in two pieces of the batch.
fn in_pieces(iteration: &mut Iteration, layer: &str) {
    let graph = &iteration.program.graph;
    let of_layer = |name: &str| name == layer || name.starts_with(&format!("{layer}."));
    for (id, node) in graph.node_ids().zip(graph.nodes()).filter(|(_, node)| of_layer(&node.name)) {
        let found = cpu::pieces(graph, node).unwrap().into_iter().find(|choice| choice.algorithm == "tiles/2");
        if let Some(choice) = found {
            iteration.kernels.choices[id.index()] = vec![choice];
        }
    }
    let names = || iteration.kernels.choices.iter().flatten().map(|choice| choice.algorithm.as_str());
    assert_eq!(names().filter(|name| *name == "tiles/2").count(), 3);
}

/// The same iteration with everything away in every gap.
fn away_in_every_gap() -> (Iteration, Schedule) {
    let (iteration, _) = subject();
    let schedule = compile(&iteration.problem(options(), None), &every_gap(&iteration.program), "test").unwrap();
    assert!(vdnn_check::check(&schedule, &iteration.program).is_empty());
    assert!(schedule.transfer_bytes(Direction::Offload) < schedule.transfer_bytes(Direction::Prefetch));
    (iteration, schedule)
}

/// The same iteration with everything on disk in every gap.
pub fn on_disk() -> (Iteration, Schedule) {
    let (iteration, _) = subject();
    let plan = every_gap_on_disk(&iteration.program);
    let problem = iteration.problem(options(), None);
    let budgets = Budgets { disk: Some(1 << 20), ..problem.budgets };
    let schedule = compile(&Problem { budgets, ..problem }, &plan, "test").unwrap();
    assert!(vdnn_check::check(&schedule, &iteration.program).is_empty());
    assert!(schedule.disk_bytes(Direction::Offload) == schedule.transfer_bytes(Direction::Offload));
    assert!(schedule.disk_bytes(Direction::Prefetch) == schedule.transfer_bytes(Direction::Prefetch));
    (iteration, schedule)
}

/// The same iteration with all parameters and momenta at home in host memory, each away between its uses, too.
fn streamed() -> (Iteration, Schedule) {
    let (mut iteration, _) = subject();
    iteration.homes = iteration.homes.streaming_from(0);
    let policy = policies::find("all").unwrap();
    let (schedule, _) = compile_with_policy(&iteration.problem(options(), None), policy.as_ref()).unwrap();
    assert!(vdnn_check::check(&schedule, &iteration.program).is_empty());
    assert!(schedule.homes.iter().any(|home| schedule.buffer(home.buffer).space == Space::Host));
    (iteration, schedule)
}

fn twenty_layers() -> Net {
    let options = NetOptions { batch_size: 2, image: [1, 5, 5], ..NetOptions::default() };
    let mut net = Net::new("twenty", &options).unwrap();
    let conv = |from, to| Conv2d::new(from, to, 3).padding(1);
    let image = net.image();
    let x = conv(1, 2).push(&mut net, "conv1", image).unwrap();
    let x = BatchNorm2d::new(2).push(&mut net, "bn1", x).unwrap();
    let x = Relu.push(&mut net, "relu1", x).unwrap();
    let y = conv(2, 2).push(&mut net, "conv2", x).unwrap();
    let y = BatchNorm2d::new(2).push(&mut net, "bn2", y).unwrap();
    let y = Relu.push(&mut net, "relu2", y).unwrap();
    let y = conv(2, 2).push(&mut net, "conv3", y).unwrap();
    let x = add(&mut net, "add", x, y).unwrap();
    let x = Relu.push(&mut net, "relu3", x).unwrap();
    let a = conv(2, 1).push(&mut net, "branch1", x).unwrap();
    let b = conv(2, 2).push(&mut net, "branch2", x).unwrap();
    let b = Relu.push(&mut net, "relu4", b).unwrap();
    let x = concat(&mut net, "concat", &[a, b]).unwrap();
    let x = MaxPool2d::new(2, 1).push(&mut net, "pool", x).unwrap();
    let x = Dropout(0.3).push(&mut net, "dropout", x).unwrap();
    let x = conv(3, 2).push(&mut net, "conv4", x).unwrap();
    let x = Relu.push(&mut net, "relu5", x).unwrap();
    let x = Flatten.push(&mut net, "flatten", x).unwrap();
    let x = Linear::new(32, 4).push(&mut net, "fc1", x).unwrap();
    let x = Relu.push(&mut net, "relu6", x).unwrap();
    let x = Linear::new(4, 3).push(&mut net, "fc2", x).unwrap();
    net.classify(x, 0.0).unwrap();
    net
}

/// Judges every mutant; accepted ones run under `seeds` interleavings, two iterations each.
pub fn judge(seeds: u64, (iteration, schedule): (Iteration, Schedule)) -> BTreeMap<Rule, Count> {
    let expected = iteration.run_on_cpu(&Arc::new(schedule.clone()), 2);
    let mut counts: BTreeMap<Rule, Count> = BTreeMap::new();
    let mut accepted: Vec<Mutant> = Vec::new();
    for mutant in mutants(&schedule) {
        let count = counts.entry(mutant.rule).or_default();
        count.made += 1;
        let refused = !vdnn_check::check(&mutant.schedule, &iteration.program).is_empty()
            || !vdnn_check::kernels(&mutant.schedule, &iteration.kernels).is_empty();
        if refused {
            count.refused += 1;
        } else {
            accepted.push(mutant);
        }
    }
    for (rule, harmless) in run_all(&iteration, &expected, accepted, seeds) {
        let count = counts.entry(rule).or_default();
        if harmless { count.harmless += 1 } else { count.missed += 1 }
    }
    counts
}

/// On two threads: whether each mutant gives the expected bits under every seed.
fn run_all(iteration: &Iteration, expected: &State, mutants: Vec<Mutant>, seeds: u64) -> Vec<(Rule, bool)> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut judged = Vec::new();
        while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
            let schedule = Arc::new(mutant.schedule.clone());
            let same =
                |seed| iteration.run(Box::new(ChaosDevice::new(seed)), &schedule, 2).is_ok_and(|s| s == *expected);
            let harmless = (0..seeds).all(same);
            if !harmless {
                println!("missed: {} at {}, aimed at {:?}", mutant.operator, mutant.position, mutant.rule);
            }
            judged.push((mutant.rule, harmless));
        }
        judged
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mut judged = work();
        judged.extend(other.join().unwrap());
        judged
    })
}

/// The counts as a table.
pub fn table(counts: &BTreeMap<Rule, Count>) -> String {
    let mut text = format!("{:14}{:>8}{:>9}{:>10}{:>8}\n", "rule", "made", "refused", "harmless", "missed");
    for (rule, count) in counts {
        let Count { made, refused, harmless, missed } = count;
        text.push_str(&format!("{:14}{made:>8}{refused:>9}{harmless:>10}{missed:>8}\n", rule.name()));
    }
    text
}

#[test]
fn no_mutant_is_accepted_and_harmful() {
    none_harmful(&judge(6, subject()));
    none_harmful(&judge(2, away_in_every_gap()));
    none_harmful(&judge(2, streamed()));
    none_harmful(&judge(2, on_disk()));
}

fn none_harmful(counts: &BTreeMap<Rule, Count>) {
    println!("{}", table(counts));
    assert!(counts.len() > 6);
    for (rule, count) in counts {
        assert_eq!(count.missed, 0, "{rule:?}: {count:?}");
        assert_eq!(count.made, count.refused + count.harmless);
        assert!(count.refused > 0, "{rule:?}: no mutant is refused");
    }
}
