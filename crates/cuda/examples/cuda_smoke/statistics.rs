//! Every plan of the shared layers in f16 that sums its output: Y against plain loops in f64, the sums against those of that Y, the
//! same Y twice, and how long it takes. The sums' last bits vary.

use half::f16;
use serde_json::{Value, json};
use vdnn_cuda::CudaError;
use vdnn_cuda::cudnn::{
    Addresses, ConvolutionProblem, Epilogue, Handle, Plan, Repetitions, Target, Wanted, enumerate, time_plan,
};
use vdnn_cuda::memory::DeviceArena;
use vdnn_tensor::DType;

use crate::layers::{self, SUMMED};
use crate::{Bench, download, numbers, relative_error};

/// Bytes kept for each of X, W, Y and the sums.
const SLOT: u64 = 128 << 20;
const WORKSPACE: u64 = 64 << 20;
/// Elements of Y that are computed on the host.
const LOOKED_AT: usize = 4096;
/// Channels whose sums are.
const CHANNELS: usize = 16;

pub fn run(bench: &mut Bench) -> Result<(), CudaError> {
    let handle = Handle::new(bench.libraries.cudnn, &bench.streams.compute)?;
    let arena = DeviceArena::new(&bench.context, 4 * SLOT + WORKSPACE)?;
    let problems = SUMMED.map(|layer| layers::problem(layer, DType::F16, Epilogue::Statistics));
    for (problem, around) in problems.iter().flat_map(|problem| [(problem, 0.0), (problem, 1.0)]) {
        let wanted = Wanted { deterministic: false, workspace_limit: WORKSPACE, ..Wanted::default() };
        let case = Case::new(*problem, around, &arena)?;
        case.upload(bench, &arena)?;
        for plan in enumerate(Target::Device(&handle), problem, &wanted)? {
            let (passed, facts) = case.run(bench, &handle, &arena, &plan)?;
            bench.report("conv with statistics", passed, facts);
        }
    }
    Ok(())
}

struct Case {
    problem: ConvolutionProblem,
    /// What X's and W's numbers lie around: sums of squares then are far larger than what they tell of the variance.
    around: f32,
    x: Vec<f16>,
    w: Vec<f16>,
    at: Addresses,
}

/// What a run leaves.
#[derive(PartialEq)]
struct Results {
    y: Vec<u16>,
    sums: [Vec<u32>; 2],
}

impl Case {
    fn new(problem: ConvolutionProblem, around: f32, arena: &DeviceArena) -> Result<Self, CudaError> {
        let p = &problem;
        let half = |seed, count: u64| -> Vec<f16> {
            numbers(seed, count as usize).iter().map(|&v| f16::from_f32(0.5 * v + around)).collect()
        };
        let (x, w) = (half(3, p.n * p.x_batch_stride), half(4, p.k * p.c * p.kh * p.kw));
        let slot = |index: u64| arena.address(index * SLOT);
        let epilogue = [slot(3), slot(3) + (4 * p.k).next_multiple_of(256)];
        let at =
            Addresses { x: slot(0), w: slot(1), y: slot(2), epilogue, workspace: slot(4), workspace_bytes: WORKSPACE };
        Ok(Case { problem, around, x, w, at })
    }

