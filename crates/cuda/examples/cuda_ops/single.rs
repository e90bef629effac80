//! Small graphs, run once or more on both devices from the same bytes.

use crate::build::Build;
use crate::{Outcome, cuda, relative_error, statistics};
use serde_json::{Value, json};
use std::sync::Arc;
use vdnn_cuda::CudaDevice;
use vdnn_graph::{Graph, InPlace, Op, Program, Role, ValueId};
use vdnn_memory::{Budgets, HomeLayout, Options, Problem, compile_with_policy, policies};
use vdnn_runtime::{CpuDevice, Device, Executor, KernelRequest, ScheduleId};
use vdnn_schedule::{KernelTable, Schedule, Space};
use vdnn_sim::Links;
use vdnn_tensor::{DType, Philox, TensorType};

/// Algorithms of one node that are tried.
pub const MOST_ALGORITHMS: usize = 4;

/// Names of homes to write and to read, with their types.
struct Ends {
    inputs: Vec<(String, TensorType)>,
    outputs: Vec<(String, TensorType)>,
}

fn ends(graph: &Graph) -> Ends {
    let entry = |id: ValueId| (graph.value(id).name.clone(), graph.value(id).ty.clone());
    let made = |id: &ValueId| graph.value(*id).producer.is_none();
    let roles = [Role::Input, Role::Parameter, Role::State];
    let given = graph.value_ids().filter(|id| made(id) && roles.contains(&graph.value(*id).role));
    let persistents = graph.persistents().iter().map(|persistent| persistent.last);
    let metrics = graph.value_ids().filter(|id| graph.value(*id).role == Role::Metric);
    Ends { inputs: given.map(entry).collect(), outputs: metrics.chain(persistents).map(entry).collect() }
}

