//! Parameters and states at home in host memory: what moves when, and what is refused.

use crate::cases::forked;
use crate::iteration::{Iteration, options, sgd};
use std::collections::BTreeSet;
use vdnn_autograd::UpdateAt;
use vdnn_graph::{Role, Step, ValueId};
use vdnn_layers::Mode;
use vdnn_memory::{
    Allocation, Budgets, Liveness, MemoryPlan, PlanError, Problem, Residency, Tier, compile, compile_with_policy,
    policies,
};
use vdnn_schedule::{Action, BufferKind, Direction, Schedule, Space};

fn streaming() -> Iteration {
    let mut iteration = Iteration::training(forked(4, Mode::Train), sgd(0.9), UpdateAt::Layer);
    iteration.homes = iteration.homes.streaming_from(0);
    iteration
}

/// Copies of a value from and to its home.
fn copies(schedule: &Schedule, id: ValueId) -> [usize; 2] {
    let home = schedule.home_of(id).unwrap().buffer;
    let transfers = schedule.commands.iter().filter_map(|command| match &command.action {
        Action::Transfer { direction, src, dst } => Some((*direction, src.buffer, dst.buffer)),
        _ => None,
    });
    let all: Vec<_> = transfers.collect();
    let up = all.iter().filter(|(way, src, _)| *way == Direction::Prefetch && *src == home).count();
    let down = all.iter().filter(|(way, _, dst)| *way == Direction::Offload && *dst == home).count();
    [up, down]
}

#[test]
fn each_comes_up_for_its_uses_and_goes_home_once() {
    let iteration = streaming();
    let graph = &iteration.program.graph;
    let none = policies::find("none").unwrap();
    let (schedule, _) = compile_with_policy(&iteration.problem(options(), None), none.as_ref()).unwrap();
    assert_eq!(vdnn_check::check(&schedule, &iteration.program), vec![]);
    let mut twice = 0;
    for persistent in graph.persistents() {
        let value = graph.value(persistent.initial);
        let home = schedule.buffer(schedule.home_of(persistent.initial).unwrap().buffer);
        assert_eq!((home.space, home.kind), (Space::Host, BufferKind::Home), "{}", value.name);
        let [up, down] = copies(&schedule, persistent.initial);
        assert_eq!(down, usize::from(persistent.initial != persistent.last), "{}", value.name);
        // Momentum is used by its update alone; a parameter may be away between forward and backward, a shared one oftener.
        let readers = graph.nodes().iter().filter(|node| node.inputs.contains(&persistent.initial)).count();
        assert!(up == 1 || (value.role == Role::Parameter && up <= readers), "{}: {up} of {readers}", value.name);
        twice += usize::from(up == 2);
    }
    assert!(twice > 0);
    // Nothing but inputs and results stays on the device.
    let left = schedule.homes.iter().filter(|home| schedule.buffer(home.buffer).space == Space::Device);
    assert!(left.map(|home| graph.value(home.initial).role).all(|role| matches!(role, Role::Input | Role::Metric)));
}

#[test]
fn what_nothing_updates_is_only_fetched() {
    let mut iteration = Iteration::forward(forked(4, Mode::Eval));
    iteration.homes = iteration.homes.streaming_from(0);
    let hybrid = policies::find("hybrid").unwrap();
    let (schedule, _) = compile_with_policy(&iteration.problem(options(), None), hybrid.as_ref()).unwrap();
    assert_eq!(vdnn_check::check(&schedule, &iteration.program), vec![]);
    assert_eq!(schedule.transfer_bytes(Direction::Offload), 0);
    assert!(schedule.transfer_bytes(Direction::Prefetch) >= iteration.program.graph.bytes_of(Role::Parameter));
}

