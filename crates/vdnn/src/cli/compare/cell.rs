//! One cell of a comparison: a case under a policy and a budget, planned, checked and simulated.

use super::Case;
use anyhow::Result;
use serde::Serialize;
use std::time::Instant;
use vdnn_memory::{Budgets, HomeLayout, PlanError, StepTimeBound, step_time_bound};
use vdnn_schedule::{Direction, Space};
use vdnn_sim::simulate;
use vdnn_tensor::Bytes;
use vdnn_train::{Planned, Settings, Subject, TrainError, plan};

/// One result; keys are those of the JSON document and the CSV file.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Network.
    pub model: String,
    /// Samples in a batch.
    pub batch_size: u64,
    /// Machine or profiled device.
    pub machine: String,
    /// Factor on the rates of copies.
    pub link_scale: f64,
    /// Policy.
    pub policy: String,
    /// As asked for in per cent; null for bytes and `none`.
    pub budget_percent: Option<f64>,
    /// Null for no limit.
    pub budget_bytes: Option<Bytes>,
    /// The least budget at which the policy returns a plan.
    pub floor_bytes: Bytes,
    /// False when there is no plan; then all of the plan's figures are null.
    pub planned: bool,
    /// Why there is no plan.
    pub refusal: Option<String>,
    /// Extent of the device arena.
    pub peak_bytes: Option<Bytes>,
    /// Extent of the host arena.
    pub host_peak_bytes: Option<Bytes>,
    /// Extent of the file.
    pub disk_peak_bytes: Option<Bytes>,
    /// Bytes copied down in an iteration.
    pub offload_bytes: Option<Bytes>,
    /// Bytes copied up in an iteration.
    pub prefetch_bytes: Option<Bytes>,
    /// Time of kernels that run again.
    pub recompute_ms: Option<f64>,
    /// Gradient rules that read a mask or indices.
    pub encoded_nodes: Option<usize>,
    /// Simulated iteration.
    pub predicted_ms: Option<f64>,
    /// Sum of the fastest kernels.
    pub oracle_ms: f64,
    /// Predicted over oracle, less 100.
    pub slowdown_percent: Option<f64>,
    /// Least time of any plan within this budget; null where it is not known.
    pub lower_bound_ms: Option<f64>,
    /// Predicted over lower bound, less 100.
    pub gap_percent: Option<f64>,
    /// Planning, placing, emitting and checking.
    pub planning_seconds: f64,
    /// Index of the case.
    #[serde(skip)]
    pub case: usize,
}

/// Where in the table a cell stands.
pub struct Place<'a> {
    /// Index of the case.
    pub case: usize,
    /// Name of the policy.
    pub policy: &'a str,
    /// Its floor in this case.
    pub floor: Bytes,
    /// The budget as asked for, if in per cent.
    pub percent: Option<f64>,
    /// The budgets in bytes.
    pub budgets: Budgets,
}

fn blank(case: &Case, place: &Place<'_>) -> Cell {
    Cell {
        model: case.model.clone(),
        batch_size: case.batch_size,
        machine: case.machine.clone(),
        link_scale: case.link_scale,
        policy: place.policy.to_string(),
        budget_percent: place.percent,
        budget_bytes: place.budgets.device,
        floor_bytes: place.floor,
        planned: false,
        refusal: None,
        peak_bytes: None,
        host_peak_bytes: None,
        disk_peak_bytes: None,
        offload_bytes: None,
        prefetch_bytes: None,
        recompute_ms: None,
        encoded_nodes: None,
        predicted_ms: None,
        oracle_ms: case.oracle_ms,
        slowdown_percent: None,
        lower_bound_ms: None,
        gap_percent: None,
        planning_seconds: 0.0,
        case: place.case,
    }
}

/// Plans a cell. Only budgets that cannot be kept and programs too large for a policy are findings; an illegal plan or a schedule that fails its check is the
/// policy's defect and fails the command.
pub fn planned(case: &Case, place: Place<'_>) -> Result<Cell> {
    let mut cell = blank(case, &place);
    let settings = case.settings(place.policy, place.budgets)?;
    let subjects = case.subjects(&settings.budgets)?;
    let started = Instant::now();
    let outcome = first(&subjects, &settings);
    cell.planning_seconds = started.elapsed().as_secs_f64();
    let planned = match outcome {
        Ok(planned) => planned,
        Err(TrainError::Plan(
            refusal @ (PlanError::Infeasible(_)
            | PlanError::TooLarge { .. }
            | PlanError::HostBudget { .. }
            | PlanError::LowerBudgets { .. }),
        )) => {
            cell.refusal = Some(refusal.to_string());
            return Ok(cell);
        }
        Err(defect) => return Err(defect.into()),
    };
    let schedule = &planned.schedule;
    let predicted_ms = simulate(schedule, &planned.kernels, &case.links)?.seconds * 1e3;
    if let Some(bound) = bound(&subjects, &settings) {
        cell.lower_bound_ms = Some(bound.seconds * 1e3);
        cell.gap_percent = Some(bound.gap(predicted_ms / 1e3) * 100.0);
    }
    cell.planned = true;
    cell.peak_bytes = Some(schedule.peak_bytes(Space::Device));
    cell.host_peak_bytes = Some(schedule.peak_bytes(Space::Host));
    cell.disk_peak_bytes = Some(schedule.peak_bytes(Space::Disk));
    cell.offload_bytes = Some(schedule.transfer_bytes(Direction::Offload));
    cell.prefetch_bytes = Some(schedule.transfer_bytes(Direction::Prefetch));
    cell.recompute_ms = Some(planned.recompute_seconds() * 1e3);
    cell.encoded_nodes = Some(planned.encoded_nodes());
    cell.predicted_ms = Some(predicted_ms);
    cell.slowdown_percent = Some((predicted_ms / case.oracle_ms - 1.0) * 100.0);
    Ok(cell)
}

/// The plan of the first subject that has one; of refusals the one of the least floor.
fn first(subjects: &[&(Subject, HomeLayout)], settings: &Settings) -> Result<Planned, TrainError> {
    let mut refused: Option<(Bytes, TrainError)> = None;
    for (subject, homes) in subjects {
        match plan::plan(subject.clone(), homes, settings) {
            Err(TrainError::Plan(PlanError::Infeasible(refusal))) => {
                let floor = refusal.floor;
                let refusal = (floor, TrainError::Plan(PlanError::Infeasible(refusal)));
                refused = Some(refused.filter(|least| least.0 <= floor).unwrap_or(refusal));
            }
            done => return done,
        }
    }
    Err(refused.map_or_else(|| TrainError::Model("there is no program to plan".into()), |(_, refusal)| refusal))
}

/// Least time of any plan of these.
fn bound(subjects: &[&(Subject, HomeLayout)], settings: &Settings) -> Option<StepTimeBound> {
    let bounds = subjects.iter().map(|(subject, homes)| step_time_bound(&plan::problem(subject, homes, settings)));
    bounds.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
}
