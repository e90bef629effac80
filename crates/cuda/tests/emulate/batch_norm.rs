//! Batch normalisation.

use crate::tensor::{Bytes, PLACES, Place, Tensor, assert_bits, assert_close, normal, run};
use vdnn_graph::op::{BatchNorm, BatchNormPair, BatchNormUpdate, Op, mask_type};

const SHAPES: [[u64; 4]; 5] = [[2, 3, 5, 7], [3, 8, 4, 4], [4, 5, 1, 1], [5, 2, 48, 48], [3, 2, 63, 65]];
const EPS: f64 = 1e-5;

struct Reference {
    mean: Vec<f64>,
    variance: Vec<f64>,
}

/// Indices of a channel's elements.
fn channel(dims: &[u64; 4], c: usize) -> impl Iterator<Item = usize> + use<> {
    let [n, channels, h, w] = dims.map(|d| d as usize);
    (0..n).flat_map(move |n| (0..h * w).map(move |i| (n * channels + c) * h * w + i))
}

fn statistics(dims: &[u64; 4], x: &[f32]) -> Reference {
    let count = (dims[0] * dims[2] * dims[3]) as f64;
    let mean = |c| channel(dims, c).map(|i| f64::from(x[i])).sum::<f64>() / count;
    let mean: Vec<f64> = (0..dims[1] as usize).map(mean).collect();
    let variance = |c: usize| channel(dims, c).map(|i| (f64::from(x[i]) - mean[c]).powi(2)).sum::<f64>() / count;
    let variance = (0..dims[1] as usize).map(variance).collect();
    Reference { mean, variance }
}

/// Maps whose channels lie far from zero, where a naive variance loses its digits.
fn input(dims: &[u64; 4]) -> Vec<f32> {
    normal(dims.iter().product(), 7).iter().map(|v| 100.0 + v).collect()
}

#[test]
fn statistics_normalisation_and_gradient() {
    for (dims, place) in SHAPES.iter().flat_map(|d| PLACES.map(|p| (d, p))) {
        let (values, c) = (input(dims), &dims[1..2]);
        let x = Tensor::new(dims, place, &values);
        let (mean, variance) = (Tensor::filled(c, Place::Dense, 0.0), Tensor::filled(c, Place::Dense, 0.0));
        if !run(&Op::BatchNormStats, &[x.operand()], &[mean.operand(), variance.operand()]) {
            return;
        }
        let expected = statistics(dims, &values);
        assert_close("mean", &mean.values(), &expected.mean, 1e-6);
        assert_close("variance", &variance.values(), &expected.variance, 1e-6);
        normalisation(dims, place, &values, &x, [&mean, &variance], &expected);
        gradient(dims, place, &values, &x, [&mean, &variance], &expected);
    }
}

fn normalisation(dims: &[u64; 4], place: Place, values: &[f32], x: &Tensor, s: [&Tensor; 2], r: &Reference) {
    let (gamma, beta) = (normal(dims[1], 8), normal(dims[1], 9));
    let (g, b) = (Tensor::new(&dims[1..2], Place::Dense, &gamma), Tensor::new(&dims[1..2], Place::Dense, &beta));
    let y = Tensor::filled(dims, place, 0.0);
    let inputs = [x, s[0], s[1], &g, &b].map(Tensor::operand);
    run(&Op::BatchNorm(BatchNorm { eps: EPS }), &inputs, &[y.operand()]);
    let mut expected = vec![0.0; values.len()];
    for c in 0..dims[1] as usize {
        let inverse = 1.0 / (r.variance[c] + EPS).sqrt();
        for i in channel(dims, c) {
            expected[i] = f64::from(gamma[c]) * (f64::from(values[i]) - r.mean[c]) * inverse + f64::from(beta[c]);
        }
    }
    // A mean near 100 is rounded to 4e-6 before it is subtracted.
    assert_close("batch_norm", &y.values(), &expected, 3e-5);
}

