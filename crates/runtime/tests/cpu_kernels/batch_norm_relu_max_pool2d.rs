//! Batch norm, ReLU and max pooling in one op: the bits of the ops one after the other, and PyTorch's numbers.

use crate::fused::all_ways;
use crate::half::{bits, noise};
use vdnn_graph::Op;
use vdnn_graph::op::{BatchNorm, BatchNormReluMaxPool2d, MaxPool2d, MaxPool2dIndicesGrad, Window};
use vdnn_tensor::{DType, TensorType};

const NORM: BatchNorm = BatchNorm { eps: 1e-5 };

fn pool(kernel: u64, padding: u64) -> MaxPool2d {
    MaxPool2d { window: Window { stride: [2; 2], padding: [padding; 2], ..Window::square(kernel) } }
}

#[test]
fn a_pooled_norm_has_the_bits_of_a_norm_and_a_pool() {
    for dtype in [DType::F32, DType::F64] {
        for (pool, [oh, ow]) in [(pool(3, 1), [4, 3]), (pool(2, 0), [3, 3]), (pool(2, 1), [4, 4])] {
            let x = TensorType::new([2, 3, 7, 6], dtype);
            let (y, c) = (x.with_shape([2, 3, oh, ow]), TensorType::new([3], dtype));
            let places = TensorType { dtype: DType::U8, ..y.clone() };
            let mut xs = noise(252, 1);
            (xs[5], xs[100]) = (f64::NAN, -0.0);
            let dys = noise(6 * oh * ow, 2);
            let vectors = [3, 4, 5, 6].map(|stream| noise(3, stream).iter().map(|v| v.abs() + 0.1).collect());
            let of: Vec<_> = vectors.iter().map(|v| (&c, v)).collect();
            let stem = BatchNormReluMaxPool2d { norm: NORM, pool };
            let forward = [&[(&x, &xs)], &of[..]].concat();
            let between = all_ways(&Op::BatchNormRelu(NORM), &forward).remove(0);
            let apart = all_ways(&Op::MaxPool2dIndices(pool), &[(&x, &between)]);
            let fused = all_ways(&Op::BatchNormReluMaxPool2d(stem), &forward);
            assert_eq!([0, 1].map(|i| bits(&fused[i])), [0, 1].map(|i| bits(&apart[i])));
            let spread = Op::MaxPool2dIndicesGrad(MaxPool2dIndicesGrad { pool, input: [7, 6] });
            let spread = all_ways(&spread, &[(&places, &apart[1]), (&y, &dys)]).remove(0);
            let apart = all_ways(&Op::BatchNormReluGrad(NORM), &[&[(&x, &xs), (&x, &spread)], &of[..]].concat());
            let reads = [&[(&x, &xs), (&places, &fused[1]), (&y, &dys)], &of[..]].concat();
            let fused = all_ways(&Op::BatchNormReluMaxPool2dGrad(stem), &reads);
            assert_eq!([0, 1, 2].map(|i| bits(&fused[i])), [0, 1, 2].map(|i| bits(&apart[i])));
        }
    }
}

/// `F.max_pool2d(F.relu(F.batch_norm(x, …, eps=1e-5)), 3, 2, 1)` and its gradients by PyTorch 2.11, in double.
#[test]
fn pytorch_in_f64() {
    let (x, c) = (TensorType::new([1, 1, 4, 3], DType::F64), TensorType::new([1], DType::F64));
    let y = x.with_shape([1, 1, 2, 2]);
    let places = TensorType { dtype: DType::U8, ..y.clone() };
    let xs = vec![-1.5, 0.25, 2.0, 0.75, -0.5, 1.25, 1.0, -2.0, 0.5, 2.5, 0.125, -1.0];
    let (dys, gamma, beta) = (vec![1.0, -2.0, 0.5, 1.5], vec![-1.25], vec![0.5]);
    let statistics = all_ways(&Op::BatchNormStats, &[(&x, &xs)]);
    let of = [(&c, &statistics[0]), (&c, &statistics[1]), (&c, &gamma), (&c, &beta)];
    let stem = BatchNormReluMaxPool2d { norm: NORM, pool: pool(3, 1) };
    let made = all_ways(&Op::BatchNormReluMaxPool2d(stem), &[&[(&x, &xs)], &of[..]].concat());
    let reads = [&[(&x, &xs), (&places, &made[1]), (&y, &dys)], &of[..]].concat();
    let gradients = all_ways(&Op::BatchNormReluMaxPool2dGrad(stem), &reads);
    let expected: [&[f64]; 4] = [
        &[2.213838241329, 1.25168343918, 2.694915642404, 2.694915642404],
        &[
            -0.477399424539,
            0.087277388087,
            -0.310200601437,
            -0.026287751777,
            2.181934702183,
            -0.139852891641,
            -0.083070321709,
            -1.325989086824,
            0.030494818155,
            -0.4237657413,
            0.115668673053,
            0.371190237747,
        ],
        &[-3.680242118223],
        &[1.0],
    ];
    for (index, (found, expected)) in made[..1].iter().chain(&gradients).zip(expected).enumerate() {
        let near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-11);
        assert!(near && found.len() == expected.len(), "{index}: expected {expected:?}, found {found:?}");
    }
}
