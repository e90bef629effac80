//! Local response normalisation across channels.

use crate::tensor::{PLACES, Tensor, assert_close, normal, run};
use vdnn_graph::op::{LocalResponseNorm, Op};

struct Reference {
    y: Vec<f64>,
    dx: Vec<f64>,
}

fn reference(op: &LocalResponseNorm, [n, channels, hw]: [usize; 3], x: &[f32], dy: &[f32]) -> Reference {
    let (low, high) = (op.size as usize / 2, (op.size as usize - 1) / 2);
    let window = |c: usize| c.saturating_sub(low)..(c + high + 1).min(channels);
    let (mut y, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    for (sample, pixel) in (0..n).flat_map(|s| (0..hw).map(move |p| (s, p))) {
        let at = |c: usize| (sample * channels + c) * hw + pixel;
        let value = |c: usize| f64::from(x[at(c)]);
        let scale = |c| op.k + op.alpha / op.size as f64 * window(c).map(|j| value(j).powi(2)).sum::<f64>();
        for c in 0..channels {
            let (s, d) = (scale(c), f64::from(dy[at(c)]));
            y[at(c)] = value(c) * s.powf(-op.beta);
            dx[at(c)] += d * s.powf(-op.beta);
            for j in window(c) {
                let slope = op.alpha / op.size as f64 * 2.0 * value(j) * -op.beta * s.powf(-op.beta - 1.0);
                dx[at(j)] += d * value(c) * slope;
            }
        }
    }
    Reference { y, dx }
}

#[test]
fn windows_of_every_parity_over_few_and_many_channels() {
    for (size, beta, channels) in [(5, 0.75, 70), (5, 0.75, 3), (4, 0.5, 33), (1, 1.0, 2), (9, 0.75, 40)] {
        let op = LocalResponseNorm { size, alpha: 0.3, beta, k: 2.0 };
        for (hw, place) in [[5u64, 7], [17, 18]].into_iter().flat_map(|hw| PLACES.map(|p| (hw, p))) {
            let dims = [2, channels, hw[0], hw[1]];
            let count = dims.iter().product();
            let (values, dys) = (normal(count, 1), normal(count, 2));
            let (x, dy) = (Tensor::new(&dims, place, &values), Tensor::new(&dims, place, &dys));
            let (y, dx) = (Tensor::filled(&dims, place, 0.0), Tensor::filled(&dims, place, 0.0));
            if !run(&Op::LocalResponseNorm(op), &[x.operand()], &[y.operand()]) {
                return;
            }
            run(&Op::LocalResponseNormGrad(op), &[x.operand(), dy.operand()], &[dx.operand()]);
            let expected = reference(&op, [2, channels as usize, (hw[0] * hw[1]) as usize], &values, &dys);
            assert_close(&format!("{op:?} y"), &y.values(), &expected.y, 1e-6);
            assert_close(&format!("{op:?} {dims:?} dx"), &dx.values(), &expected.dx, 2e-6);
        }
    }
}
