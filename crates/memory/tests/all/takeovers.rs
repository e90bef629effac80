//! Storages that take over the bytes of another one: when, when not, what it saves, and that bits stay.

use crate::cases::{classify, net, same_as_kept};
use crate::iteration::{Iteration, options, sgd};
use std::collections::BTreeMap;
use vdnn_autograd::UpdateAt;
use vdnn_graph::{Program, Step, ValueId};
use vdnn_layers::{BatchNorm2d, Conv2d, Layer, Mode, Relu};
use vdnn_memory::{Forget, Liveness, MemoryPlan, Residency, Tier, recompute};
use vdnn_schedule::{Action, Buffer, Command, Direction, Region, Schedule, Space};

/// Convolution and norm with its ReLU in place, twice: the norm's gradient reads the convolution's map.
fn norms() -> Iteration {
    let mut net = net(2, Mode::Train, [2, 6, 6]);
    let mut x = net.image();
    for (i, channels) in [2, 3].into_iter().enumerate() {
        let conv = Conv2d::new(channels, 3, 3).padding(1);
        x = conv.push(&mut net, &format!("conv{i}"), x).unwrap();
        x = BatchNorm2d::new(3).push(&mut net, &format!("bn{i}"), x).unwrap();
        x = Relu.push(&mut net, &format!("relu{i}"), x).unwrap();
    }
    classify(&mut net, x);
    Iteration::training(net, sgd(0.9), UpdateAt::Layer)
}

fn root(program: &Program, name: &str) -> ValueId {
    program.aliases.root(program.graph.find_value(name).unwrap())
}

fn plan(program: &Program, forgotten: &[(&str, Forget)]) -> MemoryPlan {
    let forgotten: BTreeMap<ValueId, Forget> =
        forgotten.iter().map(|&(name, forget)| (root(program, name), forget)).collect();
    let made = recompute(program, &forgotten).unwrap();
    MemoryPlan { order: made.order, gaps: made.drops, ..MemoryPlan::keep_all(program) }
}

/// Names of the buffers that hold several storages in turn.
fn shared(schedule: &Schedule) -> Vec<&str> {
    schedule.buffers.iter().map(|buffer| buffer.name.as_str()).filter(|name| name.contains('+')).collect()
}

#[test]
fn a_norm_overwrites_a_map_that_is_forgotten_and_made_again() {
    let norms = norms();
    let plan = plan(&norms.program, &[("conv0", Forget::Once)]);
    assert_eq!(shared(&norms.checked(options(), &plan)), ["conv0+bn0"]);
    same_as_kept(&norms, &plan);
}

/// Made again for the next convolution's gradient, the map is kept for its own norm's, or made for it once more.
#[test]
fn what_is_needed_again_soon_is_overwritten_only_where_it_is_forgotten_at_once() {
    let norms = norms();
    for (forget, expected) in
        [(Forget::Once, vec!["conv0+bn0"]), (Forget::AfterEachUse, vec!["conv0+bn0", "conv0'+bn0'"])]
    {
        let plan = plan(&norms.program, &[("conv0", forget), ("bn0", Forget::Once)]);
        assert_eq!(shared(&norms.checked(options(), &plan)), expected, "{forget:?}");
        same_as_kept(&norms, &plan);
    }
}

/// Where each run of a node reads its first input and writes its first output.
fn places(program: &Program, schedule: &Schedule, node: &str) -> Vec<(Region, Region)> {
    let launch = |command: &Command| match &command.action {
        Action::Launch { node: id, reads, writes, .. } if program.graph.node(*id).name == node => {
            Some((reads[0], writes[0]))
        }
        _ => None,
    };
    schedule.commands.iter().filter_map(launch).collect()
}

#[test]
fn kept_maps_are_not_overwritten() {
    let norms = norms();
    let kept = norms.checked(options(), &MemoryPlan::keep_all(&norms.program));
    assert!(shared(&kept).is_empty());
    assert!(places(&norms.program, &kept, "bn0").iter().all(|(from, to)| from.buffer != to.buffer));
    let plan = plan(&norms.program, &[("conv0", Forget::Once)]);
    let forgotten = norms.checked(options(), &plan);
    let over = places(&norms.program, &forgotten, "bn0");
    assert!(over.len() == 1 && over[0].0 == over[0].1, "{over:?}");
}

/// The copy of a map that leaves while the norm reads it may still be under way when the norm writes.
#[test]
fn what_leaves_for_host_memory_is_not_overwritten() {
    let norms = norms();
    let program = &norms.program;
    let mut plan = plan(program, &[("bn0", Forget::AfterEachUse)]);
    let liveness = Liveness::analyse(program, &plan.order);
    let away = root(program, "conv0");
    for gap in liveness.gaps(away).filter(|gap| gap.to.step.0 > gap.from.step.0 + 1) {
        let (release, fetch) = (Step(gap.from.step.0 + 1), gap.to.step);
        let ends = plan.order[gap.to.step.index()];
        plan.gaps.insert((away, ends), Residency::Offload { tier: Tier::Host, release, fetch });
    }
    let schedule = norms.checked(options(), &plan);
    assert!(schedule.transfer_bytes(Direction::Offload) > 0 && shared(&schedule).is_empty(), "{:?}", shared(&schedule));
    same_as_kept(&norms, &plan);
}

/// While a norm overwrites there is one buffer for what it reads and writes.
#[test]
fn both_maps_of_a_norm_are_one_buffer() {
    let norms = norms();
    let program = &norms.program;
    let plan = plan(program, &[("conv0", Forget::AfterEachUse), ("bn0", Forget::Once)]);
    let schedule = norms.checked(options(), &plan);
    let step = |run: u16| plan.order.iter().position(|u| program.graph.node(u.node).name == "bn0" && u.run == run);
    for (run, name) in [(0, "conv0+bn0"), (1, "conv0'+bn0'")] {
        let live = live_at(&schedule, step(run).unwrap());
        let of_either = |name: &str| ["conv0", "bn0"].iter().any(|map| name.trim_end_matches('\'').ends_with(map));
        let maps: Vec<&str> = live.iter().map(|buffer| buffer.name.as_str()).filter(|name| of_either(name)).collect();
        assert_eq!(maps, [name]);
    }
}

/// The buffers that are allocated when a step is launched.
fn live_at(schedule: &Schedule, step: usize) -> Vec<&Buffer> {
    let (mut live, mut launched) = (Vec::new(), 0);
    for command in &schedule.commands {
        match command.action {
            Action::Alloc(id) => live.push(id),
            Action::Free(id) => live.retain(|&other| other != id),
            Action::Launch { .. } if launched == step => break,
            Action::Launch { .. } => launched += 1,
            _ => {}
        }
    }
    live.into_iter().map(|id| schedule.buffer(id)).filter(|buffer| buffer.space == Space::Device).collect()
}