/// Bytes of an input, a function of its name.
fn fill(name: &str, ty: &TensorType) -> Vec<u8> {
    let (name, round): (&str, fn(f32) -> f32) = match name.split_once('.') {
        Some(("bf16", name)) => (name, |v| half::bf16::from_f32(v).to_f32()),
        Some(("f16", name)) => (name, |v| half::f16::from_f32(v).to_f32()),
        // What tf32 keeps of it.
        Some(("f32", name)) => (name, |v| f32::from_bits((v.to_bits() + 0x1000) & !0x1fff)),
        _ => (name, |v| v),
    };
    let seed = name.bytes().fold(7u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut random = Philox::new(seed, 0);
    let count = ty.shape.elements();
    match ty.dtype {
        DType::U64 => 3u64.to_le_bytes().to_vec(),
        DType::U8 => (0..count).map(|_| (random.uniform() * 256.0) as u8).collect(),
        DType::I32 => (0..count).flat_map(|_| ((random.uniform() * 10.0) as i32).min(9).to_le_bytes()).collect(),
        _ if name.starts_with("awkward") => {
            (0..count).flat_map(|_| round(awkward(&mut random)).to_le_bytes()).collect()
        }
        _ if name.starts_with("rate") => 0.05f32.to_le_bytes().to_vec(),
        _ if name.starts_with("positive") => {
            (0..count).flat_map(|_| round(random.uniform() + 0.5).to_le_bytes()).collect()
        }
        // Nearly normal: no two numbers of a window are the same.
        _ => {
            let scale = if name.starts_with("small") { 1.0 / 512.0 } else { 1.0 };
            let mut number = || {
                let sum: f32 = (0..4).map(|_| random.uniform() - 0.5).sum();
                round(sum * 1.7 * scale)
            };
            (0..count).flat_map(|_| number().to_le_bytes()).collect()
        }
    }
}

fn awkward(random: &mut Philox) -> f32 {
    let numbers = [0.0, -0.0, 1.0, 1.0, -1.0, 2.5, -3.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40];
    numbers[(random.uniform() * numbers.len() as f32) as usize % numbers.len()]
}

/// The GPU with memory for every case.
pub struct Gpu {
    executor: Executor<CudaDevice>,
}

impl Gpu {
    pub fn open() -> Outcome<Self> {
        let mut executor = Executor::new(cuda()?);
        executor.reserve(4 << 30, 1 << 20)?;
        Ok(Gpu { executor })
    }

    /// Every algorithm of the GPU against the CPU: the largest error of any output, and whether two runs agree.
    ///
    /// Bytes (masks, indices) and counters must be the CPU's, and the values of a pair the same on the GPU. Awkward numbers make no
    /// relative error.
    pub fn compare(&mut self, build: Build, limit: f64) -> Outcome<(bool, Value)> {
        let name = |id: ValueId| build.graph.value(id).name.clone();
        let pairs: Vec<[String; 2]> = build.pairs.iter().map(|&(a, b)| [name(a), name(b)]).collect();
        let odd = build.graph.values().iter().any(|value| value.name.starts_with("awkward"));
        let program = Arc::new(Program::linearize(build.graph, InPlace::Allowed)?);
        let want = on_cpu(&program)?;
        let outputs = ends(&program.graph).outputs;
        let place = |name: &String| outputs.iter().position(|(other, _)| other == name).ok_or("no such output");
        let (mut worst, mut same_bits, mut as_plain, mut as_cpu) = (0f64, true, true, true);
        let schedules = schedules(self.executor.device_mut(), &program)?;
        let algorithms = schedules.len();
        for schedule in schedules {
            let id = self.executor.add(Arc::clone(&program), Arc::new(schedule))?;
            let got = run(&mut self.executor, id, &program)?;
            same_bits &= got == run(&mut self.executor, id, &program)?;
            for [a, b] in &pairs {
                as_plain &= got[place(a)?] == got[place(b)?];
            }
            for ((got, want), (_, ty)) in got.iter().zip(&want).zip(&outputs) {
                match ty.dtype {
                    DType::U8 | DType::I32 => as_cpu &= got == want,
                    _ if odd => {}
                    _ => worst = worst.max(relative_error(&floats(got), &floats(want))),
                }
            }
        }
        let facts = json!({
            "relative_error": worst, "limit": limit, "algorithms": algorithms, "same_bits_twice": same_bits,
            "pairs": pairs.len(), "pairs_same": as_plain, "bytes_as_cpu": as_cpu,
        });
        Ok((worst <= limit && same_bits && as_plain && as_cpu, facts))
    }
}

impl Gpu {
    /// A case with channels innermost on the GPU against the same in f32 on the CPU: relative error of each output, and of its worst
    /// number against the output's size.
    pub fn compare_inner(
        &mut self,
        half: Build,
        rounded: Build,
        [limit, worst_limit]: [f64; 2],
    ) -> Outcome<(bool, Value)> {
        let names = |build: &Build| -> Vec<String> {
            build.outputs.iter().map(|&id| build.graph.value(id).name.clone()).collect()
        };
        let (half_names, names_of_cpu) = (names(&half), names(&rounded));
        let place = |id: ValueId| half.outputs.iter().position(|&other| other == id).ok_or("no such output");
        let pairs = half.pairs.iter().map(|&(a, b)| Ok([place(a)?, place(b)?])).collect::<Result<Vec<_>, &str>>()?;
        let odd = rounded.graph.values().iter().any(|value| value.name.contains("awkward"));
        let pick = |program: &Program, bytes: Vec<Vec<u8>>, names: &[String]| -> Outcome<Vec<Vec<u8>>> {
            let outputs = ends(&program.graph).outputs;
            let at = |name: &String| outputs.iter().position(|(other, _)| other == name).ok_or("no such output");
            names.iter().map(|name| Ok(bytes[at(name)?].clone())).collect()
        };
        let cpu = Arc::new(Program::linearize(rounded.graph, InPlace::Allowed)?);
        let want = pick(&cpu, on_cpu(&cpu)?, &names_of_cpu)?;
        let program = Arc::new(Program::linearize(half.graph, InPlace::Allowed)?);
        let (mut error, mut worst, mut same_bits, mut same_pairs) = (0f64, 0f64, true, true);
        let deterministic = deterministic(&program.graph);
        let schedules = schedules(self.executor.device_mut(), &program)?;
        let algorithms = schedules.len();
        for schedule in schedules {
            let id = self.executor.add(Arc::clone(&program), Arc::new(schedule))?;
            let got = run(&mut self.executor, id, &program)?;
            same_bits &= got == run(&mut self.executor, id, &program)?;
            let got = pick(&program, got, &half_names)?;
            same_pairs &= pairs.iter().all(|&[a, b]| got[a] == got[b]);
            for (got, want) in got.iter().zip(&want).filter(|_| !odd) {
                let (got, want) = (floats(got), floats(want));
                error = error.max(relative_error(&got, &want));
                worst = worst.max(worst_error(&got, &want));
            }
        }
        let facts = json!({
            "relative_error": error, "limit": limit, "worst": worst, "worst_limit": worst_limit, "algorithms": algorithms,
            "same_bits_twice": same_bits, "pairs": pairs.len(), "pairs_same": same_pairs, "outputs": want.len(),
            "deterministic": deterministic, "statistics": statistics::algorithms(&program.graph, &self.kernels(&program)?),
        });
        let counts = half_names.len() == want.len() && !want.is_empty();
        let same = same_bits && same_pairs || !deterministic;
        Ok((counts && error <= limit && worst <= worst_limit && same, facts))
    }

    /// The GPU's choices for each node.
    pub fn kernels(&mut self, program: &Program) -> Outcome<KernelTable> {
        let request = KernelRequest::whole(deterministic(&program.graph));
        Ok(self.executor.device_mut().kernel_table(&program.graph, request)?)
    }

    /// All outputs with the first choice of each node.
    pub fn run_with(&mut self, program: &Arc<Program>, kernels: &KernelTable) -> Outcome<Vec<Vec<u8>>> {
        let schedule = schedule(program, kernels)?;
        let id = self.executor.add(Arc::clone(program), Arc::new(schedule))?;
        run(&mut self.executor, id, program)
    }
}

/// All outputs on the CPU.
pub fn on_cpu(program: &Arc<Program>) -> Outcome<Vec<Vec<u8>>> {
    let mut cpu = Executor::new(CpuDevice::new()?);
    let schedule = schedules(cpu.device_mut(), program)?.remove(0);
    cpu.reserve(schedule.peak_bytes(Space::Device), 0)?;
    let id = cpu.add(Arc::clone(program), Arc::new(schedule))?;
    run(&mut cpu, id, program)
}

/// False where a convolution sums its output: such plans are offered only where bits may vary from run to run.
fn deterministic(graph: &Graph) -> bool {
    !graph.nodes().iter().any(|node| matches!(node.op, Op::Conv2dStats(_)))
}

/// A schedule for each of the first few algorithms.
fn schedules(device: &mut dyn Device, program: &Program) -> Outcome<Vec<Schedule>> {
    let graph = &program.graph;
    let kernels = device.kernel_table(graph, KernelRequest::whole(deterministic(graph)))?;
    let most = kernels.choices.iter().map(Vec::len).max().unwrap_or(1).min(MOST_ALGORITHMS);
    let mut all = Vec::new();
    for choice in 0..most {
        let mut kernels = kernels.clone();
        for choices in &mut kernels.choices {
            let wanted = choice.min(choices.len() - 1);
            choices.swap(0, wanted);
            choices.truncate(1);
        }
        all.push(schedule(program, &kernels)?);
    }
    if let Some(kernels) = statistics::as_two_ops(graph, &kernels) {
        all.push(schedule(program, &kernels)?);
    }
    Ok(all)
}

/// Everything kept, the first choice of each node.
pub fn schedule(program: &Program, kernels: &KernelTable) -> Outcome<Schedule> {
    let homes = HomeLayout::for_graphs(&[&program.graph], 256);
    let links = Links { latency: 1e-5, ..Links::new(5e10, 5e10, 4e10) };
    let policy = policies::find("none").ok_or("no policy `none`")?;
    let (budgets, options) = (Budgets::default(), Options::default());
    let problem = Problem { program, kernels, links, homes: &homes, budgets, options, encoded: None };
    Ok(compile_with_policy(&problem, policy.as_ref())?.0)
}

/// Writes all inputs, runs once, reads all outputs.
pub fn run<D: Device>(executor: &mut Executor<D>, id: ScheduleId, program: &Program) -> Outcome<Vec<Vec<u8>>> {
    let ends = ends(&program.graph);
    for (name, ty) in &ends.inputs {
        executor.write(id, name, &fill(name, ty))?;
    }
    executor.run(id)?;
    let read = ends.outputs.iter().map(|(name, _)| executor.read(id, name));
    Ok(read.collect::<Result<_, _>>()?)
}

/// The largest difference of two numbers, over the expected one's size and the root mean square of all.
fn worst_error(got: &[f32], want: &[f32]) -> f64 {
    let square: f64 = want.iter().map(|b| f64::from(*b).powi(2)).sum();
    let size = (square / want.len().max(1) as f64).sqrt();
    let error = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).abs() / (f64::from(*b).abs() + size).max(1e-20);
    got.iter().zip(want).map(error).fold(0.0, f64::max)
}

/// Bytes as numbers.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}
