//! All plans that cuDNN has for a problem, best guess first. A source is asked when those before it are used up: on a CPU of
//! 2026 the first answers in 1 to 5 ms, the second in 1 to 35, the third in 20, and the last takes 60 to 80.
//!
//! ```text
//!  heuristics A ─┐
//!  heuristics B ─┼─► configurations ─► without repetition ─► notes fit? ─► plan ─► workspace fits? ─► next
//!  fallback     ─┤
//!  other engines ┘ (with default knobs)
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use vdnn_cudnn_sys::sys::{
    cudnnBackendAttributeName_t as A, cudnnBackendAttributeType_t as T, cudnnBackendDescriptorType_t as D,
    cudnnBackendHeurMode_t as Mode,
};

use super::descriptor::{Descriptor, Target};
use super::operation::OperationGraph;
use super::plan::{Notes, Plan, PlanName, configuration, engine};
use super::problem::ConvolutionProblem;
use crate::CudaError;

/// Which plans are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Only plans that give the same bits every time.
    pub deterministic: bool,
    /// The most workspace, in bytes.
    pub workspace_limit: u64,
    /// Also plans that are compiled when they are made (up to two seconds each).
    pub runtime_compiled: bool,
}

impl Default for Wanted {
    /// Deterministic, precompiled, any workspace.
    fn default() -> Self {
        Self { deterministic: true, workspace_limit: u64::MAX, runtime_compiled: false }
    }
}

/// An engine configuration that a plan may be made from.
struct Candidate {
    name: PlanName,
    notes: Notes,
    configuration: Descriptor,
}

/// Lists the plans for `problem`, in cuDNN's order of expected speed. An empty list is [`CudaError::NoPlan`].
pub fn enumerate(target: Target<'_>, problem: &ConvolutionProblem, wanted: &Wanted) -> Result<Vec<Plan>, CudaError> {
    let mut listing = Listing::new(target, problem, wanted)?;
    let plans: Vec<Plan> = listing.by_ref().collect();
    if plans.is_empty() { Err(listing.none()) } else { Ok(plans) }
}

/// Where configurations come from, in the order in which they are asked.
#[derive(Debug, Clone, Copy)]
enum Source {
    Heuristic(Mode),
    OtherEngines,
}

const SOURCES: [Source; 4] = [
    Source::Heuristic(Mode::CUDNN_HEUR_MODE_A),
    Source::Heuristic(Mode::CUDNN_HEUR_MODE_B),
    Source::Heuristic(Mode::CUDNN_HEUR_MODE_FALLBACK),
    Source::OtherEngines,
];

/// The plans of a problem, made one by one as they are asked for.
pub struct Listing<'a> {
    target: Target<'a>,
    problem: ConvolutionProblem,
    wanted: Wanted,
    graph: Arc<OperationGraph>,
    sources: std::array::IntoIter<Source, 4>,
    waiting: VecDeque<Candidate>,
    seen: BTreeSet<PlanName>,
    mentioned: BTreeSet<i64>,
    refused: usize,
    last: String,
}

impl<'a> Listing<'a> {
    /// Asks nothing yet.
    ///
    /// # Errors
    /// What cuDNN says of a problem that it cannot describe.
    pub fn new(target: Target<'a>, problem: &ConvolutionProblem, wanted: &Wanted) -> Result<Self, CudaError> {
        let (graph, last) = (Arc::new(OperationGraph::new(target, problem)?), String::from("none was offered"));
        let (waiting, seen, mentioned) = (VecDeque::new(), BTreeSet::new(), BTreeSet::new());
        let (problem, wanted, sources) = (*problem, *wanted, SOURCES.into_iter());
        Ok(Listing { target, problem, wanted, graph, sources, waiting, seen, mentioned, refused: 0, last })
    }

    /// That there was none, and why the last was refused.
    pub fn none(&self) -> CudaError {
        let (problem, limit) = (self.problem.to_string(), self.wanted.workspace_limit);
        CudaError::NoPlan { problem, limit, refused: self.refused, last: self.last.clone() }
    }

