//! How time grows with depth: planning, compiling, simulating and checking of ever deeper networks.
//!
//! Prints one JSON document: seconds of a processor (this thread's) of each by network, medians of several runs, and for each
//! the exponents of the number of steps and of commands that fit them best (least squares of logarithms). Predictions on a
//! described machine, one thread, no GPU.
//!
//! Two policies: `hybrid` in a budget, and `all` without one. What `hybrid` moves, and so what a step costs, depends on how far its
//! search gets in a network of that depth; `all` does the same for every layer at every depth, so its exponents of steps are those of
//! the code.
//!
//! What is quick is also timed `cold`: before each run the caches are filled with other bytes. A small network then finds as
//! little in them as a deep one does that is too large for them, and what still grows faster than the steps is work.

use anyhow::{Context, Result};
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::hint::black_box;
use vdnn::autograd::{Optimizer, Options as Differentiation, differentiate};
use vdnn::graph::op::Sgd;
use vdnn::graph::{InPlace, Program};
use vdnn::memory::{Budgets, HomeLayout, Options, Problem, compile, policies};
use vdnn::models::{Options as ModelOptions, build};
use vdnn::schedule::KernelTable;
use vdnn::sim::{Machine, simulate};

#[derive(Parser)]
struct Cli {
    /// Networks, of one family, shallow to deep.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "resnet-101,resnet-200,resnet-401,resnet-800,resnet-1601,resnet-3200"
    )]
    models: Vec<String>,
    /// Samples in a batch.
    #[arg(long, default_value_t = 4)]
    batch_size: u64,
    /// The budget of `hybrid` as a share of what keeping everything takes.
    #[arg(long, default_value_t = 0.6)]
    share: f64,
    /// The machine.
    #[arg(long, default_value = "titan-x")]
    machine: String,
}

/// Seconds that a measurement lasts at least, and runs of it at least where one is quick, of which the median counts.
const LONG_ENOUGH: f64 = 0.5;
const RUNS: usize = 7;
/// Seconds from which on a run is not quick: it is timed once.
const SLOW: f64 = 1.0;
/// Bytes that fill the caches.
const CACHES: usize = 96 << 20;
/// Policies, and whether they are given a budget.
const POLICIES: [(&str, bool); 2] = [("hybrid", true), ("all", false)];
/// What is timed, in this order.
const PARTS: [&str; 7] = ["plan", "compile", "simulate", "check", "compile_cold", "simulate_cold", "check_cold"];

fn main() -> Result<()> {
    let cli = Cli::parse();
    let machine = Machine::named(&cli.machine)?;
    let mut points = Vec::new();
    for model in &cli.models {
        points.extend(timed(&cli, &machine, model)?);
    }
    let rows: Vec<Value> = points.iter().map(row).collect();
    let document = json!({ "machine": machine.name, "batch_size": cli.batch_size, "share": cli.share, "rows": rows,
        "exponents_of_steps": exponents(&points, |point| point.steps),
        "exponents_of_commands": exponents(&points, |point| point.commands) });
    println!("{}", serde_json::to_string_pretty(&document)?);
    Ok(())
}

/// What one network took under one policy.
struct Point {
    model: String,
    policy: &'static str,
    /// Steps of its iteration, and commands of the schedule.
    steps: usize,
    commands: usize,
    /// By part.
    seconds: [f64; 7],
}

fn row(point: &Point) -> Value {
    let Point { model, policy, steps, commands, .. } = point;
    let mut row = json!({ "model": model, "policy": policy, "steps": steps, "commands": commands });
    PARTS.iter().zip(point.seconds).for_each(|(part, seconds)| row[format!("{part}_seconds")] = json!(seconds));
    row
}

/// Exponents by policy and part.
fn exponents(points: &[Point], size: fn(&Point) -> usize) -> Value {
    let mut exponents = json!({});
    for (policy, _) in POLICIES {
        let points: Vec<&Point> = points.iter().filter(|point| point.policy == policy).collect();
        for (part, name) in PARTS.iter().enumerate() {
            let sizes = points.iter().map(|point| (size(point) as f64, point.seconds[part]));
            exponents[policy][name] = json!(exponent(sizes));
        }
    }
    exponents
}

