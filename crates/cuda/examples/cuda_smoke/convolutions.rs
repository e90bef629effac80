//! Every deterministic plan of some problems, in all directions and both precisions, against plain loops in f64.

use serde_json::json;
use vdnn_cuda::CudaError;
use vdnn_cuda::cudnn::{
    Addresses, ConvolutionProblem, Direction, Handle, Plan, Precision, Repetitions, Target, Wanted, enumerate,
    time_plan,
};
use vdnn_cuda::memory::DeviceArena;

use crate::{Bench, download, numbers, relative_error, upload};

/// Bytes kept for each of X, W and Y.
const SLOT: u64 = 256 << 20;
const WORKSPACE: u64 = 1 << 30;
/// Not a number, and no result of a convolution.
const UNTOUCHED: u8 = 0xFF;

pub fn run(bench: &mut Bench) -> Result<(), CudaError> {
    let free = bench.free();
    let handle = Handle::new(bench.libraries.cudnn, &bench.streams.compute)?;
    bench.report("cuDNN handle", true, json!({"device_bytes": free.saturating_sub(bench.free())}));
    let arena = DeviceArena::new(&bench.context, 3 * SLOT + WORKSPACE)?;
    for problem in problems() {
        for direction in Direction::ALL {
            for precision in [Precision::Fp32, Precision::Tf32] {
                let problem = ConvolutionProblem { direction, precision, ..problem };
                all_plans(bench, &handle, &arena, &problem)?;
            }
        }
    }
    refusals(bench, &handle, &arena)
}

fn problems() -> Vec<ConvolutionProblem> {
    let dense =
        |x, k, filter, stride, padding| ConvolutionProblem::dense(Direction::Forward, x, k, filter, stride, padding);
    let plain = dense([4, 16, 14, 14], 24, 3, 1, 1);
    vec![
        plain,
        ConvolutionProblem { x_batch_stride: 40 * 14 * 14, y_batch_stride: 64 * 14 * 14, ..plain },
        // Slices that start at any element.
        ConvolutionProblem { x_batch_stride: 16 * 196 + 1, y_batch_stride: 24 * 196 + 3, alignment: 4, ..plain },
        ConvolutionProblem { groups: 4, ..plain },
        ConvolutionProblem { dilation: [2, 2], padding: [2, 2], ..plain },
        dense([2, 3, 33, 31], 8, 7, 2, 3),
        dense([3, 32, 9, 9], 16, 1, 1, 0),
        dense([2, 8, 12, 12], 8, 5, 1, 2),
        dense([32, 64, 56, 56], 64, 3, 1, 1),
        dense([32, 256, 14, 14], 256, 3, 1, 1),
    ]
}

