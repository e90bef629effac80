//! Poolings with channels innermost: those of f32 in NCHW order on the same rounded numbers, which are checked against plain loops.

use super::tensor::{Map, TYPES, assert_near, nhwc, round};
use crate::tensor::{Bytes, PLACES, Place, Tensor, assert_bits, assert_close, normal, run};
use vdnn_cuda::kernels::Operand;
use vdnn_graph::op::{
    AdaptiveAvgPool2d, AdaptiveAvgPool2dGrad, AvgPool2d, AvgPool2dGrad, MaxPool2d, MaxPool2dIndicesGrad, Op, Window,
};
use vdnn_tensor::{DType, TensorType};

fn windows() -> Vec<Window> {
    let w = |kernel, stride, padding, dilation, ceil_mode| Window { kernel, stride, padding, dilation, ceil_mode };
    vec![
        w([2, 2], [2, 2], [0, 0], [1, 1], false),
        w([3, 3], [2, 2], [1, 1], [1, 1], false),
        w([3, 3], [2, 2], [1, 0], [1, 1], true),
        w([2, 2], [2, 2], [1, 1], [1, 1], false),
        w([3, 3], [1, 1], [1, 1], [1, 1], false),
        w([2, 3], [1, 2], [1, 0], [2, 1], false),
        w([3, 2], [2, 3], [1, 1], [1, 2], true),
    ]
}

