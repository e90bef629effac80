//! The bound beside every plan of a chain so small that all can be made.

use super::{Made, ROUNDING, best_within, links, weighty_gaps, with_tight_windows, with_windows};
use crate::cases::recomputed;
use crate::iteration::{Iteration, sgd};
use crate::plan::is_faithful;
use vdnn_autograd::UpdateAt;
use vdnn_graph::{Program, Use};
use vdnn_layers::{AdaptiveAvgPool2d, Conv2d, Flatten, Layer, Linear, Net, NetOptions, Relu};
use vdnn_memory::policies::{Hybrid, MemoryPolicy};
use vdnn_memory::{Gap, Liveness, MemoryPlan, Residency};
use vdnn_schedule::Choice;
use vdnn_sim::oracle_seconds;

/// Five 1x1 convolutions of one shape, each followed by a ReLU in place, with kernels and copies of stated length.
///
/// ```text
///   storage  x1    x2    x3    x4    x5      conv i reads x(i-1) and writes xi; backward runs the other way
/// ```
fn layers(conv: f64, relu: f64, copy: f64) -> Made {
    let options = NetOptions { batch_size: 2, image: [4, 8, 8], ..NetOptions::default() };
    let mut net = Net::new("layers", &options).unwrap();
    let mut x = net.image();
    for i in 1..=5 {
        x = Conv2d::new(4, 4, 1).no_bias().push(&mut net, &format!("conv{i}"), x).unwrap();
        x = Relu.push(&mut net, &format!("relu{i}"), x).unwrap();
    }
    let x = AdaptiveAvgPool2d(1).push(&mut net, "pool", x).unwrap();
    let x = Flatten.push(&mut net, "flatten", x).unwrap();
    let x = Linear::new(4, 3).no_bias().push(&mut net, "fc", x).unwrap();
    net.classify(x, 0.0).unwrap();
    let mut iteration = Iteration::training(net, sgd(0.0), UpdateAt::Layer);
    let nodes = iteration.program.graph.nodes();
    let seconds = |i: usize| match nodes[i].op.kind() {
        "conv2d" | "conv2d_data_grad" | "conv2d_weight_grad" => conv,
        "relu" | "relu_grad" => relu,
        _ => 0.0,
    };
    let choice = |i| vec![Choice { algorithm: "only".into(), workspace: 0, seconds: seconds(i), deterministic: true }];
    iteration.kernels.choices = (0..nodes.len()).map(choice).collect();
    Made { iteration, links: links(MAP / copy) }
}

/// Bytes of every feature map of `layers`.
const MAP: f64 = (2 * 4 * 8 * 8 * 4) as f64;

/// Copies that take 10 s, convolutions of 1 s. The data gradient of conv5 holds most: six maps (x1 to x4, dY, dX) and dW
/// (64 bytes). With room for one map less, the gradient of the pooling, which holds six maps (x1 to x5, dY) and the pooled
/// gradient (32 bytes), lacks a map less 32 bytes: one of five maps must leave, whole. x1 may go down from the end of conv1
/// on, during four convolutions; up it comes during many. A convolution again makes a map in a second, quicker than the
/// link, so what four seconds of the link leave is made again.
#[test]
fn a_bound_counted_by_hand() {
    let made = layers(1.0, 0.0, 10.0);
    let oracle = oracle_seconds(&made.iteration.program, &made.iteration.kernels);
    assert_eq!(oracle, 5.0 + 9.0);
    let (peak, _) = made.outcome(&MemoryPlan::keep_all(&made.iteration.program));
    let bound = made.bound(Some(peak - MAP as u64));
    // Recomputing x1 takes a second of conv1: the best plan, and the bound finds the same second.
    let absent = MAP;
    let expected = oracle + (absent - 4.0 * MAP / 10.0) / MAP;
    assert!((bound.seconds - expected).abs() < 1e-9, "{bound:?}, expected {expected}");
    let cut = bound.cut.unwrap();
    assert_eq!((cut.absent, cut.offloaded + cut.recomputed), (absent as u64, absent as u64));
}

