//! Budgets are kept to the byte, refusals say what is needed, and plans that break a rule are refused by name.

use crate::iteration::{Iteration, options, sgd};
use vdnn_autograd::UpdateAt;
use vdnn_graph::{NodeId, Role, Step, ValueId};
use vdnn_memory::{
    Allocation, Budgets, Infeasible, Liveness, MemoryPlan, Options, Placement, PlanError, Prefetch, Problem, Residency,
    Sync, Tier, VariantId, compile, compile_with_policy, policies,
};
use vdnn_models::{Options as ModelOptions, build};
use vdnn_schedule::{BufferKind, Direction, Space};
use vdnn_sim::oracle_seconds;

fn network(model: &str) -> Iteration {
    let (image_size, channels) = if model == "googlenet" { (64, 3) } else { (28, 1) };
    let net = build(
        model,
        &ModelOptions {
            batch_size: 4,
            image_size: Some(image_size),
            channels: Some(channels),
            classes: Some(10),
            ..ModelOptions::default()
        },
    );
    Iteration::training(net.unwrap(), sgd(0.9), UpdateAt::Layer)
}

fn all_options() -> Vec<Options> {
    let plain = options();
    vec![
        plain,
        Options { sync: Sync::PerLayer, prefetch: Prefetch::Paper, ..plain },
        Options { prefetch: Prefetch::Lookahead(2), ..plain },
        Options { placement: Placement::FirstFit, ..plain },
        Options { placement: Placement::SizeClass, ..plain },
        Options { min_offload: 20_000, memory_optimal_workspace: 1 << 20, ..plain },
    ]
}

fn refusal(problem: &Problem<'_>, policy: &str) -> Infeasible {
    policies::find(policy).unwrap().plan(problem).unwrap_err()
}

#[test]
fn every_policy_plans_at_its_floor_and_not_one_byte_below() {
    for model in ["vgg-small", "resnet-small", "resnet-cifar-8", "googlenet"] {
        let iteration = network(model);
        for options in all_options() {
            for entry in policies::REGISTRY {
                // Policies that search take their time: the options that change how, on the small networks.
                let deep = ["resnet-cifar-8", "googlenet"].contains(&model) && options != self::options();
                let searches = ["hybrid", "checkpoint"].contains(&entry.name);
                if searches && (deep || options.placement != Placement::Planned) {
                    continue;
                }
                let name = format!("{model} {} {options:?}", entry.name);
                let floor = refusal(&iteration.problem(options, Some(0)), entry.name).floor;
                let policy = policies::find(entry.name).unwrap();
                for budget in [floor, floor + 1, floor + floor / 7] {
                    let problem = iteration.problem(options, Some(budget));
                    let (schedule, plan) = compile_with_policy(&problem, policy.as_ref())
                        .unwrap_or_else(|error| panic!("{name}: {error}"));
                    assert!(schedule.peak_bytes(Space::Device) <= budget, "{name}");
                    assert_eq!(vdnn_check::check(&schedule, &iteration.program), vec![], "{name}");
                    assert_eq!(policy.plan(&problem).unwrap(), plan, "{name}: not a pure function");
                }
                let below = refusal(&iteration.problem(options, Some(floor - 1)), entry.name);
                assert_eq!((below.floor, below.budget), (floor, floor - 1), "{name}");
                assert_eq!(below.policy, entry.name);
                assert!(iteration.program.graph.nodes().iter().any(|node| node.name == below.step), "{name}");
                let sizes: Vec<u64> = below.largest.iter().map(|buffer| buffer.bytes).collect();
                assert!(!sizes.is_empty() && sizes.is_sorted_by(|a, b| a >= b), "{name}: {sizes:?}");
                assert!(iteration.problem(options, None).floor_bound() <= floor, "{name}");
            }
        }
    }
}

