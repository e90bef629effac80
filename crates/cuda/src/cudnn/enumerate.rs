//! All plans that cuDNN has for a problem, best guess first.
//!
//! ```text
//!  heuristics A ─┐
//!  heuristics B ─┼─► configurations ─► without repetition ─► notes fit? ─► plan ─► workspace fits? ─► list
//!  fallback     ─┤
//!  other engines ┘ (with default knobs)
//! ```

use std::collections::BTreeSet;
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
    let graph = Arc::new(OperationGraph::new(target, problem)?);
    let mut seen = BTreeSet::new();
    let (mut plans, mut refused, mut last) = (Vec::new(), 0, String::from("none was offered"));
    for candidate in candidates(target, &graph) {
        if !seen.insert(candidate.name.clone()) || !suits(&candidate.notes, problem, wanted) {
            continue;
        }
        let Candidate { name, notes, configuration } = candidate;
        match Plan::new(target, problem, name, notes, configuration, graph.clone()) {
            Ok(plan) if plan.workspace_bytes <= wanted.workspace_limit => plans.push(plan),
            Ok(plan) => (refused, last) = (refused + 1, format!("{} wants {}", plan.name, plan.workspace_bytes)),
            Err(e) => (refused, last) = (refused + 1, e.to_string()),
        }
    }
    if plans.is_empty() {
        return Err(CudaError::NoPlan { problem: problem.to_string(), limit: wanted.workspace_limit, refused, last });
    }
    Ok(plans)
}

fn suits(notes: &Notes, problem: &ConvolutionProblem, wanted: &Wanted) -> bool {
    notes.keep_promise(problem)
        && !(wanted.deterministic && notes.nondeterministic)
        && (wanted.runtime_compiled || !notes.runtime_compiled)
}

/// Configurations of all heuristics, then of the engines that none of them mentioned.
fn candidates(target: Target<'_>, graph: &OperationGraph) -> Vec<Candidate> {
    let mut all = Vec::new();
    for mode in [Mode::CUDNN_HEUR_MODE_A, Mode::CUDNN_HEUR_MODE_B, Mode::CUDNN_HEUR_MODE_FALLBACK] {
        // A mode that knows nothing about the problem says so by an error; the others still count.
        all.extend(heuristic(target, graph, mode).unwrap_or_default());
    }
    let mentioned: BTreeSet<i64> = all.iter().map(|c| c.name.engine).collect();
    for index in (0..graph.engine_count()).filter(|i| !mentioned.contains(i)) {
        // Most engines cannot compute a given problem and refuse here.
        all.extend(engine(target, graph, index).and_then(|e| with_defaults(target, &e, index)));
    }
    all
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
