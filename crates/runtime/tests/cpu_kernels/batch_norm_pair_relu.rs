//! Two batch norms under a ReLU: the bits of the ops one after the other, and PyTorch's numbers.

use crate::fused::all_ways;
use crate::half::{bits, image, noise};
use vdnn_graph::Op;
use vdnn_graph::op::{self, BatchNorm, BatchNormPair};
use vdnn_tensor::{DType, TensorType};

/// A residual that is normalised on the way: the bits of the norm before and the op with a residual after it.
#[test]
fn a_pair_has_the_bits_of_a_norm_and_a_norm_with_a_residual() {
    let dims = [3, 4, 3, 3];
    let plain = [DType::F32, DType::F64].map(|dtype| (TensorType::new(dims, dtype), TensorType::new([4], dtype)));
    // Half precision rounds what is between the two ops.
    let half = [DType::BF16, DType::F16].map(|dtype| (image(dims, dtype, 0), TensorType::new([4], DType::F32)));
    for (x, c) in plain.into_iter().chain(half) {
        let mask = op::mask_type(&x);
        let mut maps = [1, 2, 3, 4].map(|stream| noise(108, stream));
        (maps[0][5], maps[1][9]) = (f64::NAN, -0.0);
        let vectors =
            [5, 6, 7, 8, 9, 10, 11, 12].map(|stream| noise(4, stream).iter().map(|v| v.abs() + 0.1).collect());
        let of_a: Vec<_> = vectors[..4].iter().map(|v| (&c, v)).collect();
        let of_b: Vec<_> = vectors[4..].iter().map(|v| (&c, v)).collect();
        let (norm, other, pair) =
            (BatchNorm { eps: 1e-5 }, BatchNorm { eps: 1e-3 }, BatchNormPair { eps: [1e-5, 1e-3] });
        let one = |op: Op, parts: &[&[(&TensorType, &Vec<f64>)]]| all_ways(&op, &parts.concat());
        let [a, b, dy, more] = maps.each_ref().map(|map| [(&x, map)]);
        let residual = one(Op::BatchNorm(other), &[&b, &of_b]).remove(0);
        let apart = one(Op::BatchNormAddRelu(norm), &[&a, &of_a, &[(&x, &residual)]]);
        let fused = one(Op::BatchNormPairRelu(pair), &[&a, &of_a, &b, &of_b]);
        assert_eq!([0, 1].map(|i| bits(&fused[i])), [0, 1].map(|i| bits(&apart[i])));
        let by = [(&mask, &fused[1])];
        for second in [&[][..], &more] {
            let first = one(Op::BatchNormAddReluGrad(norm), &[&a, &dy, &by, &of_a[..3], second]);
            let then = one(Op::BatchNormGrad(other), &[&b, &[(&x, &first[3])], &of_b[..3]]);
            let fused = one(Op::BatchNormPairReluGrad(pair), &[&a, &dy, &by, &of_a[..3], &b, &of_b[..3], second]);
            for (fused, apart) in fused.iter().zip(first[..3].iter().chain(&then)) {
                assert_eq!(bits(fused), bits(apart));
            }
        }
    }
}

/// `F.relu(F.batch_norm(a, …, eps=1e-5) + F.batch_norm(b, …, eps=1e-3))` and its gradients by PyTorch 2.11, in double.
#[test]
fn pytorch_in_f64() {
    let (x, c) = (TensorType::new([2, 2, 1, 2], DType::F64), TensorType::new([2], DType::F64));
    let mask_type = op::mask_type(&x);
    let a = vec![-1.5, 0.25, 2.0, -0.75, 0.5, 1.25, -2.5, 1.0];
    let b = vec![0.75, -1.0, 1.5, 0.5, 2.25, -0.25, -0.5, -1.75];
    let dy = vec![1.0, -2.0, 0.5, 1.5, -0.75, 0.25, 2.0, -1.0];
    let (gammas, betas) = ([vec![1.25, -0.5], vec![0.75, 1.5]], [vec![0.125, 0.25], vec![-0.25, 0.5]]);
    let statistics = [&a, &b].map(|map| all_ways(&Op::BatchNormStats, &[(&x, map)]));
    let of = |index: usize, map| {
        let [mean, variance] = [0, 1].map(|i| &statistics[index][i]);
        [(&x, map), (&c, mean), (&c, variance), (&c, &gammas[index]), (&c, &betas[index])]
    };
    let (of_a, of_b, pair) = (of(0, &a), of(1, &b), BatchNormPair { eps: [1e-5, 1e-3] });
    let y = all_ways(&Op::BatchNormPairRelu(pair), &[of_a, of_b].concat());
    let reads = [&of_a[..1], &[(&x, &dy), (&mask_type, &y[1])], &of_a[1..4], &of_b[..4]].concat();
    let gradients = all_ways(&Op::BatchNormPairReluGrad(pair), &reads);
    let expected: [&[f64]; 7] = [
        &[0.0, 0.0, 2.095736168072, 1.650808543094, 1.456973291222, 0.8467529087, 0.914731601621, 0.0],
        &[
            0.155042654951,
            0.155042654951,
            -0.10257626877,
            -0.062857682575,
            -0.775213274757,
            0.465127964854,
            0.002119960889,
            0.163313990456,
        ],
        &[0.0, -2.838705835826],
        &[-0.5, 4.0],
        &[
            0.126781327226,
            -0.151860737815,
            -0.874424044881,
            0.532207350674,
            -0.096525510694,
            0.121604921283,
            1.316044623559,
            -0.973827929351,
        ],
        &[-1.258055654989, 0.62279412267],
        &[-0.5, 4.0],
    ];
    for (index, (found, expected)) in y[..1].iter().chain(&gradients).zip(expected).enumerate() {
        let near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-11);
        assert!(near && found.len() == expected.len(), "{index}: expected {expected:?}, found {found:?}");
    }
}