/// Every way to keep, move or run again each of the five maps, with the best windows known; by how much the quickest plan
/// for a budget exceeds the bound. Where a plan meets the bound, nothing in the bound can be too high unnoticed.
#[test]
fn the_best_of_all_plans_of_a_chain_is_near_the_bound() {
    let mut ratios = Vec::new();
    let copies = [(1.0, 0.5), (1.0, 2.0), (1.0, 5.0), (1.0, 30.0), (1.0, 1000.0), (9.0, 25.0), (9.0, 60.0)];
    for (conv, copy) in copies {
        let made = layers(conv, 0.1, copy);
        let outcomes = ways_through(&made);
        let (peak, _) = made.outcome(&MemoryPlan::keep_all(&made.iteration.program));
        for less in 1..=3 {
            let budget = peak - less * MAP as u64;
            let Some(best) = best_within(&outcomes, budget) else { continue };
            let bound = made.bound(Some(budget));
            println!("{conv} s a kernel, {copy} s a copy, {less} maps less: best {best}, {bound:?}");
            assert!(bound.seconds <= best * ROUNDING, "{budget} bytes: best {best}, {bound:?}");
            ratios.push(best / bound.seconds);
        }
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    let met = ratios.iter().filter(|&&ratio| ratio < 1.001).count();
    println!("{} budgets: best over bound {mean:.3} on average, {met} met", ratios.len());
    assert!(mean < 1.1 && met >= ratios.len() / 3, "{ratios:?}");
}

/// What `hybrid` finds for the same budgets, in which it must also find addresses, beside the best of all plans, whose
/// memory is only the largest live set.
#[test]
fn hybrid_beside_the_best_of_all_plans_of_a_chain() {
    let mut ratios = Vec::new();
    for (conv, copy) in [(1.0, 0.5), (1.0, 2.0), (1.0, 5.0), (1.0, 30.0), (9.0, 25.0), (9.0, 60.0)] {
        let made = layers(conv, 0.1, copy);
        let outcomes = ways_through(&made);
        let (peak, _) = made.outcome(&MemoryPlan::keep_all(&made.iteration.program));
        for less in 1..=3 {
            let budget = peak - less * MAP as u64;
            let problem = made.problem(Some(budget));
            let (Some(best), Ok(plan)) = (best_within(&outcomes, budget), Hybrid.plan(&problem)) else { continue };
            let (_, seconds) = made.outcome(&plan);
            println!("{conv} s a kernel, {copy} s a copy, {less} maps less: hybrid {seconds}, best {best}");
            ratios.push(seconds / best);
        }
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    println!(
        "{} budgets: hybrid over best {mean:.3} on average, worst {:.3}",
        ratios.len(),
        ratios.iter().copied().fold(0.0, f64::max)
    );
    assert!(ratios.len() >= 12 && mean <= 1.02, "{ratios:?}");
}

/// Peak and time of every way through a chain of five maps, with windows from tight to wide.
fn ways_through(made: &Made) -> Vec<(u64, f64)> {
    let program = &made.iteration.program;
    let mut outcomes = Vec::new();
    for ways in 0..3u32.pow(5) {
        let way = |layer: u32| ways / 3u32.pow(layer - 1) % 3;
        let again: Vec<bool> = (0..=5).map(|layer| layer > 0 && way(layer) == 2).collect();
        let plan = running_again(program, &again);
        assert!(is_faithful(program, &plan));
        let liveness = Liveness::analyse(program, &plan.order);
        let moved = (1..=5).filter(|&layer| way(layer) == 1).filter_map(|layer| {
            let root = program.graph.find_value(&format!("conv{layer}"))?;
            liveness.gaps(root).max_by_key(|gap| gap.to.step.0 - gap.from.step.0)
        });
        let moved: Vec<Gap> = moved.collect();
        for (after, ahead) in [0, 1, 3, 5, 7].into_iter().flat_map(|a| [0, 2, 4, 6, 8].map(|b| (a, b))) {
            outcomes.push(made.outcome(&with_windows(&plan, moved.iter().copied(), after, ahead)));
            if moved.is_empty() {
                break;
            }
        }
    }
    outcomes
}

/// Runs the chosen layers again before the first backward step that reads their map, after those chosen before them whose
/// map they read; their maps are dropped whenever a run makes them anew.
fn running_again(program: &Program, again: &[bool]) -> MemoryPlan {
    let graph = &program.graph;
    let named = |name: String| graph.node_ids().find(|&id| graph.node(id).name == name).unwrap();
    let layer = |i: usize| [named(format!("conv{i}")), named(format!("relu{i}"))];
    let mut plan = MemoryPlan::keep_all(program);
    let last = plan.order.iter().rposition(|u| graph.node(u.node).name.contains("loss")).unwrap();
    for i in (1..again.len()).filter(|&i| again[i]) {
        let map = graph.node(layer(i)[1]).outputs[0];
        let reads = |at: &usize| {
            let u = plan.order[*at];
            u.run == 0 && graph.node(u.node).inputs.contains(&map)
        };
        let at = (last..plan.order.len()).find(reads).unwrap();
        let first = (1..=i).rev().take_while(|&j| again[j]).last().unwrap();
        // Run numbers follow below; 1 tells these runs from the first ones.
        let runs = (first..=i).flat_map(layer).map(|node| Use { node, run: 1 });
        plan.order.splice(at..at, runs);
    }
    let mut runs = vec![0; graph.nodes().len()];
    for u in &mut plan.order {
        u.run = runs[u.node.index()];
        runs[u.node.index()] += 1;
    }
    let liveness = Liveness::analyse(program, &plan.order);
    for gap in liveness.roots().iter().flat_map(|&root| liveness.gaps(root)) {
        let ends = plan.order[gap.to.step.index()];
        if ends.run > 0 && gap.to.writes && !gap.to.reads {
            plan.gaps.insert((gap.root, ends), Residency::Drop);
        }
    }
    plan
}

/// Where the link is slow, running a layer again beats every offload that saves as much, and the bound is below both.
#[test]
fn recomputation_that_beats_offload_stays_above_the_bound() {
    let made = layers(1.0, 0.1, 50.0);
    let program = &made.iteration.program;
    let plan = recomputed(program, &["conv1", "relu1"]);
    assert!(is_faithful(program, &plan));
    let (peak, seconds) = made.outcome(&plan);
    let gaps = weighty_gaps(program, 9);
    let offloads: Vec<_> = (0..1u32 << gaps.len())
        .map(|subset| {
            let moved = gaps.iter().enumerate().filter(|(i, _)| subset >> i & 1 == 1).map(|(_, gap)| *gap);
            made.outcome(&with_tight_windows(&MemoryPlan::keep_all(program), moved))
        })
        .collect();
    let best = best_within(&offloads, peak).unwrap();
    let (bound, _) = made.holds_for(&plan);
    let oracle = oracle_seconds(program, &made.iteration.kernels);
    println!("oracle {oracle}, bound {bound}, recomputed {seconds}, best offload {best}");
    assert!(oracle < bound && bound <= seconds && seconds < best);
}
