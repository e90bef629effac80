//! Poolings and their gradients, with height and width told apart (cases B03, B06, B09).

use crate::tensor::{Bytes, PLACES, Place, Tensor, assert_bits, assert_close, awkward, normal, run};
use vdnn_graph::op::{
    AdaptiveAvgPool2d, AdaptiveAvgPool2dGrad, AvgPool2d, AvgPool2dGrad, MaxPool2d, MaxPool2dIndicesGrad, NO_PLACE, Op,
    Window,
};
use vdnn_tensor::{DType, TensorType};

type Taps = Vec<(i64, i64)>;

fn windows() -> Vec<Window> {
    let w = |kernel, stride, padding, dilation, ceil_mode| Window { kernel, stride, padding, dilation, ceil_mode };
    vec![
        w([2, 2], [2, 2], [0, 0], [1, 1], false),
        w([3, 3], [2, 2], [1, 1], [1, 1], false),
        w([3, 3], [2, 2], [0, 0], [1, 1], true),
        w([3, 3], [2, 2], [1, 1], [1, 1], true),
        w([3, 3], [1, 1], [1, 1], [1, 1], false),
        w([2, 3], [1, 2], [1, 0], [2, 1], false),
        w([3, 2], [2, 3], [1, 1], [1, 2], true),
        w([2, 2], [2, 2], [1, 1], [1, 1], true),
        w([1, 1], [2, 2], [0, 0], [1, 1], true),
    ]
}

/// Pixels of window (oy, ox) inside the image, in scan order.
fn taps(w: &Window, [h, width]: [u64; 2], oy: u64, ox: u64) -> Taps {
    let at =
        |o: u64, tap: u64, axis: usize| (o * w.stride[axis] + tap * w.dilation[axis]) as i64 - w.padding[axis] as i64;
    let all = (0..w.kernel[0]).flat_map(|a| (0..w.kernel[1]).map(move |b| (a, b)));
    let pixels = all.map(|(a, b)| (at(oy, a, 0), at(ox, b, 1)));
    pixels.filter(|&(y, x)| y >= 0 && x >= 0 && y < h as i64 && x < width as i64).collect()
}

/// Few distinct values, so that ties are common.
fn tied(count: u64, stream: u64) -> Vec<f32> {
    normal(count, stream).iter().map(|v| (v * 2.0).round().max(0.0) - 5.0).collect()
}

#[test]
fn max_pooling_takes_the_first_maximum() {
    for (window, place) in windows().iter().flat_map(|w| PLACES.map(|p| (*w, p))) {
        let size = [9u64, 8];
        let [oh, ow] = window.output(size).unwrap();
        let (planes, x) = (6, tied(6 * 72, 1));
        let dy = normal(planes * oh * ow, 2);
        let (mut y, mut dx) = (vec![], vec![0.0; x.len()]);
        for (plane, oy, ox) in (0..planes).flat_map(|p| (0..oh).flat_map(move |a| (0..ow).map(move |b| (p, a, b)))) {
            let at = |&(r, c): &(i64, i64)| plane as usize * 72 + r as usize * 8 + c as usize;
            let all: Vec<usize> = taps(&window, size, oy, ox).iter().map(at).collect();
            let best = all.iter().copied().reduce(|a, b| if x[b] > x[a] { b } else { a }).unwrap();
            dx[best] += f64::from(dy[y.len()]);
            y.push(f64::from(x[best]));
        }
        let (dims, small) = ([2, 3, 9, 8], [2, 3, oh, ow]);
        let (xt, yt) = (Tensor::new(&dims, place, &x), Tensor::filled(&small, place, 0.0));
        let (dyt, dxt) = (Tensor::new(&small, place, &dy), Tensor::filled(&dims, place, 0.0));
        if !run(&Op::MaxPool2d(MaxPool2d { window }), &[xt.operand()], &[yt.operand()]) {
            return;
        }
        assert_close(&format!("{window:?}"), &yt.values(), &y, 0.0);
        run(&Op::MaxPool2dGrad(MaxPool2d { window }), &[&xt, &yt, &dyt].map(Tensor::operand), &[dxt.operand()]);
        assert_close(&format!("{window:?} {place:?} dx"), &dxt.values(), &dx, 1e-6);
    }
}

/// Indices give the bits that X and Y give, whatever the numbers.
#[test]
fn max_pooling_with_indices() {
    let far = Window { kernel: [2; 2], stride: [1; 2], padding: [1; 2], dilation: [3, 9], ceil_mode: false };
    for (window, place) in windows().iter().chain([&far]).flat_map(|w| PLACES.map(|p| (*w, p))) {
        let [oh, ow] = window.output([9, 8]).unwrap();
        let (dims, small, pool) = ([2, 3, 9, 8], [2, 3, oh, ow], MaxPool2d { window });
        let grad = Op::MaxPool2dIndicesGrad(MaxPool2dIndicesGrad { pool, input: [9, 8] });
        for x in [awkward(432, 1), tied(432, 2), vec![f32::NEG_INFINITY; 432], vec![f32::NAN; 432]] {
            let (xt, dyt) = (Tensor::new(&dims, place, &x), Tensor::new(&small, place, &awkward(6 * oh * ow, 3)));
            let [y, found] = [(); 2].map(|()| Tensor::filled(&small, place, 7.0));
            let [dx, plain] = [(); 2].map(|()| Tensor::filled(&dims, place, 7.0));
            if !run(&Op::MaxPool2d(pool), &[xt.operand()], &[y.operand()]) {
                return;
            }
            let indices = Bytes::new(TensorType::new(small, DType::U8));
            run(&Op::MaxPool2dIndices(pool), &[xt.operand()], &[found.operand(), indices.operand()]);
            assert_bits(&format!("{window:?} {place:?}"), &found.values(), &y.values());
            let places = (window.kernel[0] * window.kernel[1]) as u8;
            assert!(indices.values().iter().all(|&index| index < places || window == far && index == NO_PLACE));
            run(&Op::MaxPool2dGrad(pool), &[&xt, &y, &dyt].map(Tensor::operand), &[plain.operand()]);
            run(&grad, &[indices.operand(), dyt.operand()], &[dx.operand()]);
            assert_bits(&format!("{window:?} {place:?} dx"), &dx.values(), &plain.values());
        }
    }
}

