//! The plain loops: what every faster algorithm is tested against. They need no workspace.
//!
//! One task makes one plane of the output (or one kernel of dW), so nothing is written twice.

use super::geometry::Geometry;
use crate::cpu::real::Real;
use crate::{View, ViewMut};
use rayon::prelude::*;

/// Y from X, W and bias.
pub(super) fn forward<T: Real>(
    g: &Geometry,
    x: View<'_, T>,
    w: View<'_, T>,
    bias: Option<View<'_, T>>,
    y: ViewMut<'_, T>,
) {
    y.into_parts(g.n * g.k).into_par_iter().enumerate().for_each(|(plane, y)| {
        let (sample, k) = (plane / g.k, plane % g.k);
        y.fill(bias.map_or(T::ZERO, |bias| bias.part(k, g.k)[0]));
        let first = k / g.k_group() * g.c_group();
        for c in 0..g.c_group() {
            let (x, w) = (x.part(sample * g.c + first + c, g.n * g.c), w.part(k * g.c_group() + c, g.k * g.c_group()));
            for_rows(g, |tap, i, from, columns, source| {
                let (y, weight) = (&mut y[i * g.output[1]..][columns], w[tap]);
                let x = &x[from * g.input[1] + source..];
                y.iter_mut().zip(x.iter().step_by(g.stride[1])).for_each(|(y, &x)| *y += weight * x);
            });
        }
    });
}

/// dX from dY and W.
pub(super) fn data_grad<T: Real>(g: &Geometry, dy: View<'_, T>, w: View<'_, T>, dx: ViewMut<'_, T>) {
    dx.into_parts(g.n * g.c).into_par_iter().enumerate().for_each(|(plane, dx)| {
        let (sample, c) = (plane / g.c, plane % g.c);
        dx.fill(T::ZERO);
        let (group, c) = (c / g.c_group(), c % g.c_group());
        for k in group * g.k_group()..(group + 1) * g.k_group() {
            let (dy, w) = (dy.part(sample * g.k + k, g.n * g.k), w.part(k * g.c_group() + c, g.k * g.c_group()));
            for_rows(g, |tap, i, from, columns, source| {
                let (dy, weight) = (&dy[i * g.output[1]..][columns], w[tap]);
                let dx = &mut dx[from * g.input[1] + source..];
                dx.iter_mut().step_by(g.stride[1]).zip(dy).for_each(|(dx, &dy)| *dx += weight * dy);
            });
        }
    });
}

/// dW from X and dY, in `f64`, samples in order.
pub(super) fn weight_grad<T: Real>(g: &Geometry, x: View<'_, T>, dy: View<'_, T>, dw: ViewMut<'_, T>) {
    dw.into_parts(g.k * g.depth()).into_par_iter().enumerate().with_min_len(g.taps()).for_each(|(at, dw)| {
        let (k, c, tap) = (at / g.depth(), at % g.depth() / g.taps(), at % g.taps());
        let c = k / g.k_group() * g.c_group() + c;
        let [a, b] = g.tap(tap);
        let (rows, columns) = (g.reached(0, a), g.reached(1, b));
        let mut total = 0.0;
        for sample in 0..g.n {
            let (x, dy) = (x.part(sample * g.c + c, g.n * g.c), dy.part(sample * g.k + k, g.n * g.k));
            for i in rows.clone() {
                for j in columns.clone() {
                    let x = x[g.source(0, a, i) * g.input[1] + g.source(1, b, j)];
                    total += x.wide() * dy[i * g.output[1] + j].wide();
                }
            }
        }
        dw[0] = T::of(total);
    });
}

/// Calls `f(tap, i, from, columns, source)` for each tap and output row i that reaches the image: input row `from`, the
/// output columns reached, the input column of the first.
fn for_rows(g: &Geometry, mut f: impl FnMut(usize, usize, usize, std::ops::Range<usize>, usize)) {
    for tap in 0..g.taps() {
        let [a, b] = g.tap(tap);
        let columns = g.reached(1, b);
        if columns.is_empty() {
            continue;
        }
        for i in g.reached(0, a) {
            f(tap, i, g.source(0, a, i), columns.clone(), g.source(1, b, columns.start));
        }
    }
}
