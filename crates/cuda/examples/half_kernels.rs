//! How near the kernels with channels innermost come to the card's copy rate, on the maps of ResNet-50 at batch 256, and groups of
//! updates and casts.
//!
//! Prints one JSON line a kernel and shape (bytes as a perfect kernel would move them, microseconds, GB/s, per cent of the measured
//! copy rate, each launch by itself) and a table last. `half_kernels [BATCH] [bf16|f16|f32]`; exits 1 without a GPU.
//!
//! Operands lie at so many places that the card's cache does not hold them between repetitions; launches are captured, so that
//! the host's part does not count.

#![allow(unsafe_code)]

use serde_json::json;
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use vdnn_cuda::context::{Context, Event, Streams, Timing};
use vdnn_cuda::kernels::{self, KernelArg, KernelLaunch, Operand};
use vdnn_cuda::library::{Libraries, LibraryOptions};
use vdnn_cuda::memory::{DeviceArena, copy_on_device};
use vdnn_cuda::nvrtc::{Argument, CubinCache, Grid, KernelSource, Launch, Module, cache_folder};
use vdnn_graph::Op;
use vdnn_graph::op::{
    AdaptiveAvgPool2d, AdaptiveAvgPool2dGrad, BatchNorm, BatchNormPair, BatchNormReluMaxPool2d, Cast, Dropout, Group,
    MaxPool2d, MaxPool2dIndicesGrad, Sgd, Unfold, Window, mask_type,
};
use vdnn_tensor::{DType, Layout, MemoryOrder, Philox, TensorType};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Memory that repetitions go through in turn: more than a cache holds.
const CYCLE: u64 = 512 << 20;
/// Repetitions of a measurement, of which the least counts.
const REPETITIONS: usize = 5;

/// Channels, height and width of ResNet-50's maps.
const MAPS: [[u64; 3]; 12] = [
    [64, 112, 112],
    [64, 56, 56],
    [256, 56, 56],
    [128, 56, 56],
    [128, 28, 28],
    [512, 28, 28],
    [256, 28, 28],
    [256, 14, 14],
    [1024, 14, 14],
    [512, 14, 14],
    [512, 7, 7],
    [2048, 7, 7],
];

/// An op with its operands' types.
struct Case {
    name: String,
    op: Op,
    inputs: Vec<TensorType>,
    outputs: Vec<TensorType>,
    /// What a perfect kernel moves.
    bytes: u64,
}

fn case(name: &str, op: Op, inputs: &[&TensorType], outputs: &[&TensorType], bytes: u64) -> Case {
    let owned = |types: &[&TensorType]| types.iter().map(|&ty| ty.clone()).collect();
    Case { name: name.to_string(), op, inputs: owned(inputs), outputs: owned(outputs), bytes }
}

fn nhwc(dims: [u64; 4], dtype: DType, channel_padding: u32) -> TensorType {
    TensorType { layout: Layout { order: MemoryOrder::Nhwc, channel_padding }, ..TensorType::new(dims, dtype) }
}

