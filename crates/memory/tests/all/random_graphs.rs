//! Random networks under random plans: the check accepts every legal plan's schedule, and any legal interleaving of it
//! gives the bits of keeping everything, in order, on the CPU; of the plain program, be the schedule the encoded one's.

use crate::iteration::{Iteration, State, differences, options, sgd};
use crate::network::random_network;
use crate::plan::{is_faithful, random_plan};
use crate::random::Random;
use std::sync::Arc;
use std::time::Instant;
use vdnn_autograd::{Optimizer, UpdateAt};
use vdnn_graph::op::Adam;
use vdnn_graph::{Node, Op, Phase, Program, Role};
use vdnn_memory::{
    Allocation, Budgets, HomeLayout, MemoryPlan, MemoryPolicy, Options, Placement, PlanError, Prefetch, Problem,
    Residency, Sync, compile_with_policy, policies,
};
use vdnn_runtime::{ChaosDevice, Device};
use vdnn_schedule::{Action, Direction, Schedule, Space};

const GRAPHS: u64 = 2_000;

/// How many of the graphs had what.
#[derive(Debug, Default)]
struct Seen {
    offload: u64,
    fork: u64,
    in_place: u64,
    effect: u64,
    concat_region: u64,
    recomputed: u64,
    dropped: u64,
    shared_parameter: u64,
    unused_branch: u64,
    network_wide: u64,
    copied_once: u64,
    streamed: u64,
    policies: u64,
    encoded: u64,
    encoded_again: u64,
    encoded_by_hybrid: u64,
    on_disk: u64,
    on_disk_by_policy: u64,
}

#[test]
fn any_interleaving_of_any_legal_plan_gives_the_same_bits() {
    let started = Instant::now();
    let halves: Vec<_> = (0..2)
        .map(|half| {
            std::thread::spawn(move || {
                let mut seen = Seen::default();
                (half * GRAPHS / 2..(half + 1) * GRAPHS / 2).for_each(|seed| one_graph(seed, &mut seen));
                seen
            })
        })
        .collect();
    let seen = halves.into_iter().map(|half| half.join().unwrap()).fold(Seen::default(), Seen::plus);
    println!("{GRAPHS} graphs in {:?}: {seen:?}", started.elapsed());
    let often = [
        seen.offload,
        seen.fork,
        seen.in_place,
        seen.effect,
        seen.concat_region,
        seen.recomputed,
        seen.copied_once,
        seen.streamed,
        seen.encoded,
        seen.on_disk,
    ];
    assert!(often.iter().all(|&n| n > GRAPHS / 6), "{seen:?}");
    assert!(seen.encoded_again.min(seen.encoded_by_hybrid).min(seen.on_disk_by_policy) > 10, "{seen:?}");
    assert!(seen.dropped.min(seen.shared_parameter).min(seen.unused_branch).min(seen.network_wide) > 10, "{seen:?}");
}

fn one_graph(seed: u64, seen: &mut Seen) {
    let mut random = Random::new(seed);
    let net = random_network(&mut random);
    let update_at = random.pick(&[UpdateAt::Layer, UpdateAt::End]);
    let mut iteration = Iteration::training(net, random_optimizer(&mut random), update_at);
    let options = random_options(&mut random);
    let at_home = iteration.homes.clone();
    if random.chance(40) {
        iteration.homes = streaming(&iteration, &mut random);
    }
    let encoded = iteration.encoded();
    let (schedule, plan, by_hand) = if random.chance(30) {
        seen.policies += 1;
        let (schedule, plan) = by_policy(&iteration, encoded.as_ref(), options, &mut random);
        (schedule, plan, None)
    } else {
        let by_hand = encoded.as_ref().filter(|_| random.chance(60));
        let planned = by_hand.unwrap_or(&iteration);
        let mut plan = random_plan(&planned.problem(options, None), &mut random);
        if plan.gaps.is_empty() && iteration.homes == at_home && random.chance(50) {
            plan.allocation = Allocation::NetworkWide;
        }
        (planned.checked(options, &plan), plan, by_hand)
    };
    let by_policy = encoded.as_ref().filter(|_| plan.is_encoded());
    let planned = by_hand.or(by_policy).unwrap_or(&iteration);
    let to_disk = schedule.disk_bytes(Direction::Offload) > 0;
    seen.on_disk_by_policy +=
        u64::from(to_disk && schedule.arena(Space::Disk).is_some_and(|arena| arena.budget.is_some()));
    seen.encoded += u64::from(by_hand.is_some());
    seen.encoded_by_hybrid += u64::from(by_policy.is_some());
    seen.encoded_again += u64::from(plan.order.iter().any(|u| u.run > 0 && planned.is_encoded(u.node)));
    assert!(is_faithful(&planned.program, &plan));
    if seed.is_multiple_of(10) {
        assert_eq!(Schedule::parse(&schedule.to_text()).unwrap(), *schedule, "the text form of graph {seed}");
    }
    let device: Box<dyn Device> = Box::new(ChaosDevice::new(seed));
    let found: State = planned
        .run(device, &schedule, 2)
        .unwrap_or_else(|error| panic!("graph {seed}: {error}\n{plan:?}\n{}", schedule.to_text()));
    seen.count(&planned.program, &plan, &schedule);
    iteration.homes = at_home;
    let reference = iteration.checked(self::options(), &iteration.kept(&plan));
    let expected = iteration.run_on_cpu(&reference, 2);
    let differ = differences(&found, &expected);
    assert!(differ.is_empty(), "graph {seed}: {differ:?} differ\n{plan:?}\n{}", schedule.to_text());
}

