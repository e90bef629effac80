//! Random legal plans, and what makes a plan legal: followed value by value, every read finds what it names.

use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use vdnn_graph::{Graph, NodeId, Op, Phase, Program, Role, Step, Use, ValueId};
use vdnn_memory::{Gap, Liveness, MemoryPlan, Problem, Residency, Tier};

/// A random plan: any algorithms, any legal offloads with any legal windows, perhaps runs again.
pub fn random_plan(problem: &Problem<'_>, random: &mut Random) -> MemoryPlan {
    let program = problem.program;
    let mut plan = MemoryPlan::keep_all(program);
    for node in program.graph.node_ids() {
        let n = problem.kernels.all(node).count() as u64;
        plan.algos.insert(node, random.below(n) as usize);
    }
    for _ in 0..random.below(3) {
        run_again(program, &mut plan, random);
    }
    let percent = random.pick(&[0, 20, 60, 100]);
    let liveness = Liveness::of(problem, &plan.order);
    let filled = filled_after(program, &plan);
    for &root in liveness.roots() {
        let full = |gap: &Gap| liveness.wrap(root).is_some() || filled.contains(&(gap.root, gap.from.step));
        for gap in liveness.gaps(root).chain(liveness.wrap(root)).filter(full) {
            let key = (root, plan.order[gap.to.step.index()]);
            if random.chance(percent) && !plan.gaps.contains_key(&key) {
                let window = random_window(&gap, plan.order.len(), random);
                // What streams has its copy at home.
                let may_rest = liveness.wrap(root).is_none();
                plan.gaps
                    .insert(key, if may_rest && random.chance(40) { on_disk(&gap, window, random) } else { window });
            }
        }
    }
    plan
}

/// Keeping everything, but for what is full and idle for a step or more: that leaves, in every gap.
pub fn every_gap(program: &Program) -> MemoryPlan {
    let mut plan = MemoryPlan::keep_all(program);
    for gap in full_and_idle(program, &plan) {
        let Gap { root, from, to, .. } = gap;
        let away = Residency::Offload { tier: Tier::Host, release: Step(from.step.0 + 1), fetch: to.step };
        plan.gaps.insert((root, plan.order[to.step.index()]), away);
    }
    plan
}

/// The same with all of it on disk in every gap, written and read as late as can be, so that slots are in use for long.
pub fn every_gap_on_disk(program: &Program) -> MemoryPlan {
    let mut plan = every_gap(program);
    for gap in full_and_idle(program, &plan) {
        let tier = Tier::Disk { written: gap.to.step, read: Step(gap.from.step.0 + 2).min(gap.to.step) };
        let (release, fetch) = (Step(gap.from.step.0 + 1), gap.to.step);
        plan.gaps.insert((gap.root, plan.order[gap.to.step.index()]), Residency::Offload { tier, release, fetch });
    }
    plan
}

/// Gaps of at least a step of storages that are full.
pub fn full_and_idle(program: &Program, plan: &MemoryPlan) -> Vec<Gap> {
    let liveness = Liveness::analyse(program, &plan.order);
    let filled = filled_after(program, plan);
    let leaves = |gap: &Gap| gap.to.step.0 > gap.from.step.0 + 1 && filled.contains(&(gap.root, gap.from.step));
    liveness.roots().iter().flat_map(|&root| liveness.gaps(root)).filter(leaves).collect()
}

/// Any legal window of a gap.
pub fn random_window(gap: &Gap, n_steps: usize, random: &mut Random) -> Residency {
    let (from, to) = (u64::from(gap.from.step.0), u64::from(gap.to.step.0));
    let (latest, wraps) = (if gap.wraps() { n_steps as u64 } else { to }, gap.wraps());
    let release = random.between(from + 1, latest);
    let fetch = random.between(if wraps { 0 } else { release }, to);
    Residency::Offload { tier: Tier::Host, release: Step(release as u32), fetch: Step(fetch as u32) }
}

/// The same window with the bytes on disk, and any legal slots.
pub fn on_disk(gap: &Gap, window: Residency, random: &mut Random) -> Residency {
    let Residency::Offload { release, fetch, .. } = window else { return window };
    let after = u64::from(gap.from.step.0) + 1;
    let written = Step(random.between(after, u64::from(gap.to.step.0)) as u32);
    let read = Step(random.between(after, u64::from(fetch.0)) as u32);
    Residency::Offload { tier: Tier::Disk { written, read }, release, fetch }
}

/// Tries to run a random stretch of forward nodes again before something in backward, dropping what they make in between.
fn run_again(program: &Program, plan: &mut MemoryPlan, random: &mut Random) {
    for _ in 0..8 {
        let candidate = again(program, plan, random);
        if candidate.order.len() == plan.order.len() {
            continue;
        }
        let dropped = with_drops(program, &candidate, random);
        if is_faithful(program, &dropped) {
            *plan = dropped;
            return;
        }
        if is_faithful(program, &candidate) {
            *plan = candidate;
            return;
        }
    }
}

