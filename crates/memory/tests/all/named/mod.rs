//! Named small graphs on named machines: the lower bound, the best of all plans, and what each policy makes of a budget.

mod brute;
mod graphs;
mod machines;
mod stage;

use crate::iteration::options;
use graphs::GRAPHS;
use machines::{MACHINES, Machine};
use std::time::Instant;
use vdnn_graph::Program;
use vdnn_memory::policies::{self, REGISTRY};
use vdnn_memory::{Budgets, HomeLayout, Problem, compile_with_policy, step_time_bound};
use vdnn_schedule::{KernelTable, Space};
use vdnn_sim::simulate;

/// A graph on a machine.
struct Instance {
    name: String,
    program: Program,
    kernels: KernelTable,
    homes: HomeLayout,
    machine: &'static Machine,
}

impl Instance {
    fn new((name, build): graphs::Named, machine: &'static Machine) -> Self {
        let program = build(name);
        let homes = HomeLayout::for_graphs(&[&program.graph], 256);
        let kernels = machine.kernels(&program);
        Instance { name: format!("{name} on {}", machine.name), program, kernels, homes, machine }
    }

    fn problem(&self, device: Option<u64>) -> Problem<'_> {
        Problem {
            program: &self.program,
            kernels: &self.kernels,
            links: self.machine.links(),
            homes: &self.homes,
            budgets: Budgets { device, host: None },
            options: options(),
            encoded: None,
        }
    }

    /// Simulated seconds and extent of a policy's checked plan.
    fn outcome(&self, policy: &str, device: Option<u64>) -> Option<(f64, u64)> {
        let problem = self.problem(device);
        let (schedule, _) = compile_with_policy(&problem, policies::find(policy).unwrap().as_ref()).ok()?;
        assert_eq!(vdnn_check::check(&schedule, &self.program), vec![], "{} under {policy}", self.name);
        let seconds = simulate(&schedule, &self.kernels, &problem.links).unwrap().seconds;
        Some((seconds, schedule.peak_bytes(Space::Device)))
    }
}

fn instances() -> impl Iterator<Item = Instance> {
    GRAPHS.into_iter().flat_map(|graph| MACHINES.iter().map(move |machine| Instance::new(graph, machine)))
}

#[test]
fn probe() {
    let only = std::env::var("ONLY").unwrap_or_default();
    for instance in instances().filter(|i| i.name.contains(&only)) {
        let n = instance.program.n_steps();
        assert!(n <= 12, "{}: {n} steps", instance.name);
        let (_, top) = instance.outcome("none", None).unwrap();
        let t = Instant::now();
        let floor = policies::find("optimal").unwrap().plan(&instance.problem(Some(0))).unwrap_err().floor;
        let t_floor = t.elapsed();
        let t = Instant::now();
        let least = brute::least_extent(&instance.problem(None));
        println!("{} steps {n} top {top} floor {floor} {t_floor:?} brute {least} {:?}", instance.name, t.elapsed());
        for part in 0..4 {
            let budget = floor + (top - floor) * part / 4;
            let bound = step_time_bound(&instance.problem(Some(budget))).seconds;
            let t = Instant::now();
            let optimal = instance.outcome("optimal", Some(budget)).map(|o| o.0);
            let t_opt = t.elapsed();
            let t = Instant::now();
            let best = brute::least_seconds(&instance.problem(Some(budget)));
            let t_best = t.elapsed();
            let t = Instant::now();
            let hybrid = instance.outcome("hybrid", Some(budget)).map(|o| o.0);
            let t_h = t.elapsed();
            let dyn_ = instance.outcome("dyn", Some(budget)).map(|o| o.0);
            println!("   {part}: bound {bound:.3} best {best:.3} optimal {optimal:?} hybrid {hybrid:?} dyn {dyn_:?}   opt {t_opt:?} brute {t_best:?} hyb {t_h:?} {} {}",
              if optimal.is_none_or(|o| (o/best-1.0).abs() > 1e-9) {"DIFF"} else {""},
              if hybrid.is_none_or(|o| o/best > 1.02) {"HYB"} else {""});
        }
    }
    let _ = REGISTRY;
}
