//! The bound where parameters and states may stream: below every plan in which some do, and never above the one without.

use super::{Made, ROUNDING, live_peak, packed};
use crate::plan::random_plan;
use crate::random::Random;
use vdnn_memory::{HomeLayout, MemoryPlan, Options, Problem, State, compile, step_time_bound};
use vdnn_sim::{oracle_seconds, simulate};

fn streaming(made: &Made, random: &mut Random) -> HomeLayout {
    let graph = &made.iteration.program.graph;
    let percent = random.pick(&[30, 70, 100]);
    let names = graph.persistents().iter().map(|persistent| graph.value(persistent.initial).name.as_str());
    made.iteration.homes.streaming(&names.filter(|_| random.chance(percent)).collect())
}

/// Memory and time of a plan under these homes. The memory is the largest live set, which is less than addresses need.
fn outcome(problem: &Problem<'_>, plan: &MemoryPlan) -> (u64, f64) {
    let schedule = compile(problem, plan, "test").unwrap();
    let timeline = simulate(&schedule, problem.kernels, &problem.links).unwrap();
    (problem.homes.extent() + live_peak(&schedule), timeline.seconds)
}

/// Algorithms, gaps or windows of another plan, or this one's own with one gap at another time.
fn other(problem: &Problem<'_>, plan: &MemoryPlan, random: &mut Random) -> MemoryPlan {
    let next = random_plan(problem, random);
    if random.chance(30) || next.order != plan.order {
        return next;
    }
    let mut mixed = plan.clone();
    match random.chance(50) {
        true => mixed.algos = next.algos,
        false => mixed.gaps.extend(next.gaps.into_iter().filter(|_| random.chance(20))),
    }
    mixed
}

#[test]
fn no_plan_that_streams_is_quicker() {
    let (mut above_kernels, mut nearest) = (0, f64::INFINITY);
    for seed in 0..150 {
        let made = Made::random(20_000 + seed);
        let mut random = Random::new(seed);
        let homes = streaming(&made, &mut random);
        let problem = Problem { homes: &homes, ..made.problem(None) };
        let mut plan = random_plan(&problem, &mut random);
        let mut best = f64::INFINITY;
        for _ in 0..25 {
            let next = other(&problem, &plan, &mut random);
            let (memory, seconds) = outcome(&problem, &next);
            let options = Options { state: State::Auto, ..packed() };
            let bound = step_time_bound(&Problem { options, ..made.problem(Some(memory)) }).seconds;
            assert!(
                bound <= seconds * ROUNDING,
                "seed {seed}: bound {bound} for {memory} bytes, yet {seconds}: {next:?}"
            );
            // With these homes alone it is at least as high.
            let fixed = Problem { budgets: made.problem(Some(memory)).budgets, ..problem };
            let own = step_time_bound(&fixed).seconds;
            assert!(bound <= own * ROUNDING && own <= seconds * ROUNDING, "seed {seed}: {bound} {own} {seconds}");
            above_kernels += u32::from(bound > oracle_seconds(&made.iteration.program, &made.iteration.kernels));
            if seconds / bound <= best {
                (plan, best) = (next, seconds / bound);
            }
        }
        nearest = nearest.min(best);
    }
    println!("{above_kernels} bounds above the kernels alone; the nearest plan takes {nearest} of its bound");
    assert!(above_kernels > 50, "{above_kernels}");
}

#[test]
fn it_never_rises_with_the_budget_nor_above_the_bound_at_home() {
    for seed in 0..40 {
        let made = Made::random(30_000 + seed);
        let (peak, _) = outcome(&made.problem(None), &MemoryPlan::keep_all(&made.iteration.program));
        let problem = |state, budget| Problem { options: Options { state, ..packed() }, ..made.problem(Some(budget)) };
        let floor = problem(State::Auto, 0).floor_bound();
        assert!(floor <= problem(State::Device, 0).floor_bound());
        assert_eq!(step_time_bound(&problem(State::Auto, floor - 1)).seconds, f64::INFINITY);
        let mut last = f64::INFINITY;
        for part in 0..=32 {
            let budget = floor + (peak - floor) * part / 32;
            let [auto, at_home] =
                [State::Auto, State::Device].map(|state| step_time_bound(&problem(state, budget)).seconds);
            assert!(auto <= at_home * ROUNDING && auto <= last * ROUNDING, "seed {seed}, {part} of 32");
            last = auto;
        }
        assert_eq!(last, oracle_seconds(&made.iteration.program, &made.iteration.kernels));
    }
}