/// `plan` with a random stretch of pure forward nodes run again at a random place.
fn again(program: &Program, plan: &MemoryPlan, random: &mut Random) -> MemoryPlan {
    let graph = &program.graph;
    let forward: Vec<usize> =
        (0..plan.order.len()).filter(|&at| graph.node(plan.order[at].node).phase == Phase::Forward).collect();
    let first = random.below(forward.len() as u64) as usize;
    let count = random.between(1, 6) as usize;
    let nodes: Vec<NodeId> = forward[first..forward.len().min(first + count)]
        .iter()
        .map(|&at| plan.order[at].node)
        .filter(|&id| may_run_again(graph, id))
        .collect();
    let made = |id: &ValueId| {
        let root = program.aliases.root(*id);
        nodes.iter().flat_map(|&node| &graph.node(node).outputs).any(|&v| program.aliases.root(v) == root)
    };
    let reads_them = |at: &usize| {
        let node = graph.node(plan.order[*at].node);
        node.phase == Phase::Backward && node.inputs.iter().any(made)
    };
    let needed = (0..plan.order.len()).find(reads_them).unwrap_or(plan.order.len() - 1);
    let earliest = *forward.last().unwrap() + 1;
    let at =
        if random.chance(70) { needed } else { random.between(earliest.min(needed) as u64, needed as u64) as usize };
    let mut order = plan.order.clone();
    order.splice(at..at, nodes.iter().map(|&node| Use { node, run: 0 }));
    let mut gaps = plan.gaps.clone();
    let renamed = number_runs(graph, &mut order);
    // Keys name the run that ends a gap; those of runs that moved on are simply kept instead.
    gaps.retain(|(_, u), _| !renamed.contains(&u.node));
    MemoryPlan { order, gaps, ..plan.clone() }
}

fn may_run_again(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    !node.op.has_effect() && node.outputs.iter().all(|&value| graph.value(value).role != Role::Metric)
}

/// Numbers the runs of each node in order; returns the nodes that run more than once.
fn number_runs(graph: &Graph, order: &mut [Use]) -> Vec<NodeId> {
    let mut runs = vec![0u16; graph.nodes().len()];
    for u in order {
        u.run = runs[u.node.index()];
        runs[u.node.index()] += 1;
    }
    graph.node_ids().filter(|id| runs[id.index()] > 1).collect()
}

/// Drops storages in gaps that end with a run that only writes.
fn with_drops(program: &Program, plan: &MemoryPlan, random: &mut Random) -> MemoryPlan {
    let mut plan = plan.clone();
    let liveness = Liveness::analyse(program, &plan.order);
    for &root in liveness.roots() {
        for gap in liveness.gaps(root).filter(|gap| gap.to.writes && !gap.to.reads) {
            let ends = plan.order[gap.to.step.index()];
            if ends.run > 0 && random.chance(80) {
                plan.gaps.insert((root, ends), Residency::Drop);
            }
        }
    }
    plan
}

/// Follows every value through a plan's order: true when each node finds its inputs whole.
pub fn is_faithful(program: &Program, plan: &MemoryPlan) -> bool {
    let graph = &program.graph;
    let liveness = Liveness::analyse(program, &plan.order);
    let mut dropped_at: Vec<Vec<ValueId>> = vec![Vec::new(); plan.order.len()];
    for &root in liveness.roots() {
        for gap in liveness.gaps(root) {
            if plan.gaps.get(&(root, plan.order[gap.to.step.index()])) == Some(&Residency::Drop) {
                dropped_at[gap.to.step.index()].push(root);
            }
        }
    }
    let mut whole: Vec<bool> = graph.values().iter().map(|value| value.producer.is_none()).collect();
    for (u, dropped) in plan.order.iter().zip(dropped_at) {
        for id in graph.value_ids().filter(|&id| dropped.contains(&program.aliases.root(id))) {
            whole[id.index()] = false;
        }
        let node = graph.node(u.node);
        if node.inputs.iter().any(|input| !whole[input.index()]) {
            return false;
        }
        // These leave the bytes of their inputs as they are.
        let moves_nothing = matches!(node.op, Op::Concat(_) | Op::Split(_) | Op::Flatten | Op::Unflatten(_));
        for &output in &node.outputs {
            if !moves_nothing {
                for id in graph.value_ids().filter(|&id| overlap(program, id, output)) {
                    whole[id.index()] = false;
                }
            }
        }
        node.outputs.iter().for_each(|output| whole[output.index()] = true);
    }
    true
}

/// Storages all of whose bytes are written once a step is done. One that is filled branch by branch cannot be copied before.
pub fn filled_after(program: &Program, plan: &MemoryPlan) -> BTreeSet<(ValueId, Step)> {
    let mut filled = BTreeSet::new();
    let mut written: BTreeMap<ValueId, Vec<Range<u64>>> = BTreeMap::new();
    for (step, u) in plan.order.iter().enumerate() {
        let node = program.graph.node(u.node);
        let operands = node.inputs.iter().chain(&node.outputs);
        let roots: BTreeSet<ValueId> = operands.map(|&id| program.aliases.root(id)).collect();
        for root in roots {
            let spans = written.entry(root).or_default();
            if plan.gaps.get(&(root, *u)) == Some(&Residency::Drop) {
                spans.clear();
            }
            let outputs = node.outputs.iter().filter(|&&id| program.aliases.root(id) == root);
            spans.extend(outputs.map(|&id| span(program, id)));
            spans.sort_by_key(|span| span.start);
            let reached = spans.iter().fold(0, |end, span| if span.start <= end { end.max(span.end) } else { end });
            if reached == span(program, root).end {
                filled.insert((root, Step(step as u32)));
            }
        }
    }
    filled
}

/// The bytes of a value in each sample's row of its storage.
fn span(program: &Program, id: ValueId) -> Range<u64> {
    let ty = &program.graph.value(id).ty;
    let start = program.aliases.location(id).offset;
    start..start + ty.bytes() / ty.shape.samples().max(1)
}

/// True when two values share bytes.
fn overlap(program: &Program, a: ValueId, b: ValueId) -> bool {
    let (one, other) = (span(program, a), span(program, b));
    program.aliases.root(a) == program.aliases.root(b) && one.start < other.end && other.start < one.end
}
