//! Fused ops against the ops they are made of: bit for bit, in place, on one thread and on three.

use crate::golden::overs;
use crate::half::{bits, noise, outputs_of, run};
use crate::in_pool;
use vdnn_graph::Op;
use vdnn_graph::op::{self, BatchNorm};
use vdnn_runtime::cpu::choices_of;
use vdnn_tensor::{DType, TensorType};

/// What an op makes, in place to the same bits as not.
pub fn all_ways(op: &Op, inputs: &[(&TensorType, &Vec<f64>)]) -> Vec<Vec<f64>> {
    let types: Vec<TensorType> = inputs.iter().map(|(ty, _)| (*ty).clone()).collect();
    let choice = choices_of(op, &types, &outputs_of(op, &types)).unwrap().remove(0);
    let values: Vec<Vec<f64>> = inputs.iter().map(|(_, values)| (*values).clone()).collect();
    let plain = run(op, &types, &values, &choice, &[]).unwrap();
    for over in overs(op, types.len()) {
        let over = in_pool(3, || run(op, &types, &values, &choice, &over).unwrap());
        assert_eq!(plain.iter().map(|v| bits(v)).collect::<Vec<_>>(), over.iter().map(|v| bits(v)).collect::<Vec<_>>());
    }
    plain
}

/// One op in place of two or three, forward and backward, in f32 and f64.
#[test]
fn fused_bits_are_those_of_the_single_ops() {
    for dtype in [DType::F32, DType::F64] {
        let (x, c) = (TensorType::new([3, 4, 3, 3], dtype), TensorType::new([4], dtype));
        let norm = BatchNorm { eps: 1e-5 };
        let one = |op: Op, inputs: &[(&TensorType, &Vec<f64>)]| all_ways(&op, inputs);
        let mut maps = [noise(108, 1), noise(108, 2), noise(108, 3)];
        maps[0][5] = f64::NAN;
        maps[1][7] = -0.0;
        let [xs, rs, dys] = &maps;
        let positive = |stream| noise(4, stream).iter().map(|x| x.abs() + 0.2).collect::<Vec<f64>>();
        let (mean, variance, gamma, beta) = (noise(4, 4), positive(5), noise(4, 6), noise(4, 7));
        let coefficients = [(&c, &mean), (&c, &variance), (&c, &gamma), (&c, &beta)];
        let with = |first: &[(_, _)], last: &[(_, _)]| [first, last].concat();
        let normalised = one(Op::BatchNorm(norm), &with(&[(&x, xs)], &coefficients)).remove(0);
        let y = one(Op::Relu, &[(&x, &normalised)]).remove(0);
        let fused = one(Op::BatchNormRelu(norm), &with(&[(&x, xs)], &coefficients));
        assert_eq!(bits(&fused[0]), bits(&y));
        let through = one(Op::ReluGrad, &[(&x, &y), (&x, dys)]).remove(0);
        let apart = one(Op::BatchNormGrad(norm), &with(&[(&x, xs), (&x, &through)], &coefficients[..3]));
        let fused = one(Op::BatchNormReluGrad(norm), &with(&[(&x, xs), (&x, dys)], &coefficients));
        for (fused, apart) in fused.iter().zip(&apart) {
            assert_eq!(bits(fused), bits(apart));
        }

        let sum = one(Op::Add, &[(&x, &normalised), (&x, rs)]).remove(0);
        let y = one(Op::ReluMask, &[(&x, &sum)]);
        let residual = [&with(&[(&x, xs)], &coefficients)[..], &[(&x, rs)]].concat();
        let fused = one(Op::BatchNormAddRelu(norm), &residual);
        assert_eq!([bits(&fused[0]), bits(&fused[1])], [bits(&y[0]), bits(&y[1])]);
        let through = one(Op::ReluGrad, &[(&x, &y[0]), (&x, dys)]).remove(0);
        let apart = one(Op::BatchNormGrad(norm), &with(&[(&x, xs), (&x, &through)], &coefficients[..3]));
        let mask = op::mask_type(&x);
        let reads = with(&[(&x, xs), (&x, dys), (&mask, &y[1])], &coefficients[..3]);
        let fused = one(Op::BatchNormAddReluGrad(norm), &reads);
        for (fused, apart) in fused.iter().zip(apart.iter().chain([&through])) {
            assert_eq!(bits(fused), bits(apart));
        }

        let sum = one(Op::Add, &[(&x, dys), (&x, rs)]).remove(0);
        let through = one(Op::ReluGrad, &[(&x, &y[0]), (&x, &sum)]).remove(0);
        let apart = one(Op::BatchNormGrad(norm), &with(&[(&x, xs), (&x, &through)], &coefficients[..3]));
        let fused = one(Op::BatchNormAddReluGrad(norm), &[&reads[..], &[(&x, rs)]].concat());
        for (fused, apart) in fused.iter().zip(apart.iter().chain([&through])) {
            assert_eq!(bits(fused), bits(apart));
        }
    }
}
