//! `--split-batch`: what a plan says of it, and what a budget below the floor has to hear of it.

use super::args::{ModelArgs, OptimizerArgs};
use super::costs::Costs;
use super::resolve;
use anyhow::Result;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use vdnn_graph::Program;
use vdnn_layers::Mode;
use vdnn_memory::PlanError;
use vdnn_tensor::{Bytes, format_bytes};
use vdnn_train::{Network, Settings, SplitFound, Subject, TrainError, plan, program, split};

/// Parts that are tried on behalf of a budget below the floor.
const OFFERED: [u64; 4] = [2, 4, 8, 16];

/// A batch that is split, beside the whole one.
pub struct Beside {
    found: SplitFound,
    /// Floor of the policy with the whole batch.
    floor: Bytes,
    /// What its largest kernel needs by itself.
    floor_bound: Bytes,
}

impl Beside {
    /// What `program` is split into, and the floors without that; `None` for a whole batch.
    pub fn of(
        program: &Program,
        args: (&ModelArgs, &OptimizerArgs),
        costs: &Costs,
        settings: &Settings,
    ) -> Result<Option<Self>> {
        let Some(found) = split::found(&program.graph) else { return Ok(None) };
        let whole = ModelArgs { split_batch: None, split_at: None, ..args.0.clone() };
        let build = resolve::network(&whole, resolve::FromData::default(), whole.seed.unwrap_or(0))?;
        let subject = subject(iteration(&build, &whole, args.1)?, costs, settings)?;
        let homes = plan::layout(&[&subject.plain.program.graph], &settings.options);
        let floor = plan::floor(&subject, &homes, settings).map_err(TrainError::from)?;
        let floor_bound = plan::problem(&subject, &homes, settings).floor_bound();
        Ok(Some(Beside { found, floor, floor_bound }))
    }

    /// The key `split` of a plan's document.
    pub fn document(&self) -> Value {
        let SplitFound { parts, joined, nodes } = &self.found;
        json!({
            "parts": parts,
            "at": joined,
            "nodes": nodes,
            "floor_bytes_whole": self.floor,
            "floor_bound_bytes_whole": self.floor_bound,
        })
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SplitFound { parts, joined, nodes } = &self.found;
        let (floor, bound) = (format_bytes(self.floor), format_bytes(self.floor_bound));
        write!(f, "{nodes} nodes up to {} run on {parts} parts of the batch; ", joined.join(", "))?;
        write!(f, "on the whole the floor is {floor}, and a kernel by itself needs {bound}")
    }
}

/// A program with its prices, and its encoded alternative where the policy may take that.
fn subject(program: Program, costs: &Costs, settings: &Settings) -> Result<Subject> {
    let price = |program: &Program| costs.estimate(program).map(|priced| priced.table);
    Subject::priced(Arc::new(program), settings.take_encodings(), price)
}

fn iteration(network: &dyn Network, args: &ModelArgs, optimizer: &OptimizerArgs) -> Result<Program> {
    let net = program::network(network, args.batch_size, Mode::Train)?;
    Ok(program::training(net, &resolve::optimization(optimizer)?)?)
}

/// A budget below the floor, and in how many parts of the batch less is needed.
#[derive(Debug)]
pub struct Advised {
    /// The refusal.
    pub refusal: TrainError,
    /// What to give to `--split-batch`.
    pub parts: u64,
    /// What is lower then.
    pub less: Less,
}

/// What is lower when the batch is split.
#[derive(Clone, Copy, Debug)]
pub enum Less {
    /// The policy's floor.
    Floor(Bytes),
    /// What the largest kernel reads and writes; the floor is not known without measuring the kernels.
    Need(Bytes),
}

impl Less {
    fn bytes(self) -> Bytes {
        let (Less::Floor(bytes) | Less::Need(bytes)) = self;
        bytes
    }
}

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, or --split-batch {}, ", self.refusal, self.parts)?;
        match self.less {
            Less::Floor(bytes) => write!(f, "which lowers the floor to {} ({bytes} bytes)", format_bytes(bytes)),
            Less::Need(bytes) => {
                write!(f, "with which the largest kernel needs {} ({bytes} bytes)", format_bytes(bytes))
            }
        }
    }
}

impl std::error::Error for Advised {}

/// A plan's refusal for its budget, with the fewest parts whose floor is within it, or else the lowest of those offered; as it was
/// where that lowers nothing, and for everything else.
pub fn advise_plan(
    error: anyhow::Error,
    args: (&ModelArgs, &OptimizerArgs),
    costs: &Costs,
    settings: &Settings,
) -> anyhow::Error {
    let build = |args: &ModelArgs| resolve::network(args, resolve::FromData::default(), args.seed.unwrap_or(0));
    let floor = |program: Program| {
        let subject = subject(program, costs, settings).ok()?;
        let homes = plan::layout(&[&subject.plain.program.graph], &settings.options);
        plan::floor(&subject, &homes, settings).ok().map(Less::Floor)
    };
    advise(error, args, build, None, floor)
}

/// The same for training, where kernels are not measured for advice: by what the largest kernel reads and writes.
pub fn advise_training<N: Network>(
    error: anyhow::Error,
    args: (&ModelArgs, &OptimizerArgs),
    build: impl Fn(&ModelArgs) -> Result<N>,
) -> anyhow::Error {
    let need = |program: Program| split::need(&program).ok().map(|(bytes, _)| Less::Need(bytes));
    let now = build(args.0).and_then(|network| iteration(&network, args.0, args.1)).ok().and_then(need);
    advise(error, args, build, now, need)
}

fn advise<N: Network>(
    error: anyhow::Error,
    (args, optimizer): (&ModelArgs, &OptimizerArgs),
    build: impl Fn(&ModelArgs) -> Result<N>,
    now: Option<Less>,
    less: impl Fn(Program) -> Option<Less>,
) -> anyhow::Error {
    let (floor, budget) = match error.downcast_ref::<TrainError>() {
        Some(TrainError::Plan(PlanError::Infeasible(refusal))) => (refusal.floor, refusal.budget),
        _ => return error,
    };
    let mut best: Option<(u64, Less)> = None;
    let more = |parts: &u64| *parts > args.split_batch.unwrap_or(1) && *parts <= args.batch_size;
    for parts in OFFERED.into_iter().filter(more) {
        let args = ModelArgs { split_batch: Some(parts), ..args.clone() };
        let found = build(&args).and_then(|network| iteration(&network, &args, optimizer)).ok().and_then(&less);
        let least = best.or(now.map(|now| (0, now))).map_or(floor, |(_, best)| best.bytes());
        best = found.filter(|found| found.bytes() < least).map(|found| (parts, found)).or(best);
        if best.is_some_and(|(_, best)| best.bytes() <= budget) {
            break;
        }
    }
    let Some((parts, less)) = best else { return error };
    match error.downcast::<TrainError>() {
        Ok(refusal) => Advised { refusal, parts, less }.into(),
        Err(error) => error,
    }
}