#[test]
fn homes_count_in_the_host_budget() {
    let iteration = streaming();
    let none = policies::find("none").unwrap();
    let with_host = |host| Problem {
        budgets: Budgets { device: None, host: Some(host), disk: None },
        ..iteration.problem(options(), None)
    };
    let needed = iteration.homes.host_extent();
    let (schedule, _) = compile_with_policy(&with_host(needed), none.as_ref()).unwrap();
    assert_eq!(schedule.peak_bytes(Space::Host), needed);
    match compile_with_policy(&with_host(needed - 1), none.as_ref()) {
        Err(error @ PlanError::HostBudget { .. }) => {
            assert!(error.to_string().contains(&needed.to_string()), "{error}")
        }
        other => panic!("{other:?}"),
    }
}

/// A plan says what streams; without any windows it is as short on the device as can be.
#[test]
fn a_plan_moves_homes() {
    let iteration = Iteration::training(forked(4, Mode::Train), sgd(0.9), UpdateAt::Layer);
    let graph = &iteration.program.graph;
    let states = graph.persistents().iter().map(|persistent| persistent.initial);
    let streamed: BTreeSet<ValueId> = states.filter(|&id| graph.value(id).role == Role::State).collect();
    let plan = MemoryPlan { streamed: streamed.clone(), ..MemoryPlan::keep_all(&iteration.program) };
    let schedule = iteration.checked(options(), &plan);
    let bytes: u64 = streamed.iter().map(|&id| graph.value(id).ty.bytes()).sum();
    let homes = schedule.homes.iter().map(|home| schedule.buffer(home.buffer));
    assert_eq!(homes.filter(|home| home.space == Space::Host).map(|home| home.bytes).sum::<u64>(), bytes);
    let wide = MemoryPlan { allocation: Allocation::NetworkWide, ..plan };
    refused(&iteration.problem(options(), None), &wide, "has its home in host memory");
}

fn refused(problem: &Problem<'_>, plan: &MemoryPlan, reason: &str) {
    match compile(problem, plan, "test") {
        Err(PlanError::IllegalPlan { reason: found }) => assert!(found.contains(reason), "{found}"),
        other => panic!("expected {reason}, found {other:?}"),
    }
}

#[test]
fn illegal_windows_around_the_iteration_are_refused() {
    let iteration = streaming();
    let problem = iteration.problem(options(), None);
    let plan = MemoryPlan::keep_all(&iteration.program);
    let liveness = Liveness::of(&problem, &plan.order);
    let gap = liveness.streamed().iter().filter_map(|&root| liveness.wrap(root)).next().unwrap();
    assert!(gap.wraps());
    let (from, to, end) = (gap.from.step.0, gap.to.step.0, plan.order.len() as u32);
    let with = |residency| {
        let mut plan = plan.clone();
        plan.gaps.insert((gap.root, plan.order[to as usize]), residency);
        plan
    };
    let away = |tier, release, fetch| with(Residency::Offload { tier, release: Step(release), fetch: Step(fetch) });
    assert!(compile(&problem, &away(Tier::Host, end, 0), "test").is_ok());
    refused(&problem, &away(Tier::Host, from, to), "around the iteration");
    refused(&problem, &away(Tier::Host, end + 1, to), "around the iteration");
    refused(&problem, &away(Tier::Host, end, to + 1), "around the iteration");
    refused(&problem, &away(Tier::Disk { written: Step(end), read: Step(to) }, end, to), "on disk");
    let between =
        liveness.streamed().iter().find_map(|&root| liveness.gaps(root).find(|gap| gap.to.step.0 > 5)).unwrap();
    let (from, to) = (between.from.step, between.to.step);
    let tier = Tier::Disk { written: to, read: to };
    let mut within = plan.clone();
    let ends = (between.root, plan.order[to.index()]);
    within.gaps.insert(ends, Residency::Offload { tier, release: Step(from.0 + 1), fetch: to });
    refused(&problem, &within, "its home in host memory holds its bytes");
    refused(&problem, &with(Residency::Drop), "the next iteration reads it");
}