fn timed(cli: &Cli, machine: &Machine, model: &str) -> Result<Vec<Point>> {
    let program = training(model, cli.batch_size)?;
    let kernels = machine.kernel_table(&program)?;
    let homes = HomeLayout::for_graphs(&[&program.graph], 256);
    let problem = |device| of(&program, &kernels, &homes, machine, device);
    let none = policies::find("none").context("the policy none is registered")?;
    let kept = compile(&problem(None), &none.plan(&problem(None))?, "none")?;
    let budget = (kept.peak_bytes(vdnn::schedule::Space::Device) as f64 * cli.share) as u64;
    let point = |(policy, limited): (&'static str, bool)| {
        let (commands, seconds) = timed_plan(&problem(limited.then_some(budget)), policy)?;
        eprintln!("{model}, {policy}: {} steps, {commands} commands, {seconds:.4?} s", program.n_steps());
        Ok(Point { model: model.to_string(), policy, steps: program.n_steps(), commands, seconds })
    };
    POLICIES.into_iter().map(point).collect()
}

/// Commands of the schedule that a policy plans, and seconds by part.
fn timed_plan(problem: &Problem<'_>, policy: &str) -> Result<(usize, [f64; 7])> {
    let found = policies::find(policy).context("the policy is registered")?;
    let (planning, plan) = timed_run(|| found.plan(problem));
    let plan = plan?;
    let schedule = compile(problem, &plan, policy)?;
    let violations = vdnn::check::check(&schedule, problem.program);
    anyhow::ensure!(violations.is_empty(), "{policy}: {violations:?}");
    let mut others = vec![0u8; CACHES];
    let mut seconds = [planning; 7];
    for (cold, seconds) in seconds[1..].chunks_mut(3).enumerate() {
        let mut before = || {
            if cold > 0 {
                fill(&mut others)
            }
        };
        seconds[0] = median(&mut before, || compile(problem, &plan, policy));
        seconds[1] = median(&mut before, || simulate(&schedule, problem.kernels, &problem.links));
        seconds[2] = median(&mut before, || vdnn::check::check(&schedule, problem.program));
    }
    Ok((schedule.commands.len(), seconds))
}

fn training(model: &str, batch_size: u64) -> Result<Program> {
    let net = build(model, &ModelOptions { batch_size, ..ModelOptions::default() })?;
    let sgd = Optimizer::Sgd(Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 0.0, nesterov: false });
    let loss = net.loss().context("a network that classifies has a loss")?;
    let graph = differentiate(net.into_graph(), &Differentiation::train(loss, sgd))?.graph;
    Ok(Program::linearize(graph, InPlace::Allowed)?)
}

fn of<'a>(
    program: &'a Program,
    kernels: &'a KernelTable,
    homes: &'a HomeLayout,
    machine: &Machine,
    device: Option<u64>,
) -> Problem<'a> {
    let budgets = Budgets { device, host: None, disk: None };
    let options = Options { memory_optimal_workspace: 0, ..Options::default() };
    Problem { program, kernels, links: machine.links(), homes, budgets, options, encoded: None }
}

/// Seconds of one run, and what it made.
fn timed_run<T>(run: impl Fn() -> T) -> (f64, T) {
    let started = now();
    let made = run();
    (now() - started, made)
}

/// The median of the seconds of some runs, before each of which something is done that does not count.
fn median<T>(before: &mut impl FnMut(), run: impl Fn() -> T) -> f64 {
    let mut seconds: Vec<f64> = Vec::new();
    while seconds.len() < RUNS || seconds.iter().sum::<f64>() < LONG_ENOUGH {
        before();
        seconds.push(timed_run(&run).0);
        if seconds[0] > SLOW {
            break;
        }
    }
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Writes to every line of so many bytes that nothing else is left in the caches.
fn fill(others: &mut [u8]) {
    others.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
    black_box(others);
}

/// Seconds that this thread has had of a processor, so that other programs beside it do not count.
fn now() -> f64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 * 1e-9
}

/// The slope of the line through logarithms.
fn exponent(points: impl Iterator<Item = (f64, f64)>) -> f64 {
    let logs: Vec<(f64, f64)> = points.map(|(x, y)| (x.ln(), y.ln())).collect();
    let n = logs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|log| log.0), mean(|log| log.1));
    let over: f64 = logs.iter().map(|log| (log.0 - x) * (log.1 - y)).sum();
    over / logs.iter().map(|log| (log.0 - x) * (log.0 - x)).sum::<f64>()
}
