//! Convolutions in pieces of the batch: against the CPU, and against the same plan for the whole batch.
//!
//! What is made for each sample by itself should have the same bits as in the whole batch; a weight gradient is a sum in another
//! order. The case `bits` states how many plans keep the first.

use crate::build::Build;
use crate::single::{Gpu, MOST_ALGORITHMS, floats};
use crate::{Outcome, Report, relative_error};
use serde_json::{Value, json};
use std::sync::Arc;
use vdnn_graph::op::{Concat, Conv2d, Conv2dDataGrad, Conv2dWeightGrad};
use vdnn_graph::{InPlace, Op, Program};
use vdnn_schedule::{Choice, KernelTable, PieceSum, in_pieces, piece_sum_bytes, split_pieces};
use vdnn_tensor::TensorType;

/// Builds the case for so many samples.
type Part = Box<dyn Fn(&mut Build, u64) -> Outcome>;

/// Channels, size and filters of a case: C, H, W, K, square kernel, attributes.
type Layer = (u64, [u64; 2], u64, u64, Conv2d);

/// Largest relative error against the CPU, and of a weight gradient against the whole batch's.
const LIMIT: f64 = 1e-4;

pub fn run(report: &mut Report) -> Outcome {
    let conv = |stride, padding| Conv2d { stride: [stride; 2], padding: [padding; 2], ..Conv2d::default() };
    let layers: [(&str, Layer); 4] = [
        ("3x3", (64, [28, 28], 96, 3, conv(1, 1))),
        ("odd", (3, [33, 31], 24, 3, conv(1, 1))),
        ("point", (48, [14, 14], 64, 1, conv(1, 0))),
        ("strided", (16, [29, 30], 32, 5, conv(2, 2))),
    ];
    let mut cases: Vec<(String, bool, Part)> = Vec::new();
    for (name, layer) in layers {
        cases.push((format!("forward {name}"), true, Box::new(move |b, n| forward(b, n, layer))));
        cases.push((format!("data gradient {name}"), true, Box::new(move |b, n| data_gradient(b, n, layer))));
        cases.push((format!("weight gradient {name}"), false, Box::new(move |b, n| weight_gradient(b, n, layer))));
    }
    cases.push(("slices".to_string(), true, Box::new(slices)));
    let mut gpu = Gpu::open()?;
    let (mut kept, mut compared) = (0, 0);
    for (index, (name, by_sample, part)) in cases.into_iter().enumerate() {
        let outcome = compare(&mut gpu, &name, index, &part).map(|found| {
            if by_sample {
                kept += found.same_bits;
                compared += found.compared;
            }
            (found.passed(), found.facts())
        });
        report.outcome(&name, outcome);
    }
    report.case("bits", kept == compared && compared > 0, json!({"same_bits": kept, "compared": compared}));
    Ok(())
}

fn output(b: &mut Build, n: u64, (_, size, k, kernel, conv): Layer) -> vdnn_graph::ValueId {
    let side = |axis: usize| (size[axis] + 2 * conv.padding[axis] - kernel) / conv.stride[axis] + 1;
    b.x(&[n, k, side(0), side(1)])
}

fn forward(b: &mut Build, n: u64, (c, [h, w], k, kernel, conv): Layer) -> Outcome {
    let (x, weight, bias) = (b.x(&[n, c, h, w]), b.parameter(&[k, c, kernel, kernel]), b.parameter(&[k]));
    b.read(Op::Conv2d(conv), &[x, weight, bias])
}

fn data_gradient(b: &mut Build, n: u64, layer: Layer) -> Outcome {
    let (c, input, k, kernel, conv) = layer;
    let (dy, weight) = (output(b, n, layer), b.parameter(&[k, c, kernel, kernel]));
    b.read(Op::Conv2dDataGrad(Conv2dDataGrad { conv, input }), &[dy, weight])
}

fn weight_gradient(b: &mut Build, n: u64, layer: Layer) -> Outcome {
    let (c, [h, w], _, kernel, conv) = layer;
    let (x, dy) = (b.x(&[n, c, h, w]), output(b, n, layer));
    b.read(Op::Conv2dWeightGrad(Conv2dWeightGrad { conv, kernel: [kernel; 2] }), &[x, dy])
}