/// Few distinct values, so that ties are common.
fn tied(count: u64) -> Vec<f32> {
    normal(count, 1).iter().map(|v| (v * 2.0).round().max(0.0) - 5.0).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

/// f32 in NCHW order and a type in NHWC order, with the same numbers.
struct Pair(Tensor, Map);

impl Pair {
    fn new(dims: &[u64], dtype: DType, place: Place, values: &[f32]) -> Self {
        let values: Vec<f32> = values.iter().map(|&v| round(dtype, v)).collect();
        Pair(Tensor::new(dims, Place::Dense, &values), Map::new(nhwc(dims, dtype, 0), place, &values))
    }

    fn empty(dims: &[u64], dtype: DType, place: Place) -> Self {
        Pair::new(dims, dtype, place, &vec![7.0; dims.iter().product::<u64>() as usize])
    }
}

/// Runs an op on both sides of its operands; false without a compiler.
fn both(op: &Op, inputs: &[&Pair], outputs: &[&Pair]) -> bool {
    let f32s = |pairs: &[&Pair]| -> Vec<_> { pairs.iter().map(|p| p.0.ty.clone()).collect() };
    assert!(f32s(inputs).iter().all(|ty| ty.dtype == DType::F32));
    let plain: Vec<_> = inputs.iter().map(|p| p.0.operand()).collect();
    let half: Vec<_> = inputs.iter().map(|p| p.1.operand()).collect();
    run(op, &plain, &outputs.iter().map(|p| p.0.operand()).collect::<Vec<_>>())
        && run(op, &half, &outputs.iter().map(|p| p.1.operand()).collect::<Vec<_>>())
}

#[test]
fn max_pooling_and_its_gradients() {
    for (window, place) in windows().iter().flat_map(|w| PLACES.map(|p| (*w, p))) {
        for (channels, dtype) in [8, 3, 40].iter().flat_map(|c| TYPES.map(|t| (*c, t))) {
            let (dims, [oh, ow]) = ([2, channels, 9, 8], window.output([9, 8]).unwrap());
            let small = [2, channels, oh, ow];
            let x = Pair::new(&dims, dtype, place, &tied(dims.iter().product()));
            let dy = Pair::new(&small, dtype, place, &normal(small.iter().product(), 2));
            let (y, dx) = (Pair::empty(&small, dtype, place), Pair::empty(&dims, dtype, place));
            if !both(&Op::MaxPool2d(MaxPool2d { window }), &[&x], &[&y]) {
                return;
            }
            assert_eq!(y.0.values(), y.1.values(), "{window:?} {place:?}");
            both(&Op::MaxPool2dGrad(MaxPool2d { window }), &[&x, &y, &dy], &[&dx]);
            assert_near("max_pool2d_grad", dtype, &dx.1.values(), &wide(&dx.0.values()), 0.51);
            indices(window, [dims, small], [&x, &y, &dy, &dx], dtype, place);
        }
    }
}

/// Indices are those of f32, in the map's order, and give the bits of the plain gradient.
fn indices(window: Window, [dims, small]: [[u64; 4]; 2], maps: [&Pair; 4], dtype: DType, place: Place) {
    let [x, y, dy, dx] = maps;
    let op = Op::MaxPool2dIndices(MaxPool2d { window });
    let (plain, inner) = (TensorType::new(small, DType::U8), nhwc(&small, DType::U8, 0));
    let (plain, inner) = (Bytes::new(plain), Bytes::new(inner));
    let again = Pair::empty(&small, dtype, place);
    run(&op, &[x.0.operand()], &[again.0.operand(), plain.operand()]);
    run(&op, &[x.1.operand()], &[again.1.operand(), inner.operand()]);
    assert_eq!(again.1.bits(), y.1.bits());
    let [n, c, h, w] = small.map(|d| d as usize);
    let (plain, places) = (plain.values(), inner.values());
    assert_eq!(plain.len(), n * c * h * w);
    for (e, &place) in plain.iter().enumerate() {
        let (sample, channel, pixel) = (e / (c * h * w), e / (h * w) % c, e % (h * w));
        assert_eq!(place, places[(sample * h * w + pixel) * c + channel], "place {e}");
    }
    let grad = Op::MaxPool2dIndicesGrad(MaxPool2dIndicesGrad { pool: MaxPool2d { window }, input: [dims[2], dims[3]] });
    let indexed = Pair::empty(&dims, dtype, place);
    run(&grad, &[inner.operand(), dy.1.operand()], &[indexed.1.operand()]);
    assert_eq!(indexed.1.bits(), dx.1.bits());
}

/// NaN, infinities and windows where all is −∞ go as they go in f32, whose kernel takes one element at a time.
#[test]
fn max_pooling_of_what_is_no_number() {
    for (window, dtype) in windows().iter().flat_map(|w| TYPES.map(|t| (*w, t))) {
        let (dims, [oh, ow]) = ([2, 16, 9, 8], window.output([9, 8]).unwrap());
        let mut values = tied(dims.iter().product());
        for (e, value) in values.iter_mut().enumerate() {
            *value = match (e / 72, e % 11) {
                (0 | 17, _) => f32::NEG_INFINITY,
                (3.., 0) => f32::NAN,
                (5.., 3) => f32::INFINITY,
                _ => *value,
            };
        }
        let x = Pair::new(&dims, dtype, Place::Dense, &values);
        let small = [2, 16, oh, ow];
        let y = Pair::empty(&small, dtype, Place::Dense);
        let (plain, inner) = (Bytes::new(TensorType::new(small, DType::U8)), Bytes::new(nhwc(&small, DType::U8, 0)));
        let op = Op::MaxPool2dIndices(MaxPool2d { window });
        if !run(&op, &[x.0.operand()], &[y.0.operand(), plain.operand()]) {
            return;
        }
        run(&op, &[x.1.operand()], &[y.1.operand(), inner.operand()]);
        let same = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
        assert!(y.0.values().iter().zip(&y.1.values()).all(same), "{window:?} {dtype}");
        assert!(y.0.values().iter().any(|v| v.is_nan()) && y.0.values().contains(&f32::NEG_INFINITY));
        let [_, c, h, w] = small.map(|d| d as usize);
        let places = inner.values();
        for (e, &place) in plain.values().iter().enumerate() {
            let (sample, channel, pixel) = (e / (c * h * w), e / (h * w) % c, e % (h * w));
            assert_eq!(place, places[(sample * h * w + pixel) * c + channel], "{window:?} {dtype} place {e}");
        }
    }
}

#[test]
fn adaptive_average_pooling() {
    for (input, output) in [([7u64, 7u64], [1u64, 1u64]), ([13, 11], [6, 4]), ([4, 4], [7, 7]), ([30, 17], [2, 1])] {
        for (channels, place, dtype) in
            [8, 3, 72].iter().flat_map(|c| PLACES.map(|p| (*c, p))).flat_map(|(c, p)| TYPES.map(|t| (c, p, t)))
        {
            let (dims, small) = ([2, channels, input[0], input[1]], [2, channels, output[0], output[1]]);
            let x = Pair::new(&dims, dtype, place, &normal(dims.iter().product(), 3));
            let dy = Pair::new(&small, dtype, place, &normal(small.iter().product(), 4));
            let (y, dx) = (Pair::empty(&small, dtype, place), Pair::empty(&dims, dtype, place));
            if !both(&Op::AdaptiveAvgPool2d(AdaptiveAvgPool2d { output }), &[&x], &[&y]) {
                return;
            }
            assert_near("adaptive_avg_pool2d", dtype, &y.1.values(), &wide(&y.0.values()), 0.51);
            both(&Op::AdaptiveAvgPool2dGrad(AdaptiveAvgPool2dGrad { input }), &[&dy], &[&dx]);
            assert_near("adaptive_avg_pool2d_grad", dtype, &dx.1.values(), &wide(&dx.0.values()), 0.51);
        }
    }
}

#[test]
fn average_pooling() {
    let plain = windows().into_iter().filter(|window| window.dilation == [1, 1]);
    for (window, place) in plain.flat_map(|w| PLACES.map(|p| (w, p))) {
        for (channels, dtype) in [8, 3].iter().flat_map(|c| TYPES.map(|t| (*c, t))) {
            for count_include_pad in [true, false] {
                let pool = AvgPool2d { window, count_include_pad };
                let (dims, [oh, ow]) = ([2, channels, 9, 8], window.output([9, 8]).unwrap());
                let small = [2, channels, oh, ow];
                let x = Pair::new(&dims, dtype, place, &normal(dims.iter().product(), 5));
                let dy = Pair::new(&small, dtype, place, &normal(small.iter().product(), 6));
                let (y, dx) = (Pair::empty(&small, dtype, place), Pair::empty(&dims, dtype, place));
                if !both(&Op::AvgPool2d(pool), &[&x], &[&y]) {
                    return;
                }
                assert_near("avg_pool2d", dtype, &y.1.values(), &wide(&y.0.values()), 0.51);
                both(&Op::AvgPool2dGrad(AvgPool2dGrad { pool, input: [9, 8] }), &[&dy], &[&dx]);
                assert_near("avg_pool2d_grad", dtype, &dx.1.values(), &wide(&dx.0.values()), 0.51);
            }
        }
    }
}

/// ReLU's gradient through a pool, against the pool's gradient and then the ReLU's, in both orders and all types.
#[test]
fn gradients_through_a_pool_and_its_relu() {
    let square = Window::square(2);
    let overlapping = Window { kernel: [3, 3], padding: [1, 1], ..square };
    for (window, place) in [square, overlapping].iter().flat_map(|w| PLACES.map(|p| (*w, p))) {
        // The last is cut into several stretches of rows.
        let several = (place == Place::Dense && window == square).then_some([2, 16, 130, 66]);
        for dims in [[2, 8, 6, 8], [2, 3, 8, 4], [1, 48, 6, 6], [3, 16, 9, 8]].into_iter().chain(several) {
            let [n, channels, h, w] = dims;
            let small = [n, channels, window.output([h, w]).unwrap()[0], window.output([h, w]).unwrap()[1]];
            let pool = MaxPool2d { window };
            let op = MaxPool2dIndicesGrad { pool, input: [h, w] };
            for dtype in TYPES {
                let relu: Vec<f32> = normal(dims.iter().product(), 3).iter().map(|v| v.max(0.0)).collect();
                let x = Pair::new(&dims, dtype, place, &relu);
                let dy = Pair::new(&small, dtype, place, &normal(small.iter().product(), 2));
                let [y, dx, dz, fused] = [&small, &dims, &dims, &dims].map(|dims| Pair::empty(dims, dtype, place));
                let sums = || Tensor::filled(&[channels], Place::Dense, 9.0);
                let ways: [(TensorType, [Operand<'_>; 6]); 2] = [
                    (y.0.ty.clone(), [&x, &y, &dy, &dx, &dz, &fused].map(|pair| pair.0.operand())),
                    (y.1.ty.clone(), [&x, &y, &dy, &dx, &dz, &fused].map(|pair| pair.1.operand())),
                ];
                for (ty, [x, y, dy, dx, dz, fused]) in ways {
                    let indices = Bytes::at(TensorType { dtype: DType::U8, ..ty }, place);
                    let (expected, found) = (sums(), sums());
                    if !run(&Op::MaxPool2dIndices(pool), &[x], &[y, indices.operand()]) {
                        return;
                    }
                    run(&Op::MaxPool2dIndicesGrad(op), &[indices.operand(), dy], &[dx]);
                    run(&Op::ReluBiasGrad, &[x, dx], &[dz, expected.operand()]);
                    let op = Op::MaxPool2dReluBiasGrad(op);
                    run(&op, &[indices.operand(), y, dy], &[fused, found.operand()]);
                    let limit = if window == square { 1e-5 } else { 2e-2 };
                    assert_close(
                        &format!("dbias {dims:?} {place:?}"),
                        &found.values(),
                        &wide(&expected.values()),
                        limit,
                    );
                }
                if window == square {
                    assert_bits("dz in f32", &fused.0.values(), &dz.0.values());
                    assert_bits(&format!("dz {dims:?} {place:?}"), &fused.1.values(), &dz.1.values());
                } else {
                    assert_close("dz in f32", &fused.0.values(), &wide(&dz.0.values()), 1e-6);
                    assert_near("dz", dtype, &fused.1.values(), &wide(&dz.1.values()), 0.51);
                }
            }
        }
    }
}
