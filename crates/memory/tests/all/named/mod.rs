//! Named small graphs on named machines: the lower bound, the best of all plans, and what each policy makes of a budget.
//!
//! ```text
//!  bound ≤ best of all plans (brute) = optimal ≤ every other policy          at the floor, and 25, 50, 75 % above it
//! ```
//! The table of all of it is `benches/results/named-graphs.md` (`UPDATE_EXPECT=1` writes it anew).

mod brute;
mod graphs;
mod greedy;
mod machines;
mod random;
mod refusals;
mod stage;

use crate::iteration::options;
use expect_test::expect_file;
use graphs::GRAPHS;
use greedy::{ORDERS, in_a_row};
use machines::{MACHINES, Machine};
use vdnn_graph::Program;
use vdnn_memory::policies::{self, REGISTRY};
use vdnn_memory::{
    Budgets, HomeLayout, Infeasible, MemoryPlan, Problem, compile, compile_with_policy, step_time_bound,
};
use vdnn_schedule::{KernelTable, Space};
use vdnn_sim::simulate;

/// Sums of the same times in another order differ by rounding.
const ROUNDING: f64 = 1.0 + 1e-9;

/// Budgets of an instance: the floor, and so many parts of the way from there to what keeping everything needs.
const PARTS: u64 = 4;

/// A graph on a machine.
struct Instance {
    graph: &'static str,
    program: Program,
    kernels: KernelTable,
    homes: HomeLayout,
    machine: &'static Machine,
}

impl Instance {
    fn new((graph, build): graphs::Named, machine: &'static Machine) -> Self {
        let program = build(graph);
        let homes = HomeLayout::for_graphs(&[&program.graph], 256);
        let kernels = machine.kernels(&program);
        Instance { graph, program, kernels, homes, machine }
    }

    fn named(graph: &str, machine: &str) -> Self {
        let graph = GRAPHS.into_iter().find(|(name, _)| *name == graph).unwrap();
        Self::new(graph, MACHINES.iter().find(|known| known.name == machine).unwrap())
    }

    fn name(&self) -> String {
        format!("{} on {}", self.graph, self.machine.name)
    }

    fn problem(&self, device: Option<u64>) -> Problem<'_> {
        Problem {
            program: &self.program,
            kernels: &self.kernels,
            links: self.machine.links(),
            homes: &self.homes,
            budgets: Budgets { device, host: None, disk: None },
            options: options(),
            encoded: None,
        }
    }

    /// Simulated seconds of a policy's checked plan, if it has one.
    fn seconds(&self, policy: &str, budget: u64) -> Option<f64> {
        let problem = self.problem(Some(budget));
        let (schedule, _) = compile_with_policy(&problem, policies::find(policy).unwrap().as_ref()).ok()?;
        assert_eq!(vdnn_check::check(&schedule, &self.program), vec![], "{} under {policy}", self.name());
        assert!(schedule.peak_bytes(Space::Device) <= budget, "{} under {policy}", self.name());
        Some(simulate(&schedule, &self.kernels, &problem.links).unwrap().seconds)
    }

    fn seconds_of(&self, plan: &MemoryPlan) -> f64 {
        let problem = self.problem(None);
        let schedule = compile(&problem, plan, "test").unwrap();
        simulate(&schedule, &self.kernels, &problem.links).unwrap().seconds
    }

    /// The refusal of a budget.
    fn refusal(&self, policy: &str, budget: u64) -> Infeasible {
        policies::find(policy).unwrap().plan(&self.problem(Some(budget))).unwrap_err()
    }

    /// The floor of `optimal`, and budgets above it.
    fn budgets(&self) -> Vec<u64> {
        let keep = MemoryPlan::keep_all(&self.program);
        let top = compile(&self.problem(None), &keep, "keep").unwrap().peak_bytes(Space::Device);
        let floor = self.refusal("optimal", 0).floor;
        let mut budgets: Vec<u64> = (0..PARTS).map(|part| floor + (top - floor) * part / PARTS).collect();
        budgets.dedup();
        budgets
    }

    /// A row of the table, once everything in it holds.
    fn row(&self, budget: u64) -> String {
        let name = format!("{} in {budget} bytes", self.name());
        let bound = step_time_bound(&self.problem(Some(budget))).seconds;
        let best = brute::least_seconds(&self.problem(Some(budget)));
        assert!(bound <= best * ROUNDING, "{name}: bound {bound}, best {best}");
        for entry in REGISTRY {
            let seconds = self.seconds(entry.name, budget).unwrap_or(f64::INFINITY);
            assert!(best <= seconds * ROUNDING, "{name}: best {best}, {} {seconds}", entry.name);
        }
        let of = |policy| self.seconds(policy, budget);
        let (optimal, hybrid) = (of("optimal").unwrap(), of("hybrid").unwrap());
        assert!((optimal - best).abs() <= best * 1e-9, "{name}: best {best}, optimal {optimal}");
        assert!(hybrid <= best * 1.02, "{name}: best {best}, hybrid {hybrid}");
        let shown = |seconds: Option<f64>| seconds.map_or("–".to_string(), |seconds| format!("{seconds:.2}"));
        let (graph, machine, steps) = (self.graph, self.machine.name, self.program.n_steps());
        format!(
            "| {graph} | {machine} | {steps} | {budget} | {bound:.2} | {best:.2} | {optimal:.2} | {hybrid:.2} | {} | {} |\n",
            shown(of("dyn")),
            shown(of("checkpoint"))
        )
    }
}

