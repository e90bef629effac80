//! Budgets below the floor of `optimal`, and problems that are too large for it.

use super::{Instance, brute, instances};
use crate::iteration::{Iteration, options, sgd};
use vdnn_autograd::UpdateAt;
use vdnn_layers::Mode;
use vdnn_memory::policies;
use vdnn_memory::{PlanError, compile_with_policy};

/// The floor is the least extent of all plans, to the byte; the refusal names a step and the buffers there.
#[test]
fn the_floor_is_that_of_the_best_of_all_plans() {
    for instance in instances() {
        let name = instance.name();
        let floor = brute::least_extent(&instance.problem(None));
        for budget in [0, floor / 2, floor - 1] {
            let refusal = instance.refusal("optimal", budget);
            assert_eq!((refusal.floor, refusal.budget), (floor, budget), "{name}");
            assert_eq!((refusal.policy.as_str(), &refusal.too_large), ("optimal", &None), "{name}");
            assert!(instance.program.graph.nodes().iter().any(|node| node.name == refusal.step), "{name}: {refusal}");
            let sizes: Vec<u64> = refusal.largest.iter().map(|buffer| buffer.bytes).collect();
            assert!(!sizes.is_empty() && sizes.is_sorted_by(|a, b| a >= b), "{name}: {sizes:?}");
        }
        assert!(instance.seconds("optimal", floor).is_some(), "{name} at its floor");
        assert!(instance.problem(None).floor_bound() <= floor, "{name}");
        // What is so small is left to `optimal`, but refused in the policy's own name.
        let hybrid = instance.refusal("hybrid", floor - 1);
        assert_eq!((hybrid.floor, hybrid.policy.as_str()), (floor, "hybrid"), "{name}");
    }
}

/// The same plan every time, and never slower for more bytes.
#[test]
fn it_is_a_pure_function_that_gains_by_bytes() {
    let optimal = policies::find("optimal").unwrap();
    for instance in [Instance::named("residual", "even"), Instance::named("norms", "slow-link")] {
        let floor = instance.refusal("optimal", 0).floor;
        let mut last = f64::INFINITY;
        for budget in (floor..).step_by(1500).take(14) {
            let plan = optimal.plan(&instance.problem(Some(budget))).unwrap();
            assert_eq!(optimal.plan(&instance.problem(Some(budget))).unwrap(), plan);
            let seconds = instance.seconds("optimal", budget).unwrap();
            assert!(seconds <= last, "{}: {seconds} s in {budget} bytes, {last} s in fewer", instance.name());
            last = seconds;
        }
    }
}

/// A network of more steps than are proved: refused by what there is too much of, unless everything fits.
#[test]
fn what_is_too_large_is_refused_by_name() {
    let iteration = Iteration::training(crate::cases::forked(4, Mode::Train), sgd(0.9), UpdateAt::Layer);
    let optimal = policies::find("optimal").unwrap();
    let problem = iteration.problem(options(), Some(30_000));
    let steps = iteration.program.n_steps();
    match compile_with_policy(&problem, optimal.as_ref()) {
        Err(error @ PlanError::TooLarge { .. }) => {
            let text = error.to_string();
            for part in ["optimal", "expected at most 28 steps", &format!("found {steps}"), "use `hybrid`"] {
                assert!(text.contains(part), "{text}");
            }
        }
        other => panic!("{steps} steps must be refused, got {other:?}"),
    }
    let refusal = optimal.plan(&problem).unwrap_err();
    assert_eq!((refusal.budget, refusal.too_large.unwrap().found), (30_000, Some(steps)));
    let below = optimal.plan(&iteration.problem(options(), Some(refusal.floor - 1))).unwrap_err();
    assert_eq!(below.floor, refusal.floor);
    for budget in [None, Some(refusal.floor), Some(u64::MAX)] {
        let plan = optimal.plan(&iteration.problem(options(), budget)).unwrap();
        assert!(plan.gaps.is_empty() && plan.algos.is_empty(), "where everything fits there is nothing to prove");
    }
}
