//! Budgets swept from the least `hybrid` plans with to what is used without a limit: kept, checked, and never slower for more
//! bytes. The table with every budget of every network: `examples/sweep.rs`.

use crate::figures::training;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use vdnn_autograd::encode;
use vdnn_graph::Program;
use vdnn_memory::{Budgets, Encoded, HomeLayout, Options, PlanError, Problem, State, compile_with_policy, policies};
use vdnn_schedule::{KernelTable, Space};
use vdnn_sim::{Machine, oracle_seconds, simulate};

/// Networks at batch sizes that the paper's card does not hold, or only just.
pub const NETWORKS: [(&str, u64); 6] =
    [("googlenet", 256), ("resnet50", 128), ("resnet152", 64), ("densenet121", 128), ("vgg16", 256), ("alexnet", 512)];

/// What a policy makes of a budget.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Extent of the device arena.
    pub peak: u64,
    /// Simulated.
    pub seconds: f64,
    /// Seconds of planning, compiling and checking.
    pub planning: f64,
}

/// A network on the paper's machine.
pub struct Subject {
    program: Program,
    kernels: KernelTable,
    encoded: Option<(Program, KernelTable)>,
    machine: Machine,
    homes: HomeLayout,
}

impl Subject {
    /// A training iteration with its kernels.
    pub fn new(model: &str, batch_size: u64) -> Self {
        let machine = Machine::named("titan-x").unwrap();
        let program = training(model, batch_size);
        let kernels = machine.kernel_table(&program).unwrap();
        let homes = HomeLayout::for_graphs(&[&program.graph], 256);
        let encoded = encode(&program).unwrap().map(|encoded| {
            let kernels = machine.kernel_table(&encoded).unwrap();
            (encoded, kernels)
        });
        Subject { program, kernels, encoded, machine, homes }
    }

    /// Seconds of the fastest kernels.
    pub fn oracle(&self) -> f64 {
        oracle_seconds(&self.program, &self.kernels)
    }

    fn problem(&self, device: Option<u64>) -> Problem<'_> {
        Problem {
            program: &self.program,
            kernels: &self.kernels,
            links: self.machine.links(),
            homes: &self.homes,
            budgets: Budgets { device, host: Some(self.machine.host_bytes), disk: None },
            options: Options { memory_optimal_workspace: 0, state: State::Device, ..Options::default() },
            encoded: self.encoded.as_ref().map(|(program, kernels)| Encoded { program, kernels }),
        }
    }

    /// Plans, checks and simulates; the floor when the budget is below it.
    pub fn at(&self, policy: &str, budget: Option<u64>) -> Result<Point, u64> {
        let started = Instant::now();
        let problem = self.problem(budget);
        let planned = compile_with_policy(&problem, policies::find(policy).unwrap().as_ref());
        let (schedule, plan) = match planned {
            Ok(planned) => planned,
            Err(PlanError::Infeasible(refusal)) => return Err(refusal.floor),
            Err(other) => panic!("{policy} at {budget:?}: {other}"),
        };
        let planning = started.elapsed().as_secs_f64();
        let of = problem.of(&plan);
        assert_eq!(vdnn_check::check(&schedule, of.program), vec![], "{policy} at {budget:?}");
        let peak = schedule.peak_bytes(Space::Device);
        assert!(budget.is_none_or(|budget| peak <= budget), "{policy} at {budget:?}: {peak}");
        let seconds = simulate(&schedule, of.kernels, &problem.links).unwrap().seconds;
        Ok(Point { peak, seconds, planning })
    }

    /// Budgets from `hybrid`'s floor to the peak without a budget, both included.
    pub fn budgets(&self, count: u64) -> Vec<u64> {
        let floor = self.at("hybrid", Some(0)).unwrap_err();
        let top = self.at("none", None).unwrap().peak;
        (0..count).map(|i| floor + (top - floor) * i / (count - 1)).collect()
    }
}

/// A network's line for each budget, and `hybrid`'s points.
pub fn sweep(model: &str, batch_size: u64, count: u64, side_by_side: &[&str]) -> (String, Vec<(u64, Point)>) {
    let subject = Subject::new(model, batch_size);
    let oracle = subject.oracle();
    let (mut lines, mut points) = (String::new(), Vec::new());
    for budget in subject.budgets(count) {
        lines.push_str(&format!("{model:11}{batch_size:>5}{:>9.3} GB", budget as f64 / 1e9));
        for policy in side_by_side {
            let found = subject.at(policy, Some(budget));
            lines.push_str(&match found {
                Ok(point) => format!("{:>9.2} %", (point.seconds / oracle - 1.0) * 100.0),
                Err(_) => format!("{:>11}", "-"),
            });
            if *policy == "hybrid" {
                points.push((budget, found.unwrap()));
            }
        }
        lines.push_str(&format!("{:>8.2} s\n", points.last().map_or(0.0, |(_, point)| point.planning)));
    }
    (lines, points)
}

/// Pairs of neighbouring budgets at which more bytes take longer: the larger budget, and by how much, in per cent.
pub fn rises(points: &[(u64, Point)]) -> Vec<(u64, f64)> {
    let rise = |pair: &[(u64, Point)]| (pair[1].0, (pair[1].1.seconds / pair[0].1.seconds - 1.0) * 100.0);
    points.windows(2).map(rise).filter(|&(_, percent)| percent > 0.0).collect()
}

/// On two threads, the networks that take longest first; deep ones at fewer budgets.
#[test]
fn more_bytes_take_no_more_time() {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&(model, batch_size)) = NETWORKS.get(next.fetch_add(1, Ordering::Relaxed)) {
            let count = match model {
                "resnet152" | "densenet121" => 4,
                "googlenet" | "resnet50" => 6,
                _ => 12,
            };
            let (lines, points) = sweep(model, batch_size, count, &["hybrid"]);
            let rises = rises(&points);
            println!("{lines}{model}: {} rises {rises:?}", rises.len());
            assert!(rises.iter().all(|&(_, percent)| percent <= 1.0), "{model} ({batch_size}): {rises:?}");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
}

/// What chooses everything together is no slower than what chooses copies alone or recomputation alone.
#[test]
fn hybrid_is_no_slower_than_its_parts() {
    for (model, batch_size) in [("alexnet", 512), ("vgg16", 256)] {
        let subject = Subject::new(model, batch_size);
        for budget in subject.budgets(12) {
            let hybrid = subject.at("hybrid", Some(budget)).unwrap();
            for policy in ["dyn", "checkpoint"] {
                let part = subject.at(policy, Some(budget)).map_or(f64::INFINITY, |point| point.seconds);
                assert!(
                    hybrid.seconds <= part * (1.0 + 1e-9),
                    "{model} ({batch_size}) in {budget} bytes: hybrid {} s, {policy} {part} s",
                    hybrid.seconds
                );
            }
        }
    }
}