/// Kernels over one map. A gradient reads X and dY for its sums and again for dX.
fn cases_of(dims: [u64; 4], dtype: DType) -> Vec<Case> {
    let (x, c, norm) = (nhwc(dims, dtype, 0), TensorType::new([dims[1]], DType::F32), BatchNorm { eps: 1e-5 });
    let (mask, counter) = (mask_type(&x), TensorType::new([1], DType::U64));
    let (map, bits) = (x.bytes(), mask.bytes());
    let (dropout, pair) = (Dropout { p: 0.5, seed: 1, stream: 0 }, BatchNormPair { eps: [1e-5; 2] });
    vec![
        case("batch_norm_stats", Op::BatchNormStats, &[&x], &[&c, &c], map),
        case("batch_norm", Op::BatchNorm(norm), &[&x, &c, &c, &c, &c], &[&x], 2 * map),
        case("batch_norm_relu", Op::BatchNormRelu(norm), &[&x, &c, &c, &c, &c], &[&x], 2 * map),
        case(
            "batch_norm_add_relu",
            Op::BatchNormAddRelu(norm),
            &[&x, &c, &c, &c, &c, &x],
            &[&x, &mask],
            3 * map + bits,
        ),
        case("batch_norm_grad", Op::BatchNormGrad(norm), &[&x, &x, &c, &c, &c], &[&x, &c, &c], 5 * map),
        case("batch_norm_relu_grad", Op::BatchNormReluGrad(norm), &[&x, &x, &c, &c, &c, &c], &[&x, &c, &c], 5 * map),
        case(
            "batch_norm_add_relu_grad",
            Op::BatchNormAddReluGrad(norm),
            &[&x, &x, &mask, &c, &c, &c],
            &[&x, &c, &c, &x],
            6 * map + 2 * bits,
        ),
        case(
            "batch_norm_pair_relu",
            Op::BatchNormPairRelu(pair),
            &[&x, &c, &c, &c, &c, &x, &c, &c, &c, &c],
            &[&x, &mask],
            3 * map + bits,
        ),
        case(
            "batch_norm_pair_relu_grad of two gradients",
            Op::BatchNormPairReluGrad(pair),
            &[&x, &x, &mask, &c, &c, &c, &x, &c, &c, &c, &x],
            &[&x, &c, &c, &x, &c, &c],
            10 * map + bits,
        ),
        case("relu_grad", Op::ReluGrad, &[&x, &x], &[&x], 3 * map),
        case("relu_mask", Op::ReluMask, &[&x], &[&x, &mask], 2 * map + bits),
        case("add", Op::Add, &[&x, &x], &[&x], 3 * map),
        case("dropout", Op::Dropout(dropout), &[&x, &counter], &[&x], 2 * map),
        case("bias_grad", Op::BiasGrad, &[&x], &[&c], map),
        case("relu_bias_grad", Op::ReluBiasGrad, &[&x, &x], &[&x, &c], 3 * map),
    ]
}