fn gradient(dims: &[u64; 4], place: Place, values: &[f32], x: &Tensor, s: [&Tensor; 2], r: &Reference) {
    let (gamma, dys) = (normal(dims[1], 8), normal(values.len() as u64, 10));
    let (g, dy) = (Tensor::new(&dims[1..2], Place::Dense, &gamma), Tensor::new(dims, place, &dys));
    let (dgamma, dbeta) =
        (Tensor::filled(&dims[1..2], Place::Dense, 0.0), Tensor::filled(&dims[1..2], Place::Dense, 0.0));
    let inputs = [x, &dy, s[0], s[1], &g].map(Tensor::operand);
    // dX over dY, as the aliases may put it.
    run(&Op::BatchNormGrad(BatchNorm { eps: EPS }), &inputs, &[&dy, &dgamma, &dbeta].map(Tensor::operand));
    let count = (dims[0] * dims[2] * dims[3]) as f64;
    let (mut dx, mut sums) = (vec![0.0; values.len()], [vec![], vec![]]);
    for (c, &scale) in gamma.iter().enumerate() {
        let inverse = 1.0 / (r.variance[c] + EPS).sqrt();
        let normalised = |i: usize| (f64::from(values[i]) - r.mean[c]) * inverse;
        let sum: f64 = channel(dims, c).map(|i| f64::from(dys[i])).sum();
        let dot: f64 = channel(dims, c).map(|i| f64::from(dys[i]) * normalised(i)).sum();
        for i in channel(dims, c) {
            let centred = f64::from(dys[i]) - sum / count - normalised(i) * dot / count;
            dx[i] = f64::from(scale) * inverse * centred;
        }
        sums[0].push(dot);
        sums[1].push(sum);
    }
    assert_close("dgamma", &dgamma.values(), &sums[0], 3e-4);
    assert_close("dbeta", &dbeta.values(), &sums[1], 1e-6);
    assert_close("dx", &dy.values(), &dx, 3e-5);
}

/// Case B11: the output uses the biased variance, the running statistics the unbiased one.
#[test]
fn running_statistics_use_the_unbiased_variance() {
    let x = Tensor::new(&[4, 1, 1, 1], Place::Dense, &[1.0, 2.0, 3.0, 4.0]);
    let one = |v| Tensor::filled(&[1], Place::Dense, v);
    let (mean, variance, running_mean, running_variance) = (one(0.0), one(0.0), one(0.0), one(1.0));
    if !run(&Op::BatchNormStats, &[x.operand()], &[mean.operand(), variance.operand()]) {
        return;
    }
    let update = |count| {
        let inputs = [&mean, &variance, &running_mean, &running_variance].map(Tensor::operand);
        let outputs = [&running_mean, &running_variance].map(Tensor::operand);
        run(&Op::BatchNormUpdate(BatchNormUpdate { momentum: 0.1, count }), &inputs, &outputs);
    };
    update(4);
    assert_close("running mean", &running_mean.values(), &[0.25], 1e-6);
    assert_close("running variance", &running_variance.values(), &[1.066_666_7], 1e-6);
    update(0);
    assert_close("running mean", &running_mean.values(), &[0.25], 1e-6);
    assert_close("running variance", &running_variance.values(), &[1.066_666_7], 1e-6);
    let (g, b, y) = (one(1.0), one(0.0), Tensor::filled(&[4, 1, 1, 1], Place::Dense, 0.0));
    run(&Op::BatchNorm(BatchNorm { eps: 1e-5 }), &[&x, &mean, &variance, &g, &b].map(Tensor::operand), &[y.operand()]);
    assert_close("y", &y.values(), &[-1.341_635_4, -0.447_211_8, 0.447_211_8, 1.341_635_4], 1e-6);
}

/// Batch norm with ReLU, and with a residual, has the bits of the ops one after the other, in place as well.
#[test]
fn fused_ops_have_the_bits_of_single_ones() {
    for (dims, place) in SHAPES[..3].iter().flat_map(|d| PLACES.map(|p| (d, p))) {
        let (count, c, norm) = (dims.iter().product(), &dims[1..2], BatchNorm { eps: EPS });
        let map = |stream| Tensor::new(dims, place, &normal(count, stream));
        let vector = |stream| Tensor::new(c, Place::Dense, &normal(c[0], stream));
        let (x, [mean, variance, gamma, beta]) = (map(1), [vector(2), vector(3), vector(4), vector(5)]);
        run(&Op::BatchNormStats, &[x.operand()], &[mean.operand(), variance.operand()]);
        let coefficients = [&mean, &variance, &gamma, &beta].map(Tensor::operand);
        let forward = [&[x.operand()][..], &coefficients].concat();
        let (plain, y, fused) = (map(9), map(9), map(9));
        if !run(&Op::BatchNorm(norm), &forward, &[plain.operand()]) {
            return;
        }
        run(&Op::Relu, &[plain.operand()], &[y.operand()]);
        run(&Op::BatchNormRelu(norm), &forward, &[fused.operand()]);
        assert_bits("batch_norm_relu", &fused.values(), &y.values());

        let gradients = || [map(6), Tensor::filled(c, Place::Dense, 0.0), Tensor::filled(c, Place::Dense, 0.0)];
        let same = |what: &str, found: &[Tensor; 3], expected: &[Tensor; 3]| {
            found.iter().zip(expected).for_each(|(f, e)| assert_bits(what, &f.values(), &e.values()));
        };
        let (single, both) = (gradients(), gradients());
        run(&Op::ReluGrad, &[y.operand(), single[0].operand()], &[single[0].operand()]);
        let grad =
            |op: Op, inputs: &[_], outputs: &[Tensor; 3]| run(&op, inputs, &outputs.each_ref().map(Tensor::operand));
        let inputs = [&[x.operand(), single[0].operand()][..], &coefficients[..3]].concat();
        grad(Op::BatchNormGrad(norm), &inputs, &single);
        let inputs = [&[x.operand(), both[0].operand()][..], &coefficients].concat();
        grad(Op::BatchNormReluGrad(norm), &inputs, &both);
        same("batch_norm_relu_grad", &both, &single);

        let (mask, again) = (Bytes::new(mask_type(&x.ty)), Bytes::new(mask_type(&x.ty)));
        let (r, over) = (map(8), map(8));
        run(&Op::Add, &[plain.operand(), r.operand()], &[y.operand()]);
        run(&Op::ReluMask, &[y.operand()], &[y.operand(), mask.operand()]);
        let inputs = [&forward[..], &[over.operand()]].concat();
        run(&Op::BatchNormAddRelu(norm), &inputs, &[over.operand(), again.operand()]);
        assert_bits("batch_norm_add_relu", &over.values(), &y.values());
        assert_eq!(mask.values(), again.values());

        let (single, both, dr, dy) = (gradients(), gradients(), map(7), map(6));
        run(&Op::ReluMaskGrad, &[mask.operand(), dy.operand()], &[dr.operand()]);
        let inputs = [&[x.operand(), dr.operand()][..], &coefficients[..3]].concat();
        grad(Op::BatchNormGrad(norm), &inputs, &single);
        let inputs = [&[x.operand(), dy.operand(), mask.operand()][..], &coefficients[..3]].concat();
        let outputs = [&both.each_ref().map(Tensor::operand)[..], &[dy.operand()]].concat();
        run(&Op::BatchNormAddReluGrad(norm), &inputs, &outputs);
        same("batch_norm_add_relu_grad", &both, &single);
        assert_bits("dR over dY", &dy.values(), &dr.values());
    }
}

