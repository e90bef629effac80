//! B43: a convolution's workspace is as large as its plan says, lies where the schedule has it, and there is a plan for little.
//!
//! Each plan runs with its workspace moved away from everything else, between two guards:
//!
//! ```text
//!  | values at their planned places | ... | guard | workspace | guard |
//!  0                                      AT - GUARD          AT + bytes
//! ```

use crate::build::Build;
use crate::single::{self, floats};
use crate::{Outcome, Report, cuda, relative_error};
use serde_json::{Value, json};
use std::sync::Arc;
use vdnn_cuda::CudaDevice;
use vdnn_graph::op::{Conv2d, Conv2dDataGrad, Conv2dWeightGrad};
use vdnn_graph::{InPlace, Op, Program};
use vdnn_runtime::{Device, Executor, KernelRequest};
use vdnn_schedule::{BufferKind, KernelTable, Schedule, Space};

const AT: u64 = 1 << 30;
const GUARD: u64 = 1 << 20;
/// Most bytes of a workspace that is tried.
const MOST: u64 = 2 << 30;
/// Workspace with which every convolution must go, if slowly.
const LITTLE: u64 = 1 << 20;
const LIMIT: f64 = 1e-4;

pub fn run(report: &mut Report) -> Outcome {
    let mut executor = Executor::new(cuda()?);
    executor.reserve(AT + MOST + GUARD, 0)?;
    let shapes = [("3x3", [32, 64, 28, 28], 64, 3, 1), ("1x1", [32, 256, 14, 14], 64, 1, 0)];
    for (shape_index, (shape, x, k, kernel, padding)) in shapes.into_iter().enumerate() {
        for (index, name) in ["forward", "data gradient", "weight gradient"].into_iter().enumerate() {
            let case = 300_000 + 10 * shape_index + index;
            let outcome = program(case, index, x, k, kernel, padding).and_then(|p| guarded(&mut executor, &p));
            report.outcome(&format!("B43 {name} of {shape}"), outcome);
        }
    }
    Ok(())
}

/// One convolution in one direction.
fn program(case: usize, index: usize, x: [u64; 4], k: u64, kernel: u64, padding: u64) -> Outcome<Arc<Program>> {
    let conv = Conv2d { padding: [padding; 2], ..Conv2d::default() };
    let ([n, c, h, w], mut b) = (x, Build::new("convolution", case));
    match index {
        0 => {
            let (x, w) = (b.x(&x), b.parameter(&[k, c, kernel, kernel]));
            b.read(Op::Conv2d(conv), &[x, w])?;
        }
        1 => {
            let (dy, weight) = (b.x(&[n, k, h, w]), b.parameter(&[k, c, kernel, kernel]));
            b.read(Op::Conv2dDataGrad(Conv2dDataGrad { conv, input: [h, w] }), &[dy, weight])?;
        }
        _ => {
            let (x, dy) = (b.x(&x), b.x(&[n, k, h, w]));
            b.read(Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [kernel; 2] }), &[x, dy])?;
        }
    }
    Ok(Arc::new(Program::linearize(b.graph, InPlace::Allowed)?))
}

/// Fails where a plan writes beyond its workspace, counts on what is in it, or where nothing is offered for a small limit.
fn guarded(executor: &mut Executor<CudaDevice>, program: &Arc<Program>) -> Outcome<(bool, Value)> {
    let want = single::on_cpu(program)?;
    let table = executor.device_mut().kernel_table(&program.graph, KernelRequest::whole(true))?;
    let little = KernelRequest { workspace_limit: Some(LITTLE), ..KernelRequest::whole(true) };
    let small = executor.device_mut().kernel_table(&program.graph, little)?;
    let kept = small.choices.iter().flatten().all(|choice| choice.workspace <= LITTLE);
    let node = program.graph.node_ids().next().ok_or("no node")?;
    let (mut sizes, mut broken, mut worst, mut same) = (Vec::new(), Vec::new(), 0f64, true);
    for choice in table.of(node).iter().filter(|choice| choice.workspace <= MOST) {
        let mut one = table.clone();
        one.choices[node.index()] = vec![choice.clone()];
        let (first, intact) = with_guards(executor, program, &one, 0xFF)?;
        let (second, still) = with_guards(executor, program, &one, 0)?;
        same &= first == second;
        for (got, want) in first.iter().zip(&want) {
            worst = worst.max(relative_error(&floats(got), &floats(want)));
        }
        if !(intact && still) {
            broken.push(choice.algorithm.clone());
        }
        sizes.push(choice.workspace);
    }
    let facts = json!({
        "workspaces": sizes, "guards_broken_by": broken, "relative_error": worst, "same_bits": same,
        "plans_within_1_MiB": small.of(node).len(),
    });
    Ok((!sizes.is_empty() && broken.is_empty() && worst <= LIMIT && same && kept, facts))
}

/// All outputs with the workspace between guards and filled with a byte, and whether the guards are as they were.
fn with_guards(
    executor: &mut Executor<CudaDevice>,
    program: &Arc<Program>,
    kernels: &KernelTable,
    fill: u8,
) -> Outcome<(Vec<Vec<u8>>, bool)> {
    let schedule = moved(single::schedule(program, kernels)?)?;
    let workspaces = schedule.buffers.iter().filter(|buffer| buffer.kind == BufferKind::Workspace);
    let bytes = workspaces.map(|buffer| buffer.bytes).max().unwrap_or(0);
    let id = executor.add(Arc::clone(program), Arc::new(schedule))?;
    let guard: Vec<u8> = (0..GUARD).map(|i| (i * 37 % 251) as u8).collect();
    let (before, after) = (AT - GUARD, AT + bytes);
    let device = executor.device_mut();
    device.write(Space::Device, before, &guard)?;
    device.write(Space::Device, after, &guard)?;
    device.write(Space::Device, AT, &vec![fill; bytes as usize])?;
    let outputs = single::run(executor, id, program)?;
    let mut intact = true;
    for offset in [before, after] {
        let mut found = vec![0; GUARD as usize];
        executor.device_mut().read(Space::Device, offset, &mut found)?;
        intact &= found == guard;
    }
    Ok((outputs, intact))
}

/// The schedule with its workspace where the guards are. Kernels that borrow run one after the other, so all may have one place.
fn moved(mut schedule: Schedule) -> Outcome<Schedule> {
    let planned = schedule.peak_bytes(Space::Device);
    if planned > AT - GUARD {
        return Err(format!("expected values within {} bytes, found {planned}", AT - GUARD).into());
    }
    for buffer in schedule.buffers.iter_mut().filter(|buffer| buffer.kind == BufferKind::Workspace) {
        buffer.offset = AT;
    }
    for arena in schedule.arenas.iter_mut().filter(|arena| arena.space == Space::Device) {
        arena.bytes = AT + MOST + GUARD;
    }
    Ok(schedule)
}