/// Kernels that a network has once or twice: the stem's pool, the last pool, casts of images and filters.
fn single_cases(batch: u64, dtype: DType) -> Vec<Case> {
    let window = Window { kernel: [3; 2], stride: [2; 2], padding: [1; 2], dilation: [1; 2], ceil_mode: false };
    let (pool, c) = (MaxPool2d { window }, TensorType::new([64], DType::F32));
    let stem = BatchNormReluMaxPool2d { norm: BatchNorm { eps: 1e-5 }, pool };
    let (x, y) = (nhwc([batch, 64, 112, 112], dtype, 0), nhwc([batch, 64, 56, 56], dtype, 0));
    let places = TensorType { dtype: DType::U8, ..y.clone() };
    let (last, pooled) = (nhwc([batch, 2048, 7, 7], dtype, 0), nhwc([batch, 2048, 1, 1], dtype, 0));
    let (image, padded) = (
        TensorType::new([batch, 3, 224, 224], DType::F32),
        nhwc([batch, 3, 224, 224], dtype, if dtype.is_half() { 5 } else { 0 }),
    );
    let (filters, narrow) = (TensorType::new([512, 512, 3, 3], DType::F32), nhwc([512, 512, 3, 3], dtype, 0));
    let (points, flat) = (TensorType::new([2048, 512, 1, 1], DType::F32), nhwc([2048, 512, 1, 1], dtype, 0));
    let unfolded = nhwc([batch, 42, 112, 115], dtype, 6);
    let (window, stride, padding, output) = ([7, 2], [2, 2], [3, 3], [112, 115]);
    let unfold = Unfold { window, stride, padding, output, dtype, layout: unfolded.layout };
    let cast = |to: &TensorType| Op::Cast(Cast { dtype: to.dtype, layout: to.layout });
    let sum = |types: &[&TensorType]| types.iter().map(|ty| ty.bytes()).sum();
    let indices_grad = Op::MaxPool2dIndicesGrad(MaxPool2dIndicesGrad { pool, input: [112, 112] });
    let average = Op::AdaptiveAvgPool2d(AdaptiveAvgPool2d { output: [1, 1] });
    let average_grad = Op::AdaptiveAvgPool2dGrad(AdaptiveAvgPool2dGrad { input: [7, 7] });
    let plain = |name: &str, op, inputs: &[&TensorType], outputs: &[&TensorType]| {
        case(name, op, inputs, outputs, sum(&[inputs, outputs].concat()))
    };
    let to_nchw = |dims: [u64; 4]| {
        let (from, to) = (nhwc(dims, dtype, 0), TensorType::new(dims, dtype));
        plain("cast to NCHW", cast(&to), &[&from], &[&to])
    };
    vec![
        plain("max_pool2d", Op::MaxPool2d(pool), &[&x], &[&y]),
        plain("max_pool2d_grad", Op::MaxPool2dGrad(pool), &[&x, &y, &y], &[&x]),
        plain("max_pool2d_indices", Op::MaxPool2dIndices(pool), &[&x], &[&y, &places]),
        plain("max_pool2d_indices_grad", indices_grad, &[&places, &y], &[&x]),
        plain("batch_norm_relu_max_pool2d", Op::BatchNormReluMaxPool2d(stem), &[&x, &c, &c, &c, &c], &[&y, &places]),
        case(
            "batch_norm_relu_max_pool2d_grad",
            Op::BatchNormReluMaxPool2dGrad(stem),
            &[&x, &places, &y, &c, &c, &c, &c],
            &[&x, &c, &c],
            3 * x.bytes() + 2 * (y.bytes() + places.bytes()),
        ),
        plain("adaptive_avg_pool2d", average, &[&last], &[&pooled]),
        plain("adaptive_avg_pool2d_grad", average_grad, &[&pooled], &[&last]),
        plain("cast images", cast(&padded), &[&image], &[&padded]),
        plain("unfold the stem's image", Op::Unfold(unfold), &[&image], &[&unfolded]),
        plain("cast filters", cast(&narrow), &[&filters], &[&narrow]),
        plain("cast filters back", cast(&filters), &[&narrow], &[&filters]),
        plain("cast points", cast(&flat), &[&points], &[&flat]),
        plain("cast points back", cast(&points), &[&flat], &[&points]),
        to_nchw([batch, 2048, 7, 7]),
        to_nchw([batch, 512, 28, 28]),
        to_nchw([batch, 256, 56, 56]),
    ]
}

/// Groups of four updates and casts, of filters, which are turned, and of points.
fn group_cases(dtype: DType) -> Vec<Case> {
    let (one, counter) = (TensorType::new([1], DType::F32), TensorType::new([1], DType::U64));
    let sgd = Op::Sgd(Sgd { momentum: 0.9, dampening: 0.0, weight_decay: 1e-4, nesterov: false });
    let group = |op, inputs| Op::Group(Group { op: Box::new(op), members: 4, inputs });
    let cases = [("filters", [512, 512, 3, 3]), ("points", [2048, 512, 1, 1])].map(|(name, dims)| {
        let (w, half) = (TensorType::new(dims, DType::F32), nhwc(dims, dtype, 0));
        let cast = Op::Cast(Cast { dtype, layout: half.layout });
        let (read, written) = ([&w, &half, &w, &one, &counter].repeat(4), [&w].repeat(8));
        let (updated, made) = (4 * (4 * w.bytes() + half.bytes()), 4 * (w.bytes() + half.bytes()));
        [
            case(&format!("sgd of 4 {name}"), group(sgd.clone(), 5), &read, &written, updated),
            case(&format!("casts of 4 {name}"), group(cast, 1), &[&w; 4], &[&half; 4], made),
        ]
    });
    cases.into_iter().flatten().collect()
}

/// The GPU with memory full of numbers.
struct Gpu {
    context: Arc<Context>,
    streams: Streams,
    libraries: Libraries,
    images: CubinCache,
    modules: HashMap<&'static str, Arc<Module>>,
    arena: DeviceArena,
    times: [Event; 2],
}

