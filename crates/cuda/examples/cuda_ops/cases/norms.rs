//! B14: batch norm with an eps below what cuDNN's old norms take, down to none at all.
//!
//! X has a variance of some 4e-6, so an eps that was raised to 1e-5 without a word makes Y smaller by two fifths: far beyond
//! every limit here.

use crate::build::{Build, Maps};
use crate::single::Gpu;
use crate::{Outcome, Report};
use serde_json::Value;
use vdnn_graph::Op;
use vdnn_graph::op::BatchNorm;
use vdnn_tensor::DType;

const DIMS: [u64; 4] = [8, 16, 14, 14];

pub fn run(report: &mut Report) -> Outcome {
    let mut gpu = Gpu::open()?;
    for (index, eps) in [1e-6, 0.0].into_iter().enumerate() {
        let case = 200_000 + 10 * index;
        report.outcome(&format!("B14 batch norm, eps {eps:e}, f32"), plain(&mut gpu, case, eps));
        // The limits of `half`.
        for (dtype, limits, number) in [(DType::BF16, [8e-3, 4e-2], 1), (DType::F16, [2e-3, 5e-3], 2)] {
            let outcome = half(&mut gpu, case + number, eps, dtype, limits);
            report.outcome(&format!("B14 batch norm, eps {eps:e}, {dtype}"), outcome);
        }
    }
    Ok(())
}

fn plain(gpu: &mut Gpu, case: usize, eps: f64) -> Outcome<(bool, Value)> {
    gpu.compare(build(Maps::Plain, case, eps)?, 1e-4)
}

fn half(gpu: &mut Gpu, case: usize, eps: f64, dtype: DType, limits: [f64; 2]) -> Outcome<(bool, Value)> {
    gpu.compare_inner(build(Maps::Inner(dtype), case, eps)?, build(Maps::Rounded(dtype), case, eps)?, limits)
}

/// The norm by itself, with ReLU, and its gradients.
fn build(maps: Maps, case: usize, eps: f64) -> Outcome<Build> {
    let norm = BatchNorm { eps };
    let mut b = Build::new("norm", case);
    b.maps = maps;
    let (x, gamma, beta) = (b.small(&DIMS), b.parameter(&DIMS[1..2]), b.parameter(&DIMS[1..2]));
    let statistics = b.push(Op::BatchNormStats, &[x])?;
    let inputs = [x, statistics[0], statistics[1], gamma, beta];
    b.read(Op::BatchNorm(norm), &inputs)?;
    b.read(Op::BatchNormRelu(norm), &inputs)?;
    let dy = b.x(&DIMS);
    b.read(Op::BatchNormGrad(norm), &[x, dy, statistics[0], statistics[1], gamma])?;
    Ok(b)
}