/// Some or all of the parameters and states at home in host memory.
fn streaming(iteration: &Iteration, random: &mut Random) -> HomeLayout {
    let graph = &iteration.program.graph;
    let percent = random.pick(&[20, 60, 100]);
    let names = graph.persistents().iter().map(|persistent| graph.value(persistent.initial).name.as_str());
    iteration.homes.streaming(&names.filter(|_| random.chance(percent)).collect())
}

fn random_optimizer(random: &mut Random) -> Optimizer {
    let (beta1, beta2, eps, weight_decay) = (0.9, 0.999, 1e-8, 1e-2);
    match random.below(5) {
        0 => sgd(0.0),
        1 => Optimizer::Adam(Adam { beta1, beta2, eps, weight_decay, decoupled: true }),
        _ => sgd(0.9),
    }
}

fn random_options(random: &mut Random) -> Options {
    Options {
        prefetch: random.pick(&[Prefetch::Paper, Prefetch::Lookahead(0), Prefetch::Lookahead(2), Prefetch::Cost]),
        sync: random.pick(&[Sync::PerLayer, Sync::Events]),
        placement: random.pick(&[Placement::Planned, Placement::FirstFit, Placement::SizeClass]),
        alignment: random.pick(&[64, 256]),
        ..self::options()
    }
}

/// A registered policy, half of the time with a budget between its floor and its peak.
fn by_policy(
    iteration: &Iteration,
    encoded: Option<&Iteration>,
    options: Options,
    random: &mut Random,
) -> (Arc<Schedule>, MemoryPlan) {
    // What `optimal` takes is smaller: see `named`.
    let known: Vec<_> = policies::REGISTRY.into_iter().filter(|entry| entry.name != "optimal").collect();
    let mut entry = random.pick(&known);
    // The network-wide allocation keeps everything on the device.
    while iteration.homes.host_extent() > 0 && entry.name.starts_with("baseline") {
        entry = random.pick(&known);
    }
    let problem = |device| iteration.problem_or(encoded, options, device);
    let policy = policies::find(entry.name).unwrap();
    let floor = policy.plan(&problem(Some(0))).unwrap_err().floor;
    let (free, _) = compile_with_policy(&problem(None), policy.as_ref()).unwrap();
    let top = free.peak_bytes(Space::Device);
    assert!(floor <= top, "{}: floor {floor}, unlimited {top}", entry.name);
    let budget = random.chance(50).then(|| random.between(floor, top));
    let state = if random.chance(30) { vdnn_memory::State::Auto } else { vdnn_memory::State::Device };
    let problem = iteration.problem_or(encoded, Options { state, ..options }, budget);
    let (schedule, plan) = compile_with_policy(&problem, policy.as_ref()).unwrap();
    let (schedule, plan) = below(&problem, policy.as_ref(), random).unwrap_or((schedule, plan));
    assert!(!plan.is_encoded() || policy.takes_encodings());
    let violations = vdnn_check::check(&schedule, problem.of(&plan).program);
    assert!(violations.is_empty(), "{} under {budget:?}: {violations:#?}", entry.name);
    (Arc::new(schedule), plan)
}