impl Gpu {
    fn open(bytes: u64) -> Outcome<Self> {
        let libraries = Libraries::open(&LibraryOptions::default())?;
        let context = Context::open(0)?;
        let streams = Streams::new(&context)?;
        let arena = DeviceArena::new(&context, bytes)?;
        let mut random = Philox::new(1, 0);
        // As bf16: near 1, of both signs; as f16 about 0.1; pairs as f32 likewise.
        let number =
            |_| (0x3f00u16 | (random.uniform() * 255.0) as u16) | if random.uniform() < 0.5 { 0x8000 } else { 0 };
        let chunk: Vec<u8> = (0..16u64 << 20).map(number).flat_map(u16::to_le_bytes).collect();
        for at in (0..bytes).step_by(chunk.len()) {
            let some = chunk.len().min((bytes - at) as usize);
            arena.write(&streams.compute, at, &chunk[..some])?;
        }
        let times = [Event::new(&context, Timing::On)?, Event::new(&context, Timing::On)?];
        let images = CubinCache::new(cache_folder());
        Ok(Gpu { context, streams, libraries, images, modules: HashMap::new(), arena, times })
    }

    fn settle(&mut self, launch: &KernelLaunch) -> Outcome<Launch> {
        let module = match self.modules.get(launch.file) {
            Some(module) => module.clone(),
            None => {
                let text = kernels::source(launch.file).ok_or("a launch names a source")?;
                let source = KernelSource { name: launch.file, text, options: &[] };
                let image = self.images.cubin(self.libraries.nvrtc, &source, &self.context.architecture())?;
                let module = Module::load(&self.context, launch.file, &image)?;
                self.modules.insert(launch.file, module.clone());
                module
            }
        };
        let grid = Grid { blocks: launch.grid, threads: launch.block, shared_bytes: launch.shared_bytes };
        let argument = |arg: &KernelArg| match *arg {
            KernelArg::U64(v) => Argument::U64(v),
            KernelArg::I64(v) => Argument::I64(v),
            KernelArg::U32(v) => Argument::U32(v),
            KernelArg::I32(v) => Argument::I32(v),
            KernelArg::F32(v) => Argument::F32(v),
            KernelArg::F64(v) => Argument::F64(v),
            KernelArg::Word(v) => Argument::Word(v),
        };
        let arguments: Vec<Argument> = launch.args.iter().map(argument).collect();
        // SAFETY: plans list the arguments that sources declare (tested), and operands lie in the arena.
        Ok(unsafe { Launch::new(&module.function(launch.function)?, grid, &arguments) })
    }

    /// Seconds of one launch of a sequence, the least of some repetitions of a graph of all.
    fn seconds(&self, launches: &[Launch]) -> Outcome<f64> {
        let (stream, [start, end]) = (&self.streams.compute, &self.times);
        launches.iter().try_for_each(|launch| launch.run(stream))?;
        let graph = stream.capture(|| launches.iter().try_for_each(|launch| launch.run(stream)))?;
        let mut least = f64::INFINITY;
        for _ in 0..REPETITIONS {
            stream.record(start)?;
            graph.launch(stream)?;
            stream.record(end)?;
            end.synchronize()?;
            least = least.min(start.elapsed_ms(end)? / 1e3);
        }
        Ok(least)
    }

    /// Bytes a second read and written by a large copy.
    fn copy_rate(&self) -> Outcome<f64> {
        let (stream, [start, end], bytes) = (&self.streams.compute, &self.times, 512u64 << 20);
        let mut least = f64::INFINITY;
        for _ in 0..2 * REPETITIONS {
            stream.record(start)?;
            copy_on_device(stream, &self.arena, 0, bytes, bytes)?;
            stream.record(end)?;
            end.synchronize()?;
            least = least.min(start.elapsed_ms(end)? / 1e3);
        }
        Ok(2.0 * bytes as f64 / least)
    }
}