/// With encoded gradient rules `hybrid` needs less, to the byte; other policies plan as if they were not there.
#[test]
fn an_encoded_alternative_lowers_the_floor_of_hybrid_alone() {
    for model in ["vgg-small", "googlenet"] {
        let (plain, encoded) = (network(model), network(model).encoded().unwrap());
        let problem = |device| plain.problem_or(Some(&encoded), options(), device);
        for entry in policies::REGISTRY.into_iter().filter(|entry| entry.name != "optimal") {
            let policy = policies::find(entry.name).unwrap();
            let floor = refusal(&problem(Some(0)), entry.name).floor;
            let without = refusal(&plain.problem(options(), Some(0)), entry.name).floor;
            if !policy.takes_encodings() {
                assert_eq!(floor, without, "{model} {}", entry.name);
                continue;
            }
            // In the other network the largest kernel sets the floor, with masks or without.
            let lower = model == "vgg-small";
            assert!(floor + u64::from(lower) <= without, "{model}: {floor} with masks, {without} without");
            assert_eq!(refusal(&problem(Some(floor - 1)), entry.name).floor, floor);
            let (schedule, plan) = compile_with_policy(&problem(Some(floor)), policy.as_ref()).unwrap();
            assert!(schedule.peak_bytes(Space::Device) <= floor && (plan.is_encoded() || !lower), "{model}");
            let (of, other) = if plan.is_encoded() { (&encoded, &plain) } else { (&plain, &encoded) };
            assert!(!plan.is_encoded() || plan.variants == problem(None).variants());
            assert_eq!(vdnn_check::check(&schedule, &of.program), vec![], "{model}");
            assert!(!vdnn_check::check(&schedule, &other.program).is_empty(), "no schedule of the other program");
            assert!(problem(None).floor_bound() <= floor);
            // Without a budget everything stays as it is; within one that keeps everything, the quicker program does.
            let (kept, plan) = compile_with_policy(&problem(None), policy.as_ref()).unwrap();
            assert!(!plan.is_encoded());
            let top = kept.peak_bytes(Space::Device);
            let seconds = |it: &Iteration| oracle_seconds(&it.program, &it.kernels);
            let quicker = seconds(&encoded) < seconds(&plain);
            assert_eq!(policy.plan(&problem(Some(top))).unwrap().is_encoded(), quicker, "{model}");
        }
    }
}

/// A plan is for one of the two programs: no rule alone is encoded or plain.
#[test]
fn a_mixture_of_rules_is_refused() {
    let (plain, encoded) = (network("vgg-small"), network("vgg-small").encoded().unwrap());
    let problem = plain.problem_or(Some(&encoded), options(), None);
    let all = problem.variants();
    assert!(all.len() > 1);
    let with = |variants| MemoryPlan { variants, ..MemoryPlan::keep_all(&plain.program) };
    assert!(compile(&problem, &with(all.clone()), "test").is_ok());
    let mut some = all.clone();
    let (node, _) = some.pop_first().unwrap();
    let name = &plain.program.graph.node(node).name;
    let error = compile(&problem, &with(some), "test").unwrap_err().to_string();
    assert!(error.contains(&format!("all gradient rules encoded or none, found {name} plain")), "{error}");
    refused(&plain, &with(all), "has no variant 1");
}

