//! Sums in `f64`, in a fixed order: eight running sums, element i into sum i mod 8, joined at the end.

use super::real::Real;

const LANES: usize = 8;

/// Σ f(x).
pub(super) fn sum_by<T: Real>(xs: &[T], f: impl Fn(f64) -> f64) -> f64 {
    let mut lanes = [0.0f64; LANES];
    let chunks = xs.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += f(x.wide());
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane += f(x.wide());
    }
    lanes.iter().sum()
}

/// Σ x.
pub(super) fn sum<T: Real>(xs: &[T]) -> f64 {
    sum_by(xs, |x| x)
}

/// Σ f(x, y).
pub(super) fn sum_by2<T: Real>(xs: &[T], ys: &[T], f: impl Fn(f64, f64) -> f64) -> f64 {
    let mut lanes = [0.0f64; LANES];
    let whole = xs.len() / LANES * LANES;
    for (x, y) in xs[..whole].chunks_exact(LANES).zip(ys[..whole].chunks_exact(LANES)) {
        for lane in 0..LANES {
            lanes[lane] += f(x[lane].wide(), y[lane].wide());
        }
    }
    for (lane, (x, y)) in lanes.iter_mut().zip(xs[whole..].iter().zip(&ys[whole..])) {
        *lane += f(x.wide(), y.wide());
    }
    lanes.iter().sum()
}
