//! The command line: arguments are parsed low, resolved high; every failure is a sentence and an exit status.
//!
//! Exit status: 0 done; 1 a stated failure; 2 wrong usage. With `--json` one document goes to standard output, also for
//! failures; everything else goes to standard error.

mod args;
mod compare;
mod costs;
mod data;
mod doctor;
mod drawing;
mod eval;
mod explain;
mod extents;
mod lists;
mod occupancy;
mod plan;
mod planning;
mod profile;
mod progress;
mod report;
mod reproduce;
mod resolve;
mod split;
mod table;
mod train;

use clap::{Parser, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;
use vdnn_memory::PlanError;
use vdnn_train::TrainError;

/// Train networks larger than the GPU's memory.
#[derive(Parser)]
#[command(name = "vdnn", version, arg_required_else_help = true)]
pub struct Cli {
    /// Print one JSON document on standard output and nothing else there.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train; without arguments a small VGG on the embedded Fashion-MNIST sample, on the best device present.
    Train(Box<train::TrainArgs>),
    /// Accuracy and loss of a checkpoint.
    Eval(Box<eval::EvalArgs>),
    /// Compile and explain a schedule without running it.
    Plan(Box<plan::PlanCommand>),
    /// Plan networks under policies, budgets and machines side by side: a table, CSV, SVG.
    Compare(Box<compare::CompareCommand>),
    /// Plan, and write one HTML page: streams, memory by kind over time, decisions.
    Report(Box<report::ReportCommand>),
    /// Measure kernels (time and workspace of each algorithm) and links on a GPU, and write a profile.
    Profile(Box<profile::ProfileArgs>),
    /// Regenerate the paper's tables and figures on the card it describes: Markdown, CSV, SVG.
    Reproduce(Box<reproduce::ReproduceCommand>),
    /// What of driver, CUDA, cuDNN, NVRTC and cuBLAS was found where, and what to do.
    Doctor,
    /// List the networks.
    Models,
    /// List the memory policies.
    Policies,
    /// List the machine descriptions.
    Machines,
    /// List the data sets.
    Data,
}

/// Runs a parsed command line.
pub fn run(cli: Cli) -> ExitCode {
    let result = match &cli.command {
        Command::Train(args) => train::run(args, cli.json),
        Command::Eval(args) => eval::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Report(args) => report::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Reproduce(args) => reproduce::run(args),
        Command::Doctor => Ok(doctor::run()),
        Command::Models => Ok(lists::models()),
        Command::Policies => Ok(lists::policies()),
        Command::Machines => lists::machines(),
        Command::Data => Ok(lists::data()),
    };
    match result {
        Ok(report) => {
            emit(cli.json, &report.json, &report.text);
            if report.failed { ExitCode::from(1) } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            if cli.json {
                print_line(&failure(&error).to_string());
            }
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

/// Wrong usage, or a request for help: what clap says, and with `--json` also a document. Exit status 2, or 0 for help.
pub fn refuse_usage(error: &clap::Error) -> ExitCode {
    let as_json = std::env::args_os().any(|argument| argument == "--json");
    if as_json && error.use_stderr() {
        let text = error.render().to_string();
        let sentence = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        print_line(&json!({ "error": sentence }).to_string());
    }
    // A reader that has gone away is no failure.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}

/// What a command has to say, in both forms.
pub struct Report {
    /// The document of `--json`.
    pub json: Value,
    /// The text for people.
    pub text: String,
    /// True for a report that is itself bad news (exit status 1).
    pub failed: bool,
}

impl Report {
    /// A report of success.
    pub fn new(json: Value, text: String) -> Self {
        Report { json, text, failed: false }
    }
}

fn emit(as_json: bool, json: &Value, text: &str) {
    if as_json {
        print_line(&json.to_string());
    } else {
        print_line(text.trim_end());
    }
}

/// Prints to standard output; a reader that has gone away is no failure.
fn print_line(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// The JSON of a failure; below the floor with what would be needed.
fn failure(error: &anyhow::Error) -> Value {
    let mut document = json!({ "error": format!("{error:#}") });
    let advised = error.downcast_ref::<split::Advised>();
    let refusal = advised.map(|advised| &advised.refusal).or_else(|| error.downcast_ref::<TrainError>());
    if let Some(TrainError::Plan(PlanError::Infeasible(refusal))) = refusal {
        let largest: Vec<Value> =
            refusal.largest.iter().map(|buffer| json!({ "name": buffer.name, "bytes": buffer.bytes })).collect();
        document["floor_bytes"] = json!(refusal.floor);
        document["step"] = json!(refusal.step);
        document["largest"] = json!(largest);
        document["split_batch"] = json!(advised.map(|advised| advised.parts));
    }
    document
}