fn instances() -> impl Iterator<Item = Instance> {
    GRAPHS.into_iter().flat_map(|graph| MACHINES.iter().map(move |machine| Instance::new(graph, machine)))
}

const HEAD: &str = "\
# Small graphs with names

Every plan of each was made (`crates/memory/tests/all/named/brute.rs`): seconds of the best beside the lower bound and what policies
find, in the least bytes in which there is a plan and at a quarter, a half and three quarters of the way to what keeping everything
needs. Steps are of the whole iteration; the machines are made up (`machines.rs` there). `hybrid` leaves programs as small as these to
`optimal`. Written by `UPDATE_EXPECT=1 cargo test --release -p vdnn-memory --test all named::`.

| graph | machine | steps | budget (bytes) | bound | best | optimal | hybrid | dyn | checkpoint |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

/// The order of everything on every instance at every budget, and the table.
#[test]
fn optimal_is_the_best_of_all_plans_and_no_policy_is_below_it() {
    let mut table = HEAD.to_string();
    let mut count = 0;
    for instance in instances() {
        assert!(instance.program.n_steps() <= 12, "{}", instance.name());
        count += 1;
        table.extend(instance.budgets().into_iter().map(|budget| instance.row(budget)));
    }
    println!("{table}");
    assert!(count >= 50 && GRAPHS.len() >= 20);
    expect_file!["../../../../../benches/results/named-graphs.md"].assert_eq(&table);
}

/// Where deciding all at once pays: in no order of passes, nor by `dyn` or `checkpoint`, is a plan within 2 % of `hybrid`'s.
#[test]
fn passes_one_after_the_other_miss_what_hybrid_finds() {
    for (graph, machine, share, least) in [
        // Best is one map made again and one moved. Passes move both, over a link that hides neither.
        ("norms", "slow-link", 0, 1.5),
        // The same, and the map that is made again is a convolution's.
        ("frozen-relu", "slow-link", 1, 1.2),
        // Two kernels run with less workspace than there is room for, so that a copy up begins two steps earlier.
        ("wide-then-narrow", "even", 0, 1.08),
    ] {
        let instance = Instance::named(graph, machine);
        let budget = instance.budgets()[share];
        let problem = instance.problem(Some(budget));
        let in_passes = ORDERS.into_iter().filter_map(|order| in_a_row(&problem, order));
        let seconds = in_passes.map(|plan| instance.seconds_of(&plan));
        let alone = ["dyn", "checkpoint"].into_iter().filter_map(|policy| instance.seconds(policy, budget));
        let greedy = seconds.chain(alone).fold(f64::INFINITY, f64::min);
        let hybrid = instance.seconds("hybrid", budget).unwrap();
        println!("{} in {budget} bytes: {greedy:.2} s in passes, {hybrid:.2} s by hybrid", instance.name());
        assert!(
            greedy.is_finite() && greedy >= hybrid * least && least > 1.02,
            "{}: {greedy} {hybrid}",
            instance.name()
        );
    }
}
