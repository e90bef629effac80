//! GFLOP/s of every convolution algorithm on the layers of VGG-11 at 32×32, batch 64, f32, and the time of a step's
//! convolutions with the fastest algorithm of each. FLOP are those of the direct algorithm.
//!
//! `cargo run --release -p vdnn-runtime --example cpu_conv_bench [batch [all]]`; threads: `RAYON_NUM_THREADS`. The plain
//! loops take most of a minute and run only with `all`.

use std::collections::BTreeMap;
use std::time::Instant;
use vdnn_graph::Op;
use vdnn_graph::op::{Conv2d, Conv2dDataGrad, Conv2dWeightGrad};
use vdnn_runtime::cpu::{Input, Launch, Output, choices_of, launch};
use vdnn_runtime::{View, ViewMut};
use vdnn_tensor::{DType, Philox, TensorType};

/// Channels in, channels out, size of the map.
const LAYERS: [[u64; 3]; 8] = [
    [3, 64, 32],
    [64, 128, 16],
    [128, 256, 8],
    [256, 256, 8],
    [256, 512, 4],
    [512, 512, 4],
    [512, 512, 2],
    [512, 512, 2],
];

fn random(ty: &TensorType, stream: u64) -> Vec<f32> {
    let mut philox = Philox::new(1, stream);
    (0..ty.shape.elements()).map(|_| philox.uniform() - 0.5).collect()
}

/// Seconds of the best of some runs.
fn measure(op: &Op, types: [&TensorType; 2], output: &TensorType, algorithm: &str, workspace: u64) -> f64 {
    let input_types = types.map(Clone::clone);
    let (a, b) = (random(types[0], 1), random(types[1], 2));
    let mut y = vec![0f32; output.shape.elements() as usize];
    let mut scratch = vec![0u64; (workspace as usize).div_ceil(8)];
    let runs = if algorithm == "direct" { 1 } else { 7 };
    let mut best = f64::MAX;
    for _ in 0..runs {
        let start = Instant::now();
        launch(Launch {
            node: "bench",
            op,
            input_types: &input_types,
            output_types: std::slice::from_ref(output),
            algorithm,
            inputs: vec![Input::F32(View::from_slice(&a)), Input::F32(View::from_slice(&b))],
            outputs: vec![Output::F32(ViewMut::from_slice(&mut y))],
            workspace: Some(bytemuck::cast_slice_mut(&mut scratch)),
        })
        .expect("the kernel runs");
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

fn main() {
    let batch: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(64);
    let all = std::env::args().nth(2).is_some_and(|text| text == "all");
    let conv = Conv2d { padding: [1, 1], ..Conv2d::default() };
    let mut total = 0.0;
    let mut by_algorithm: BTreeMap<String, f64> = BTreeMap::new();
    println!("{} threads, batch {batch}; GFLOP/s (milliseconds, workspace MiB)", rayon::current_num_threads());
    for (index, [c, k, size]) in LAYERS.into_iter().enumerate() {
        let x = TensorType::new([batch, c, size, size], DType::F32);
        let w = TensorType::new([k, c, 3, 3], DType::F32);
        let y = TensorType::new([batch, k, size, size], DType::F32);
        let flop = 2.0 * (y.shape.elements() * c * 9) as f64;
        let forward = (Op::Conv2d(conv), [&x, &w], &y);
        let data = (Op::Conv2dDataGrad(Conv2dDataGrad { conv, input: [size; 2] }), [&y, &w], &x);
        let weight = (Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [3, 3] }), [&x, &y], &w);
        for (op, inputs, output) in [forward, weight, data] {
            if index == 0 && matches!(op, Op::Conv2dDataGrad(_)) {
                continue; // nothing needs the gradient of the images
            }
            let types = inputs.map(Clone::clone);
            let choices = choices_of(&op, &types, std::slice::from_ref(output)).expect("the op is supported");
            print!("conv{:<2}{:<20}", index + 1, op.kind());
            let mut fastest = f64::MAX;
            for choice in choices.iter().filter(|choice| all || choice.algorithm != "direct") {
                let seconds = measure(&op, inputs, output, &choice.algorithm, choice.workspace);
                fastest = fastest.min(seconds);
                *by_algorithm.entry(choice.algorithm.clone()).or_default() += seconds;
                let mib = choice.workspace as f64 / f64::from(1 << 20);
                print!(" {} {:.0} ({:.2}, {mib:.1})", choice.algorithm, flop / seconds / 1e9, seconds * 1e3);
            }
            println!();
            total += fastest;
        }
    }
    println!("a step's convolutions: fastest of each {:.1} ms; {by_algorithm:.3?} s", total * 1e3);
}