/// Two convolutions into slices of one value.
fn slices(b: &mut Build, n: u64) -> Outcome {
    let conv = Conv2d { padding: [1; 2], ..Conv2d::default() };
    let (x, wa, wb) = (b.x(&[n, 8, 13, 13]), b.parameter(&[5, 8, 3, 3]), b.parameter(&[6, 8, 3, 3]));
    let a = b.push(Op::Conv2d(conv), &[x, wa])?[0];
    let c = b.push(Op::Conv2d(conv), &[x, wb])?[0];
    let whole = b.push(Op::Concat(Concat::default()), &[a, c])?[0];
    b.read(Op::Relu, &[whole])
}

#[derive(Default)]
struct Found {
    plans: usize,
    error: f64,
    error_of_whole: f64,
    same_twice: bool,
    compared: usize,
    same_bits: usize,
}

impl Found {
    fn passed(&self) -> bool {
        self.plans > 0 && self.error <= LIMIT && self.error_of_whole <= LIMIT && self.same_twice
    }

    fn facts(&self) -> Value {
        json!({
            "plans": self.plans, "relative_error": self.error, "error_of_whole": self.error_of_whole, "limit": LIMIT,
            "same_bits_twice": self.same_twice, "compared": self.compared, "same_bits": self.same_bits,
        })
    }
}

/// Plans of one piece, in 2 and 4 pieces of 16 samples.
fn compare(gpu: &mut Gpu, name: &str, index: usize, part: &Part) -> Outcome<Found> {
    const SAMPLES: u64 = 16;
    let program = |n: u64| -> Outcome<Arc<Program>> {
        // Persistents of all cases and sizes live on one device.
        let mut build = Build::new(name, 1000 + index);
        part(&mut build, n)?;
        Ok(Arc::new(Program::linearize(build.graph, InPlace::Allowed)?))
    };
    let whole = program(SAMPLES)?;
    let want = crate::single::on_cpu(&whole)?;
    let table = gpu.kernels(&whole)?;
    let mut found = Found { same_twice: true, ..Found::default() };
    for pieces in [2, 4] {
        let of_one = gpu.kernels(program(SAMPLES / pieces)?.as_ref())?;
        for number in 0..MOST_ALGORITHMS {
            let Some(in_pieces) = table_in_pieces(&whole, &table, &of_one, pieces, number) else { break };
            let got = gpu.run_with(&whole, &in_pieces)?;
            found.plans += 1;
            found.same_twice &= got == gpu.run_with(&whole, &in_pieces)?;
            found.error = found.error.max(worst(&got, &want));
            if let Some(same) = same_plans(&table, &in_pieces) {
                let of_whole = gpu.run_with(&whole, &same)?;
                found.error_of_whole = found.error_of_whole.max(worst(&got, &of_whole));
                found.compared += 1;
                found.same_bits += usize::from(got == of_whole);
            }
        }
    }
    Ok(found)
}

fn worst(got: &[Vec<u8>], want: &[Vec<u8>]) -> f64 {
    got.iter().zip(want).map(|(got, want)| relative_error(&floats(got), &floats(want))).fold(0.0, f64::max)
}

/// Every convolution by its plan of this number for one piece; `None` when none has so many.
fn table_in_pieces(
    program: &Program,
    whole: &KernelTable,
    of_one: &KernelTable,
    pieces: u64,
    number: usize,
) -> Option<KernelTable> {
    let graph = &program.graph;
    let (mut table, mut any) = (whole.clone(), false);
    for (id, node) in graph.node_ids().zip(graph.nodes()) {
        if !node.op.kind().starts_with("conv2d") {
            continue;
        }
        let choices = of_one.of(id);
        any |= number < choices.len();
        let outputs: Vec<TensorType> = node.outputs.iter().map(|&value| graph.value(value).ty.clone()).collect();
        let sum = PieceSum { workspace: piece_sum_bytes(&node.op, &outputs), seconds: 0.0 };
        let choice = choices.get(number).or_else(|| choices.last())?;
        table.choices[id.index()] = vec![in_pieces(choice, pieces, sum)];
    }
    any.then_some(table)
}

/// The same plans for the whole batch, where each is among its choices.
fn same_plans(whole: &KernelTable, in_pieces: &KernelTable) -> Option<KernelTable> {
    let same = |(choices, pieces): (&Vec<Choice>, &Vec<Choice>)| {
        let (name, _) = split_pieces(&pieces[0].algorithm);
        choices.iter().find(|choice| choice.algorithm == name).map(|choice| vec![choice.clone()])
    };
    let choices = whole.choices.iter().zip(&in_pieces.choices).map(same).collect::<Option<Vec<_>>>()?;
    Some(KernelTable::new(choices))
}