/// PyTorch's divisor: the window within the padded image, or its pixels.
fn divisor(w: &Window, size: [u64; 2], oy: u64, ox: u64, count_include_pad: bool, pixels: usize) -> f64 {
    let extent = |o: u64, axis: usize| {
        let start = o * w.stride[axis];
        (start + w.kernel[axis]).min(size[axis] + 2 * w.padding[axis]) - start
    };
    if count_include_pad { (extent(oy, 0) * extent(ox, 1)) as f64 } else { pixels as f64 }
}

#[test]
fn average_pooling_divides_by_pytorchs_rule() {
    let size = [9u64, 8];
    let undilated = windows().into_iter().filter(|w| w.dilation == [1, 1]);
    for (window, count_include_pad) in undilated.flat_map(|w| [(w, true), (w, false)]) {
        let [oh, ow] = window.output(size).unwrap();
        let (x, dy) = (normal(6 * 72, 1), normal(6 * oh * ow, 2));
        let (mut y, mut dx) = (vec![], vec![0.0; x.len()]);
        for (plane, oy, ox) in (0..6).flat_map(|p| (0..oh).flat_map(move |a| (0..ow).map(move |b| (p, a, b)))) {
            let at = |&(r, c): &(i64, i64)| plane * 72 + r as usize * 8 + c as usize;
            let all: Vec<usize> = taps(&window, size, oy, ox).iter().map(at).collect();
            let d = divisor(&window, size, oy, ox, count_include_pad, all.len());
            all.iter().for_each(|&i| dx[i] += f64::from(dy[y.len()]) / d);
            y.push(all.iter().map(|&i| f64::from(x[i])).sum::<f64>() / d);
        }
        for place in PLACES {
            let (dims, small) = ([2, 3, 9, 8], [2, 3, oh, ow]);
            let (xt, yt) = (Tensor::new(&dims, place, &x), Tensor::filled(&small, place, 0.0));
            let (dyt, dxt) = (Tensor::new(&small, place, &dy), Tensor::filled(&dims, place, 0.0));
            let pool = AvgPool2d { window, count_include_pad };
            if !run(&Op::AvgPool2d(pool), &[xt.operand()], &[yt.operand()]) {
                return;
            }
            assert_close(&format!("{pool:?}"), &yt.values(), &y, 1e-6);
            run(&Op::AvgPool2dGrad(AvgPool2dGrad { pool, input: size }), &[dyt.operand()], &[dxt.operand()]);
            assert_close(&format!("{pool:?} dx"), &dxt.values(), &dx, 1e-6);
        }
    }
}

#[test]
fn adaptive_average_pooling_to_smaller_equal_and_larger_sizes() {
    for output in [[1u64, 1], [7, 7], [2, 3], [9, 8], [4, 5], [12, 10]] {
        let [oh, ow] = output;
        let (x, dy) = (normal(6 * 72, 1), normal(6 * oh * ow, 2));
        let (mut y, mut dx) = (vec![], vec![0.0; x.len()]);
        let region = |i: u64, n: u64, out: u64| (i * n / out) as usize..((i + 1) * n).div_ceil(out) as usize;
        for (plane, oy, ox) in (0..6).flat_map(|p| (0..oh).flat_map(move |a| (0..ow).map(move |b| (p, a, b)))) {
            let rows = region(oy, 9, oh);
            let all: Vec<usize> = rows.flat_map(|r| region(ox, 8, ow).map(move |c| plane * 72 + r * 8 + c)).collect();
            all.iter().for_each(|&i| dx[i] += f64::from(dy[y.len()]) / all.len() as f64);
            y.push(all.iter().map(|&i| f64::from(x[i])).sum::<f64>() / all.len() as f64);
        }
        for place in PLACES {
            let (dims, small) = ([2, 3, 9, 8], [2, 3, oh, ow]);
            let (xt, yt) = (Tensor::new(&dims, place, &x), Tensor::filled(&small, place, 0.0));
            let (dyt, dxt) = (Tensor::new(&small, place, &dy), Tensor::filled(&dims, place, 0.0));
            if !run(&Op::AdaptiveAvgPool2d(AdaptiveAvgPool2d { output }), &[xt.operand()], &[yt.operand()]) {
                return;
            }
            assert_close(&format!("{output:?}"), &yt.values(), &y, 1e-6);
            let grad = AdaptiveAvgPool2dGrad { input: [9, 8] };
            run(&Op::AdaptiveAvgPool2dGrad(grad), &[dyt.operand()], &[dxt.operand()]);
            assert_close(&format!("{output:?} dx"), &dxt.values(), &dx, 1e-6);
        }
    }
}

/// Case B09: padding is −∞, so negative images stay negative.
#[test]
fn padding_never_wins() {
    let window = Window { kernel: [3; 2], stride: [2; 2], padding: [1; 2], dilation: [1; 2], ceil_mode: false };
    let (x, y) = (Tensor::filled(&[1, 1, 4, 4], Place::Dense, -2.0), Tensor::filled(&[1, 1, 2, 2], Place::Dense, 0.0));
    if run(&Op::MaxPool2d(MaxPool2d { window }), &[x.operand()], &[y.operand()]) {
        assert_eq!(y.values(), [-2.0; 4]);
    }
}