#[test]
fn the_refusal_reads_as_advice() {
    let text = refusal(&network("vgg-small").problem(options(), Some(1000)), "all").to_string();
    for part in [
        "policy all needs at least",
        "bytes) of device memory",
        "the budget is",
        "the peak is at",
        "try a larger budget",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// Homes, then everything but gradients for the whole iteration, then gradient slots of the largest size, then one
/// workspace of the largest size, counted here from the program alone.
#[test]
fn the_baseline_is_accounted_for() {
    // In a chain two gradients live at once, dY and dX; a residual block holds one more for its other branch.
    for (model, expected_slots) in [("vgg-small", 2), ("resnet-small", 3)] {
        let iteration = network(model);
        let (program, options) = (&iteration.program, options());
        let policy = policies::find("baseline").unwrap();
        let (schedule, plan) = compile_with_policy(&iteration.problem(options, None), policy.as_ref()).unwrap();
        assert_eq!(plan.allocation, Allocation::NetworkWide);
        let liveness = Liveness::analyse(program, &plan.order);
        let role = |id: ValueId| program.graph.value(id).role;
        let mut extent = iteration.homes.extent();
        let mut gradients = Vec::new();
        for &root in liveness.roots() {
            if role(root) == Role::Gradient {
                gradients.push(root);
            } else {
                extent = extent.next_multiple_of(options.alignment) + program.aliases.storage_bytes(root);
            }
        }
        let span = |root: ValueId| {
            let accesses = liveness.accesses(root);
            accesses[0].step.0..=accesses[accesses.len() - 1].step.0
        };
        let at_once = |step: u32| gradients.iter().filter(|&&root| span(root).contains(&step)).count() as u64;
        let slots = (0..plan.order.len() as u32).map(at_once).max().unwrap();
        let largest = gradients.iter().map(|&root| program.aliases.storage_bytes(root)).max().unwrap();
        let stride = largest.next_multiple_of(options.alignment);
        extent = extent.next_multiple_of(options.alignment) + (slots - 1) * stride + largest;
        let workspace = schedule.buffers.iter().filter(|buffer| buffer.kind == BufferKind::Workspace);
        if let Some(bytes) = workspace.map(|buffer| buffer.bytes).max() {
            extent = extent.next_multiple_of(options.alignment) + bytes;
        }
        assert_eq!(schedule.peak_bytes(Space::Device), extent, "{model}: {slots} slots");
        assert_eq!(slots, expected_slots, "{model}");
    }
}

#[test]
fn the_host_budget_is_kept_or_refused() {
    let iteration = network("vgg-small");
    let policy = policies::find("all").unwrap();
    let problem = iteration.problem(options(), None);
    let (schedule, plan) = compile_with_policy(&problem, policy.as_ref()).unwrap();
    let needed = schedule.peak_bytes(Space::Host);
    assert!(needed > 0 && needed <= schedule.transfer_bytes(Direction::Offload) + 256 * 64);
    let with_host = |host| Problem { budgets: Budgets { device: None, host: Some(host), disk: None }, ..problem };
    assert_eq!(compile(&with_host(needed), &plan, "all").unwrap().peak_bytes(Space::Host), needed);
    match compile(&with_host(needed - 1), &plan, "all") {
        Err(error @ PlanError::HostBudget { .. }) => {
            let text = error.to_string();
            assert!(text.contains("host budget") && text.contains(&needed.to_string()), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

/// A plan, and a word of the reason it is refused for.
fn refused(iteration: &Iteration, plan: &MemoryPlan, reason: &str) {
    match iteration.compile(options(), plan) {
        Err(PlanError::IllegalPlan { reason: found }) => assert!(found.contains(reason), "{found}"),
        Ok(_) => panic!("accepted; expected: {reason}"),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn plans_that_break_a_rule_are_refused() {
    let iteration = network("vgg-small");
    let program = &iteration.program;
    let kept = MemoryPlan::keep_all(program);
    let gap = policies::feature_gaps(&iteration.problem(options(), None))[0].gap;
    let key = (gap.root, kept.order[gap.to.step.index()]);
    let with = |residency| MemoryPlan { gaps: [(key, residency)].into(), ..kept.clone() };
    let window = |release, fetch| Residency::Offload { tier: Tier::Host, release: Step(release), fetch: Step(fetch) };
    let (from, to) = (gap.from.step.0, gap.to.step.0);
    assert!(iteration.compile(options(), &with(window(from + 1, to))).is_ok());
    refused(&iteration, &with(window(from, to)), "expected from < release <= fetch <= to");
    refused(&iteration, &with(window(from + 2, from + 1)), "expected from < release <= fetch <= to");
    refused(&iteration, &with(window(from + 1, to + 1)), "expected from < release <= fetch <= to");
    refused(&iteration, &with(Residency::Drop), "the next use reads it");
    let disk = |written, read| {
        let tier = Tier::Disk { written: Step(written), read: Step(read) };
        with(Residency::Offload { tier, release: Step(from + 1), fetch: Step(to - 1) })
    };
    assert!(iteration.compile(options(), &disk(from + 1, to - 1)).is_ok());
    assert!(iteration.compile(options(), &disk(to, from + 1)).is_ok());
    for (written, read) in [(from, to - 1), (to + 1, to - 1), (from + 1, from), (from + 1, to)] {
        refused(&iteration, &disk(written, read), "expected from < written <= to and from < read <= fetch");
    }
    refused(&iteration, &MemoryPlan { order: kept.order[1..].to_vec(), ..kept.clone() }, "never runs");
    let mut order = kept.order.clone();
    order[3].run = 1;
    refused(&iteration, &MemoryPlan { order, ..kept.clone() }, "out of turn");
    let far = [(NodeId(0), 99)].into();
    refused(&iteration, &MemoryPlan { algos: far, ..kept.clone() }, "no algorithm number 99");
    let variant = [(NodeId(0), VariantId(1))].into();
    refused(&iteration, &MemoryPlan { variants: variant, ..kept.clone() }, "no variant 1");
    let wide = MemoryPlan { allocation: Allocation::NetworkWide, ..with(window(from + 1, to)) };
    refused(&iteration, &wide, "network-wide");
    let unknown = [((gap.root, kept.order[0]), Residency::Keep)].into();
    let nowhere = MemoryPlan { gaps: unknown, ..kept.clone() };
    assert!(iteration.compile(options(), &nowhere).is_ok(), "keeping is what happens anyway");
    let mut nowhere = nowhere;
    nowhere.gaps.insert((gap.root, kept.order[0]), window(from + 1, to));
    refused(&iteration, &nowhere, "no gap");
}