    fn upload(&self, bench: &Bench, arena: &DeviceArena) -> Result<(), CudaError> {
        let stream = &bench.streams.compute;
        for (address, values) in [(self.at.x, &self.x), (self.at.w, &self.w)] {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_bits().to_le_bytes()).collect();
            arena.write(stream, address - arena.address(0), &bytes)?;
        }
        Ok(())
    }

    fn results(&self, bench: &Bench, handle: &Handle, arena: &DeviceArena, plan: &Plan) -> Result<Results, CudaError> {
        let (stream, base) = (&bench.streams.compute, arena.address(0));
        // SAFETY: the slots hold X, W, Y and the sums, and the workspace is nobody else's.
        let site = unsafe { plan.bind(self.at)? };
        // Not a number anywhere: whoever adds to what was there shows.
        for address in [self.at.y, self.at.epilogue[0]] {
            arena.fill(stream, address - base, SLOT, 0xFF)?;
        }
        arena.fill(stream, self.at.workspace - base, WORKSPACE, 0xFF)?;
        plan.execute(handle, &site)?;
        let mut y = vec![0u8; 2 * (self.problem.n * self.problem.y_batch_stride) as usize];
        arena.read(stream, self.at.y - base, &mut y)?;
        let sum = |address: u64| -> Result<Vec<u32>, CudaError> {
            let sums = download(arena, stream, address - base, self.problem.k as usize)?;
            Ok(sums.iter().map(|sum| sum.to_bits()).collect())
        };
        let sums = [sum(self.at.epilogue[0])?, sum(self.at.epilogue[1])?];
        Ok(Results { y: y.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect(), sums })
    }

    fn run(
        &self,
        bench: &Bench,
        handle: &Handle,
        arena: &DeviceArena,
        plan: &Plan,
    ) -> Result<(bool, Value), CudaError> {
        let first = self.results(bench, handle, arena, plan)?;
        let second = self.results(bench, handle, arena, plan)?;
        // SAFETY: as in `results`.
        let site = unsafe { plan.bind(self.at)? };
        let ms = time_plan(handle, plan, &site, Repetitions { count: 5, max_ms: 50.0 })?;
        let y = relative_error(&self.some_of(&first.y)?);
        let [sum, squares, variance] = self.sums_off(&first);
        let facts = json!({
            "problem": self.problem.to_string(), "around": self.around, "plan": plan.name.to_string(), "ms": ms,
            "workspace": plan.workspace_bytes, "y": y, "sum": sum, "squares": squares, "variance": variance,
            "same_bits_twice": first == second,
        });
        Ok((y < 1e-3 && sum < 1e-4 && squares < 1e-3 && variance < 1e-2 && first.y == second.y, facts))
    }

    /// Some numbers of Y, and what they should be.
    fn some_of(&self, y: &[u16]) -> Result<Vec<(f32, f64)>, CudaError> {
        let (k, size) = (self.problem.k, self.problem.output()?);
        let pair = |place: usize| {
            let (pixel, channel) = (place as u64 / k, place as u64 % k);
            (f16::from_bits(y[place]).to_f32(), self.element(pixel, channel, size))
        };
        // An odd step visits all channels.
        Ok((0..y.len()).step_by((y.len() / LOOKED_AT) | 1).map(pair).collect())
    }

    /// How far the sums, those of squares, and the variance from both are at most from those of Y as it was written.
    ///
    /// Whether Y is summed before or after it is rounded to 11 bits, sums agree as chance has it and f32 sums; of the variance that
    /// loses as much as the mean is away from zero, squared, in units of the deviation.
    fn sums_off(&self, found: &Results) -> [f64; 3] {
        let k = self.problem.k as usize;
        let (pixels, mut worst) = ((found.y.len() / k) as f64, [0f64; 3]);
        for channel in (0..k).step_by(k.div_ceil(CHANNELS)) {
            let numbers = found.y.iter().skip(channel).step_by(k).map(|&bits| f64::from(f16::from_bits(bits).to_f32()));
            let (sum, squares) = numbers.fold((0.0, 0.0), |(sum, squares), v| (sum + v, squares + v * v));
            let [got, got_squares] = [0, 1].map(|which: usize| f64::from(f32::from_bits(found.sums[which][channel])));
            let (spread, got_spread) = (squares - sum * sum / pixels, got_squares - got * got / pixels);
            // A sum that is near zero by chance is no harder than others of numbers of that size.
            let off = [
                (got - sum).abs() / (squares * pixels).sqrt(),
                (got_squares - squares).abs() / squares,
                (got_spread - spread).abs() / spread,
            ];
            worst = [0, 1, 2].map(|index| worst[index].max(off[index]));
        }
        worst
    }

    /// One number of Y in f64.
    fn element(&self, pixel: u64, k: u64, [oh, ow]: [u64; 2]) -> f64 {
        let p = &self.problem;
        let (n, row, column) = (pixel / (oh * ow), pixel / ow % oh, pixel % ow);
        let inside = |out: u64, axis: usize, tap: u64, size: u64| {
            (out * p.stride[axis] + tap).checked_sub(p.padding[axis]).filter(|&at| at < size)
        };
        let mut sum = 0.0;
        for (a, b) in (0..p.kh * p.kw).map(|tap| (tap / p.kw, tap % p.kw)) {
            let (Some(i), Some(j)) = (inside(row, 0, a, p.h), inside(column, 1, b, p.w)) else { continue };
            let x = &self.x[((n * p.h + i) * p.w + j) as usize * p.c as usize..][..p.c as usize];
            let w = &self.w[((k * p.kh + a) * p.kw + b) as usize * p.c as usize..][..p.c as usize];
            sum += x.iter().zip(w).map(|(x, w)| f64::from(x.to_f32()) * f64::from(w.to_f32())).sum::<f64>();
        }
        sum
    }
}