/// Two norms under a ReLU have the bits of a norm and a norm with a residual, with Y over B and dA over dY.
#[test]
fn a_pair_has_the_bits_of_single_ops() {
    for (dims, place) in SHAPES[..3].iter().flat_map(|d| PLACES.map(|p| (d, p))) {
        let (count, c, norm, pair) =
            (dims.iter().product(), &dims[1..2], BatchNorm { eps: EPS }, BatchNormPair { eps: [EPS; 2] });
        let map = |stream| Tensor::new(dims, place, &normal(count, stream));
        let vector = |stream| Tensor::new(c, Place::Dense, &normal(c[0], stream));
        let (a, b, over, dy) = (map(1), map(2), map(2), map(3));
        let [mean, variance, gamma, beta] = [4, 5, 6, 7].map(vector);
        if !run(&Op::BatchNormStats, &[a.operand()], &[mean.operand(), variance.operand()]) {
            return;
        }
        let of = [&mean, &variance, &gamma, &beta].map(Tensor::operand);
        let (residual, y, mask, again) = (map(9), map(9), Bytes::new(mask_type(&a.ty)), Bytes::new(mask_type(&a.ty)));
        run(&Op::BatchNorm(norm), &[&[b.operand()][..], &of].concat(), &[residual.operand()]);
        let inputs = [&[a.operand()][..], &of, &[residual.operand()]].concat();
        run(&Op::BatchNormAddRelu(norm), &inputs, &[y.operand(), mask.operand()]);
        let inputs = [&[a.operand()][..], &of, &[over.operand()], &of].concat();
        run(&Op::BatchNormPairRelu(pair), &inputs, &[over.operand(), again.operand()]);
        assert_bits("batch_norm_pair_relu", &over.values(), &y.values());
        assert_eq!(mask.values(), again.values());

        let gradients = || [map(3), Tensor::filled(c, Place::Dense, 0.0), Tensor::filled(c, Place::Dense, 0.0)];
        let (of_a, of_b, dr, fused) = (gradients(), gradients(), map(8), [gradients(), gradients()]);
        let [made_a, made_b] = [&of_a, &of_b].map(|of| of.each_ref().map(Tensor::operand));
        let inputs = [&[a.operand(), dy.operand(), mask.operand()][..], &of[..3]].concat();
        run(&Op::BatchNormAddReluGrad(norm), &inputs, &[&made_a[..], &[dr.operand()]].concat());
        run(&Op::BatchNormGrad(norm), &[&[b.operand(), dr.operand()], &of[..3]].concat(), &made_b);
        let made = fused.each_ref().map(|of| of.each_ref().map(Tensor::operand)).concat();
        let inputs = [&[a.operand(), made[0], mask.operand()], &of[..3], &[b.operand()], &of[..3]].concat();
        run(&Op::BatchNormPairReluGrad(pair), &inputs, &made);
        for (found, expected) in fused.iter().flatten().zip(of_a.iter().chain(&of_b)) {
            assert_bits("batch_norm_pair_relu_grad", &found.values(), &expected.values());
        }
    }
}