/// Plans of a case at one place after the other, until they fill a cycle.
fn plans(case: &Case, arena: &DeviceArena) -> Outcome<Vec<Vec<KernelLaunch>>> {
    let types: Vec<&TensorType> = case.inputs.iter().collect();
    let workspace = kernels::workspace(&case.op, &types);
    let all: u64 = case.inputs.iter().chain(&case.outputs).map(|ty| ty.bytes().next_multiple_of(256)).sum();
    let each = all + workspace.next_multiple_of(256);
    let places = CYCLE.div_ceil(each).clamp(2, 32).min(arena.bytes() / each);
    let mut plans = Vec::new();
    for place in 0..places {
        let mut at = place * each;
        let mut operand = |ty| {
            let operand = Operand::contiguous(ty, arena.address(at));
            at += TensorType::bytes(ty).next_multiple_of(256);
            operand
        };
        let inputs: Vec<Operand<'_>> = case.inputs.iter().map(&mut operand).collect();
        let outputs: Vec<Operand<'_>> = case.outputs.iter().map(&mut operand).collect();
        plans.push(kernels::prepare(&case.op, &inputs, &outputs, arena.address(at))?.launches);
    }
    Ok(plans)
}

/// Measures a case and prints it; a line of the table.
fn measure(gpu: &mut Gpu, case: &Case, rate: f64) -> Outcome<String> {
    let plans = plans(case, &gpu.arena)?;
    let mut settled = Vec::new();
    for launch in plans.iter().flatten() {
        settled.push(gpu.settle(launch)?);
    }
    let seconds = gpu.seconds(&settled)? / plans.len() as f64;
    let count = plans[0].len();
    let mut parts = Vec::new();
    for (index, launch) in plans[0].iter().enumerate() {
        let alone: Vec<Launch> = settled.iter().skip(index).step_by(count).cloned().collect();
        let seconds = gpu.seconds(&alone)? / plans.len() as f64;
        parts.push(json!({"function": launch.function, "blocks": launch.grid[0], "us": seconds * 1e6}));
    }
    let (per_second, ty) = (case.bytes as f64 / seconds, case.inputs[0].to_string());
    let share = 100.0 * per_second / rate;
    let facts = json!({
        "kernel": case.name, "x": ty, "bytes": case.bytes, "us": seconds * 1e6, "gb_per_s": per_second / 1e9,
        "percent_of_copy": share, "launches": parts,
    });
    println!("{facts}");
    Ok(format!("{:<26} {ty:<34} {:>9.1} us {:>7.0} GB/s {share:>5.0} %", case.name, seconds * 1e6, per_second / 1e9))
}

fn run() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let batch: u64 = words.iter().find_map(|word| word.parse().ok()).unwrap_or(256);
    let named = [DType::F16, DType::F32].into_iter().find(|dtype| words.iter().any(|word| word == dtype.name()));
    let dtype = named.unwrap_or(DType::BF16);
    let mut gpu = Gpu::open(dtype.size() << 31)?;
    let rate = gpu.copy_rate()?;
    println!("{}", json!({"device": gpu.context.name, "batch": batch, "copy_gb_per_s": rate / 1e9}));
    let mut table = Vec::new();
    let mut cases: Vec<Case> = MAPS.iter().flat_map(|&[c, h, w]| cases_of([batch, c, h, w], dtype)).collect();
    cases.extend(single_cases(batch, dtype));
    cases.extend(group_cases(dtype));
    for case in &cases {
        match measure(&mut gpu, case, rate) {
            Ok(line) => table.push(line),
            Err(error) => table.push(format!("{:<26} {} FAIL {error}", case.name, case.inputs[0])),
        }
    }
    println!("copy rate {:.0} GB/s", rate / 1e9);
    table.iter().for_each(|line| println!("{line}"));
    Ok(())
}

fn main() {
    if let Err(error) = run() {
        println!("FAIL {error}");
        std::process::exit(1);
    }
}