fn all_plans(
    bench: &mut Bench,
    handle: &Handle,
    arena: &DeviceArena,
    problem: &ConvolutionProblem,
) -> Result<(), CudaError> {
    let wanted = Wanted { workspace_limit: WORKSPACE, ..Wanted::default() };
    let start = std::time::Instant::now();
    let plans = match enumerate(Target::Device(handle), problem, &wanted) {
        Ok(plans) => plans,
        Err(error) => {
            bench.report("plans", false, json!({"problem": problem.to_string(), "error": error.to_string()}));
            return Ok(());
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    let case = Case::new(problem, arena)?;
    let facts = json!({"problem": problem.to_string(), "plans": plans.len(), "seconds": seconds, "free": bench.free()});
    bench.report("plans", true, facts);
    for plan in &plans {
        match case.run(bench, handle, arena, plan) {
            Ok((passed, facts)) => bench.report("conv", passed, facts),
            Err(error) => {
                let facts = json!({
                    "problem": problem.to_string(), "plan": plan.name.to_string(), "error": error.to_string(),
                });
                bench.report("conv", false, facts);
            }
        }
    }
    Ok(())
}

/// Operands on the host and, for some elements of the result, what they should be.
struct Case {
    problem: ConvolutionProblem,
    operands: [Vec<f32>; 3],
    /// Index in the result's memory, and the value.
    expected: Vec<(usize, f64)>,
    /// Length of the result in memory, with the gaps between samples.
    result_length: usize,
    at: Addresses,
}

/// Which of X, W, Y a direction writes.
fn written(direction: Direction) -> usize {
    match direction {
        Direction::Forward => 2,
        Direction::DataGradient => 0,
        Direction::WeightGradient => 1,
    }
}

impl Case {
    fn new(problem: &ConvolutionProblem, arena: &DeviceArena) -> Result<Self, CudaError> {
        let p = problem;
        let lengths = [p.n * p.x_batch_stride, p.k * (p.c / p.groups) * p.kh * p.kw, p.n * p.y_batch_stride];
        let operands = [0, 1, 2].map(|i| numbers(i as u64 + 7, lengths[i] as usize));
        // Packed problems start at multiples of 16 bytes; slices with an alignment of 4 at an odd element.
        let shift = if p.alignment < 16 { 4 } else { 0 };
        let slot = |i: u64| arena.address(i * SLOT) + shift;
        let workspace = arena.address(3 * SLOT);
        let at =
            Addresses { x: slot(0), w: slot(1), y: slot(2), epilogue: [0; 2], workspace, workspace_bytes: WORKSPACE };
        let result_length = lengths[written(p.direction)] as usize;
        let expected = expected(p, &operands)?;
        Ok(Self { problem: *p, operands, expected, result_length, at })
    }

    fn run(
        &self,
        bench: &Bench,
        handle: &Handle,
        arena: &DeviceArena,
        plan: &Plan,
    ) -> Result<(bool, serde_json::Value), CudaError> {
        let stream = &bench.streams.compute;
        let result = written(self.problem.direction);
        let offset = |i: usize| [self.at.x, self.at.w, self.at.y][i] - arena.address(0);
        for i in (0..3).filter(|i| *i != result) {
            upload(arena, stream, offset(i), &self.operands[i])?;
        }
        // SAFETY: the slots hold X, W and Y with their strides, and the workspace is nobody else's.
        let site = unsafe { plan.bind(self.at)? };
        let ms = time_plan(handle, plan, &site, Repetitions { count: 5, max_ms: 50.0 })?;
        let once = || -> Result<Vec<f32>, CudaError> {
            arena.fill(stream, offset(result), 4 * self.result_length as u64, UNTOUCHED)?;
            plan.execute(handle, &site)?;
            download(arena, stream, offset(result), self.result_length)
        };
        let (first, second) = (once()?, once()?);
        let pairs: Vec<(f32, f64)> = self.expected.iter().map(|(i, want)| (first[*i], *want)).collect();
        let error = relative_error(&pairs);
        // Winograd-like plans lose up to three digits more than plain sums do; a wrong index would be off by far more.
        let limit = match self.problem.precision {
            Precision::Fp32 => 1e-3,
            Precision::Tf32 => 2e-3,
        };
        let same = first.iter().zip(&second).all(|(a, b)| a.to_bits() == b.to_bits());
        let gaps_kept = self.gaps(&first);
        let facts = json!({
            "problem": self.problem.to_string(), "plan": plan.name.to_string(), "workspace": plan.workspace_bytes,
            "ms": ms, "tflops": self.problem.operations() / ms / 1e9, "relative_error": error,
            "compared": pairs.len(), "same_bits_twice": same, "gaps_kept": gaps_kept,
            "notes": format!("{:?}", plan.notes).replace("Notes ", ""),
        });
        Ok((error <= limit && same && gaps_kept, facts))
    }

    /// Whether everything between samples is as it was, and everything in them was written.
    fn gaps(&self, result: &[f32]) -> bool {
        let p = &self.problem;
        let [oh, ow] = p.output().unwrap_or([0, 0]);
        let (stride, length) = match p.direction {
            Direction::Forward => (p.y_batch_stride, p.k * oh * ow),
            Direction::DataGradient => (p.x_batch_stride, p.c * p.h * p.w),
            Direction::WeightGradient => (result.len() as u64, result.len() as u64),
        };
        let untouched = |v: &f32| v.to_bits() == 0xFFFF_FFFF;
        result.chunks(stride as usize).all(|sample| {
            let (inside, gap) = sample.split_at(length as usize);
            !inside.iter().any(untouched) && gap.iter().all(untouched)
        })
    }
}

/// Elements of the result by plain loops; all of them, or an even choice when that would take long.
fn expected(p: &ConvolutionProblem, operands: &[Vec<f32>; 3]) -> Result<Vec<(usize, f64)>, CudaError> {
    let [oh, ow] = p.output()?;
    let groups_c = p.c / p.groups;
    let (extents, strides, work) = match p.direction {
        Direction::Forward => ([p.n, p.k, oh, ow], [p.y_batch_stride, oh * ow, ow, 1], groups_c * p.kh * p.kw),
        Direction::DataGradient => {
            ([p.n, p.c, p.h, p.w], [p.x_batch_stride, p.h * p.w, p.w, 1], p.k / p.groups * p.kh * p.kw)
        }
        Direction::WeightGradient => {
            ([p.k, groups_c, p.kh, p.kw], [groups_c * p.kh * p.kw, p.kh * p.kw, p.kw, 1], p.n * oh * ow)
        }
    };
    let total: u64 = extents.iter().product();
    // An odd step visits all residues of the extents.
    let step = (total * work / 20_000_000) | 1;
    let mut list = Vec::new();
    for element in (0..total).step_by(step as usize) {
        let i3 = element % extents[3];
        let i2 = element / extents[3] % extents[2];
        let i1 = element / extents[3] / extents[2] % extents[1];
        let i0 = element / extents[3] / extents[2] / extents[1];
        let place: u64 = [i0, i1, i2, i3].iter().zip(strides).map(|(i, s)| i * s).sum();
        list.push((place as usize, element_of(p, operands, [i0, i1, i2, i3], [oh, ow])));
    }
    Ok(list)
}

/// One element of the result in f64.
fn element_of(p: &ConvolutionProblem, [x, w, y]: &[Vec<f32>; 3], at: [u64; 4], [oh, ow]: [u64; 2]) -> f64 {
    let (gc, gk) = (p.c / p.groups, p.k / p.groups);
    let x_at = |n: u64, c: u64, i: u64, j: u64| f64::from(x[(n * p.x_batch_stride + (c * p.h + i) * p.w + j) as usize]);
    let w_at = |k: u64, c: u64, i: u64, j: u64| f64::from(w[(((k * gc + c) * p.kh + i) * p.kw + j) as usize]);
    let y_at = |n: u64, k: u64, i: u64, j: u64| f64::from(y[(n * p.y_batch_stride + (k * oh + i) * ow + j) as usize]);
    // The input row that output row `o` and tap `t` meet; none in the padding.
    let input = |axis: usize, o: u64, t: u64| {
        let size = [p.h, p.w][axis];
        (o * p.stride[axis] + t * p.dilation[axis]).checked_sub(p.padding[axis]).filter(|i| *i < size)
    };
    // The output row from which tap `t` reached input row `i`; none when the stride steps over it.
    let output = |axis: usize, i: u64, t: u64| {
        let reached = (i + p.padding[axis]).checked_sub(t * p.dilation[axis])?;
        let exact = reached % p.stride[axis] == 0 && reached / p.stride[axis] < [oh, ow][axis];
        exact.then_some(reached / p.stride[axis])
    };
    let mut sum = 0.0;
    match p.direction {
        Direction::Forward => {
            let [n, k, i, j] = at;
            for (t, u) in taps(p) {
                let (Some(r), Some(s)) = (input(0, i, t), input(1, j, u)) else { continue };
                sum += (0..gc).map(|c| x_at(n, k / gk * gc + c, r, s) * w_at(k, c, t, u)).sum::<f64>();
            }
        }
        Direction::DataGradient => {
            let [n, c, i, j] = at;
            for (t, u) in taps(p) {
                let (Some(r), Some(s)) = (output(0, i, t), output(1, j, u)) else { continue };
                let first = c / gc * gk;
                sum += (first..first + gk).map(|k| y_at(n, k, r, s) * w_at(k, c % gc, t, u)).sum::<f64>();
            }
        }
        Direction::WeightGradient => {
            let [k, c, t, u] = at;
            for (i, j) in (0..oh * ow).map(|o| (o / ow, o % ow)) {
                let (Some(r), Some(s)) = (input(0, i, t), input(1, j, u)) else { continue };
                sum += (0..p.n).map(|n| x_at(n, k / gk * gc + c, r, s) * y_at(n, k, i, j)).sum::<f64>();
            }
        }
    }
    sum
}

fn taps(p: &ConvolutionProblem) -> impl Iterator<Item = (u64, u64)> {
    let kw = p.kw;
    (0..p.kh * kw).map(move |t| (t / kw, t % kw))
}

fn refusals(bench: &mut Bench, handle: &Handle, arena: &DeviceArena) -> Result<(), CudaError> {
    let problem = ConvolutionProblem::dense(Direction::Forward, [32, 64, 56, 56], 64, 3, 1, 1);
    let plans = enumerate(Target::Device(handle), &problem, &Wanted::default())?;
    let hungry = plans.iter().find(|p| p.workspace_bytes > 0);
    let base = arena.address(0);
    let at =
        Addresses { x: base, w: base + SLOT, y: base + 2 * SLOT, epilogue: [0; 2], workspace: 0, workspace_bytes: 0 };
    // SAFETY: neither is executed.
    let (starved, odd) = unsafe { (hungry.map(|p| p.bind(at)), plans[0].bind(Addresses { x: base + 4, ..at })) };
    let starved = starved.is_none_or(|r| matches!(r, Err(CudaError::Workspace { .. })));
    bench.report("conv without its workspace", starved, json!({}));
    let odd = matches!(odd, Err(CudaError::Misaligned { .. } | CudaError::Workspace { .. }));
    bench.report("conv at an odd address", odd, json!({}));
    Ok(())
}