    fn candidates(&self, source: Source) -> Vec<Candidate> {
        match source {
            // A mode that knows nothing about the problem says so by an error; the others still count.
            Source::Heuristic(mode) => heuristic(self.target, &self.graph, mode).unwrap_or_default(),
            Source::OtherEngines => {
                let others = (0..self.graph.engine_count()).filter(|index| !self.mentioned.contains(index));
                // Most engines cannot compute a given problem and refuse here.
                let made =
                    |index| engine(self.target, &self.graph, index).and_then(|e| with_defaults(self.target, &e, index));
                others.flat_map(made).collect()
            }
        }
    }
}

impl Iterator for Listing<'_> {
    type Item = Plan;

    fn next(&mut self) -> Option<Plan> {
        loop {
            let Some(candidate) = self.waiting.pop_front() else {
                let source = self.sources.next()?;
                let found = self.candidates(source);
                self.mentioned.extend(found.iter().map(|candidate| candidate.name.engine));
                self.waiting.extend(found);
                continue;
            };
            let Candidate { name, notes, configuration } = candidate;
            let notes = notes.told(&self.problem);
            if !self.seen.insert(name.clone()) || !suits(&notes, &self.problem, &self.wanted) {
                continue;
            }
            match Plan::new(self.target, &self.problem, name, notes, configuration, self.graph.clone()) {
                Ok(plan) if plan.workspace_bytes <= self.wanted.workspace_limit => return Some(plan),
                Ok(plan) => self.last = format!("{} wants {}", plan.name, plan.workspace_bytes),
                Err(error) => self.last = error.to_string(),
            }
            self.refused += 1;
        }
    }
}

fn suits(notes: &Notes, problem: &ConvolutionProblem, wanted: &Wanted) -> bool {
    notes.keep_promise(problem)
        && !(wanted.deterministic && notes.nondeterministic)
        && (wanted.runtime_compiled || !notes.runtime_compiled)
}

fn heuristic(target: Target<'_>, graph: &OperationGraph, mode: Mode) -> Result<Vec<Candidate>, CudaError> {
    let heuristics = Descriptor::new(target.cudnn(), D::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
        .descriptors(A::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[&graph.graph])?
        .set(A::CUDNN_ATTR_ENGINEHEUR_MODE, T::CUDNN_TYPE_HEUR_MODE, &[mode])?;
    let heuristics = target.name_to(heuristics, None, Some(A::CUDNN_ATTR_ENGINEHEUR_DEVICEPROP))?.finalize()?;
    let results = A::CUDNN_ATTR_ENGINEHEUR_RESULTS;
    let count = heuristics.count(results, T::CUDNN_TYPE_BACKEND_DESCRIPTOR);
    if count == 0 {
        return Ok(Vec::new());
    }
    let configurations = heuristics.get_descriptors(results, D::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count)?;
    Ok(configurations.into_iter().flat_map(describe).collect())
}

/// Reads engine, knobs and notes of a configuration that a heuristic made.
fn describe(configuration: Descriptor) -> Result<Candidate, CudaError> {
    let engine_at = A::CUDNN_ATTR_ENGINECFG_ENGINE;
    let engines = configuration.get_descriptors(engine_at, D::CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1)?;
    let missing = || CudaError::UnknownPlan { name: "?".into(), reason: "a configuration without engine".into() };
    let engine = engines.first().ok_or_else(missing)?;
    let index = engine.get_int64(A::CUDNN_ATTR_ENGINE_GLOBAL_INDEX)?;
    let name = PlanName { engine: index, knobs: knobs(&configuration) };
    let notes = Notes::of(engine);
    Ok(Candidate { name, notes, configuration })
}

fn knobs(configuration: &Descriptor) -> Vec<(u32, i64)> {
    let kind = D::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
    let choices = configuration.get_descriptors(A::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, kind, 64);
    let read = |choice: &Descriptor| {
        let kinds = choice.get_numbers(A::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, T::CUDNN_TYPE_KNOB_TYPE, 1).ok()?;
        Some((*kinds.first()?, choice.get_int64(A::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE).ok()?))
    };
    let mut knobs: Vec<(u32, i64)> = choices.unwrap_or_default().iter().filter_map(read).collect();
    knobs.sort_unstable();
    knobs
}

fn with_defaults(target: Target<'_>, engine: &Descriptor, index: i64) -> Result<Candidate, CudaError> {
    let configuration = configuration(target, engine, &[])?;
    let name = PlanName { engine: index, knobs: knobs(&configuration) };
    Ok(Candidate { name, notes: Notes::of(engine), configuration })
}