/// Half of the time the same with a host budget that does not hold what leaves, and a disk; `None` where not even slots fit.
fn below(problem: &Problem<'_>, policy: &dyn MemoryPolicy, random: &mut Random) -> Option<(Schedule, MemoryPlan)> {
    let (schedule, _) = compile_with_policy(problem, policy).unwrap();
    let (homes, needed) = (problem.homes.host_extent(), schedule.peak_bytes(Space::Host));
    if needed <= homes || random.chance(50) {
        return None;
    }
    let host = random.between(homes, needed - 1);
    let budgets = Budgets { host: Some(host), disk: Some(1 << 40), ..problem.budgets };
    match compile_with_policy(&Problem { budgets, ..*problem }, policy) {
        Ok(compiled) => {
            assert!(compiled.0.peak_bytes(Space::Host) <= host);
            Some(compiled)
        }
        Err(PlanError::LowerBudgets { host_needed, host_budget, .. }) => {
            assert!(host_needed > host_budget && host_budget == host);
            None
        }
        // `hybrid` may have more stream than this host budget holds.
        Err(PlanError::HostBudget { .. }) if problem.options.state == vdnn_memory::State::Auto => None,
        Err(other) => panic!("{other}"),
    }
}

impl Seen {
    fn count(&mut self, program: &Program, plan: &MemoryPlan, schedule: &Schedule) {
        let graph = &program.graph;
        let readers = |id| {
            let counts = |node: &Node| node.phase == Phase::Forward && node.op != Op::Accuracy;
            let reads = |node: &&Node| counts(node) && node.inputs.contains(&id);
            graph.nodes().iter().filter(reads).count()
        };
        let with_role = |role| graph.value_ids().filter(move |&id| graph.value(id).role == role);
        let launches =
            || schedule.commands.iter().filter(|c| matches!(c.action, Action::Launch { run, .. } if run > 0));
        let over_input = |node: &Node| {
            let fills = |v| program.aliases.location(v).rows == 1 && program.aliases.location(v).offset == 0;
            let same = |&(i, o): &(usize, usize)| {
                let (from, to) = (node.inputs[i], node.outputs[o]);
                program.aliases.root(from) == program.aliases.root(to) && fills(from) && fills(to)
            };
            node.phase == Phase::Forward && !node.op.is_view() && node.op.in_place().iter().any(same)
        };
        let yes = [
            (&mut self.offload, schedule.transfer_bytes(Direction::Offload) > 0),
            (&mut self.fork, with_role(Role::FeatureMap).any(|id| readers(id) > 1)),
            (&mut self.in_place, graph.nodes().iter().any(over_input)),
            (&mut self.effect, graph.nodes().iter().any(|node| matches!(node.op, Op::BatchNormUpdate(_)))),
            (&mut self.concat_region, with_role(Role::FeatureMap).any(|id| program.aliases.location(id).rows > 1)),
            (&mut self.recomputed, launches().next().is_some()),
            (&mut self.dropped, plan.gaps.values().any(|&residency| residency == Residency::Drop)),
            (&mut self.shared_parameter, with_role(Role::Parameter).any(|id| readers(id) > 1)),
            (&mut self.unused_branch, with_role(Role::FeatureMap).any(|id| readers(id) == 0)),
            (
                &mut self.copied_once,
                schedule.transfer_bytes(Direction::Offload) < schedule.transfer_bytes(Direction::Prefetch),
            ),
            (&mut self.streamed, schedule.homes.iter().any(|home| schedule.buffer(home.buffer).space == Space::Host)),
            (&mut self.on_disk, schedule.disk_bytes(Direction::Prefetch) > 0),
            (&mut self.network_wide, plan.allocation == Allocation::NetworkWide),
        ];
        yes.into_iter().for_each(|(count, is)| *count += u64::from(is));
    }

    fn plus(self, other: Seen) -> Seen {
        Seen {
            offload: self.offload + other.offload,
            fork: self.fork + other.fork,
            in_place: self.in_place + other.in_place,
            effect: self.effect + other.effect,
            concat_region: self.concat_region + other.concat_region,
            recomputed: self.recomputed + other.recomputed,
            dropped: self.dropped + other.dropped,
            shared_parameter: self.shared_parameter + other.shared_parameter,
            unused_branch: self.unused_branch + other.unused_branch,
            network_wide: self.network_wide + other.network_wide,
            copied_once: self.copied_once + other.copied_once,
            streamed: self.streamed + other.streamed,
            policies: self.policies + other.policies,
            encoded: self.encoded + other.encoded,
            encoded_again: self.encoded_again + other.encoded_again,
            encoded_by_hybrid: self.encoded_by_hybrid + other.encoded_by_hybrid,
            on_disk: self.on_disk + other.on_disk,
            on_disk_by_policy: self.on_disk_by_policy + other.on_disk_by_policy,
        }
    }
}
