//! Unfolding into channels innermost and its gradient, against plain loops.

use super::tensor::{Map, TYPES, nhwc, round};
use crate::tensor::{PLACES, Place, Tensor, assert_close, normal, run};
use vdnn_graph::op::{Op, Unfold, UnfoldGrad};
use vdnn_tensor::{DType, Layout, TensorType};

/// X's extents and how it is unfolded: the stems of ResNet, VGG and AlexNet in small, gaps between windows, several strips.
fn cases(dtype: DType) -> Vec<([u64; 4], Unfold)> {
    let case = |x: [u64; 4], window: [u64; 2], stride, padding, output| {
        let channels = x[1] * window[0] * window[1];
        let layout = nhwc(&[1, channels, 1, 1], dtype, (channels.next_multiple_of(8) - channels) as u32).layout;
        (x, Unfold { window, stride, padding, output, dtype, layout })
    };
    vec![
        case([2, 3, 16, 14], [7, 2], [2, 2], [3, 3], [8, 10]),
        case([2, 3, 9, 11], [3, 1], [1, 1], [1, 1], [9, 13]),
        case([1, 3, 22, 26], [4, 4], [4, 4], [2, 2], [7, 8]),
        case([5, 1, 7, 9], [1, 2], [3, 4], [0, 1], [3, 3]),
        case([1, 7, 8, 700], [3, 2], [2, 1], [1, 0], [4, 702]),
    ]
}

/// (element of X, element of Y) wherever a window sees X, both in the logical order.
fn seen([samples, channels, h, w]: [u64; 4], op: &Unfold) -> Vec<(usize, usize)> {
    let ([wh, ww], [oh, ow]) = (op.window, op.output);
    let taps = wh * ww;
    let mut pairs = Vec::new();
    for (of, tap) in (0..samples * channels).flat_map(|of| (0..taps).map(move |tap| (of, tap))) {
        for (i, j) in (0..oh).flat_map(|i| (0..ow).map(move |j| (i, j))) {
            let row = (i * op.stride[0] + tap / ww).wrapping_sub(op.padding[0]);
            let column = (j * op.stride[1] + tap % ww).wrapping_sub(op.padding[1]);
            if row < h && column < w {
                pairs.push((((of * h + row) * w + column) as usize, (((of * taps + tap) * oh + i) * ow + j) as usize));
            }
        }
    }
    pairs
}

fn unfolded(x: [u64; 4], op: &Unfold) -> TensorType {
    let channels = x[1] * op.window[0] * op.window[1];
    nhwc(&[x[0], channels, op.output[0], op.output[1]], op.dtype, op.layout.channel_padding)
}

#[test]
fn windows_become_channels() {
    for ((dims, op), place) in TYPES.iter().flat_map(|&t| cases(t)).flat_map(|case| PLACES.map(|p| (case, p))) {
        let ty = unfolded(dims, &op);
        let values = normal(dims.iter().product(), 1);
        let image = Tensor::new(&dims, Place::Dense, &values);
        let y = Map::filled(ty.clone(), place, 7.0);
        if !run(&Op::Unfold(op), &[image.operand()], &[y.operand()]) {
            return;
        }
        let mut expected = vec![0.0; ty.shape.elements() as usize];
        for (from, to) in seen(dims, &op) {
            expected[to] = f64::from(round(op.dtype, values[from]));
        }
        assert_close("unfold", &y.values(), &expected, 0.0);
        // Of the element type itself, in NCHW order.
        let half = Map::new(TensorType::new(dims, op.dtype), Place::Dense, &values);
        let again = Map::filled(ty, place, 7.0);
        run(&Op::Unfold(op), &[half.operand()], &[again.operand()]);
        assert_close("unfold in half precision", &again.values(), &expected, 0.0);
    }
}

#[test]
fn gradients_are_sums_over_windows() {
    for ((dims, op), place) in TYPES.iter().flat_map(|&t| cases(t)).flat_map(|case| PLACES.map(|p| (case, p))) {
        let (dy, given) = Map::normal(unfolded(dims, &op), place, 1);
        let grad = UnfoldGrad { unfold: op, input: [dims[2], dims[3]], dtype: DType::F32, layout: Layout::default() };
        let dx = Tensor::filled(&dims, Place::Dense, 7.0);
        if !run(&Op::UnfoldGrad(grad), &[dy.operand()], &[dx.operand()]) {
            return;
        }
        let mut expected = vec![0.0; dims.iter().product::<u64>() as usize];
        for (to, from) in seen(dims, &op) {
            expected[to] += f64::from(given[from]);
        }
        assert_close("unfold_grad", &dx.values(), &expected, 1e-5);
        let half = Map::filled(TensorType::new(dims, op.dtype), Place::Dense, 7.0);
        run(&Op::UnfoldGrad(UnfoldGrad { dtype: op.dtype, ..grad }), &[dy.operand()], &[half.operand()]);
        let rounded: Vec<f64> = dx.values().iter().map(|&v| f64::from(round(op.dtype, v))).collect();
        assert_close("unfold_grad in half precision", &half.values(), &rounded, 0.0);
    }
}
