//! How time grows with depth: planning (`hybrid`), compiling, simulating and checking of ever deeper networks.
//!
//! Prints one JSON document: seconds on the processor (of the clock where the system does not say) of each by network and steps,
//! and for each the exponent of the number of steps that fits them best (least squares of logarithms). Predictions on a described
//! machine, one thread, no GPU.

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::{Value, json};
use std::sync::OnceLock;
use std::time::Instant;
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
    /// The budget as a share of what keeping everything takes.
    #[arg(long, default_value_t = 0.6)]
    share: f64,
    /// The machine.
    #[arg(long, default_value = "titan-x")]
    machine: String,
}

/// Seconds that a measurement lasts at least: the system counts in steps of some milliseconds.
const LONG_ENOUGH: f64 = 0.3;
/// What is timed, in this order.
const PARTS: [&str; 4] = ["plan", "compile", "simulate", "check"];

fn main() -> Result<()> {
    let cli = Cli::parse();
    let machine = Machine::named(&cli.machine)?;
    let mut points = Vec::new();
    for model in &cli.models {
        let point = timed(&cli, &machine, model)?;
        eprintln!("{model}: {} steps, {:.4?} s", point.0, point.1);
        points.push(point);
    }
    let rows: Vec<Value> = cli.models.iter().zip(&points).map(|(model, point)| row(model, point)).collect();
    let exponent = |part: usize| exponent(points.iter().map(|(steps, seconds)| (*steps as f64, seconds[part])));
    let exponents: serde_json::Map<String, Value> =
        PARTS.iter().enumerate().map(|(part, name)| (name.to_string(), json!(exponent(part)))).collect();
    let (batch_size, share) = (cli.batch_size, cli.share);
    let document = json!({ "machine": machine.name, "batch_size": batch_size, "share": share, "rows": rows, "exponents": exponents });
    println!("{}", serde_json::to_string_pretty(&document)?);
    Ok(())
}

fn row(model: &str, (steps, seconds): &(usize, [f64; 4])) -> Value {
    let mut row = json!({ "model": model, "steps": steps });
    PARTS.iter().zip(seconds).for_each(|(part, seconds)| row[format!("{part}_seconds")] = json!(seconds));
    row
}

/// Steps of a network's iteration, and seconds of each part.
fn timed(cli: &Cli, machine: &Machine, model: &str) -> Result<(usize, [f64; 4])> {
    let program = training(model, cli.batch_size)?;
    let kernels = machine.kernel_table(&program)?;
    let homes = HomeLayout::for_graphs(&[&program.graph], 256);
    let problem = |device| of(&program, &kernels, &homes, machine, device);
    let hybrid = policies::find("hybrid").context("the policy hybrid is registered")?;
    let none = policies::find("none").context("the policy none is registered")?;
    let kept = compile(&problem(None), &none.plan(&problem(None))?, "none")?;
    let budget = (kept.peak_bytes(vdnn::schedule::Space::Device) as f64 * cli.share) as u64;
    let problem = problem(Some(budget));
    let (planning, plan) = mean(|| hybrid.plan(&problem));
    let plan = plan?;
    let (compiling, schedule) = mean(|| compile(&problem, &plan, "hybrid"));
    let schedule = schedule?;
    let (simulating, timeline) = mean(|| simulate(&schedule, &kernels, &problem.links));
    timeline?;
    let (checking, violations) = mean(|| vdnn::check::check(&schedule, &program));
    anyhow::ensure!(violations.is_empty(), "{model}: {violations:?}");
    Ok((program.n_steps(), [planning, compiling, simulating, checking]))
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

/// Seconds of a run, as the mean of as many as take long enough to be measured, and what the last one made.
fn mean<T>(run: impl Fn() -> T) -> (f64, T) {
    let started = now();
    let mut runs = 0.0;
    loop {
        let made = run();
        runs += 1.0;
        let seconds = now() - started;
        if seconds >= LONG_ENOUGH {
            return (seconds / runs, made);
        }
    }
}

/// Seconds that this thread has had of a processor, so that other programs beside it do not count; else the clock's.
fn now() -> f64 {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    let used = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = used.as_ref().and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| STARTED.get_or_init(Instant::now).elapsed().as_secs_f64(), |used| used * 1e-9)
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
