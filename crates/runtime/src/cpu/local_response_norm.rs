//! Local response normalisation across channels: `Y = X · D^−beta`, `D[c] = k + alpha/size · Σ X[c']²` over the window.
//!
//! The gradient is `dX[c] = dY[c] · D[c]^−beta − 2 · alpha · beta / size · X[c] · Σ T[c']` over the windows c lies in,
//! with `T = dY · X · D^(−beta − 1)`. The algorithm `stored` keeps T in a workspace as large as X; `loop` computes it
//! again for every window.

use super::choices::{Algorithm, LOOP};
use super::launch::Launch;
use super::real::Real;
use crate::DeviceError;
use rayon::prelude::*;
use std::ops::Range;
use vdnn_graph::op::LocalResponseNorm;
use vdnn_tensor::TensorType;

const STORED: &str = "stored";

/// The gradient's algorithms.
pub(super) fn algorithms(outputs: &[TensorType]) -> Vec<Algorithm> {
    let stored = Algorithm { workspace: outputs[0].bytes(), passes: 3.0, ..Algorithm::plain(STORED) };
    let again = Algorithm { passes: 6.0, ..Algorithm::plain(LOOP) };
    vec![stored, again]
}

/// (X) → Y.
pub(super) fn forward<T: Real>(op: &LocalResponseNorm, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let x = launch.input::<T>(0)?;
    let [n, c, h, w] = launch.input_dims(0);
    let y = launch.output::<T>(0)?;
    y.into_parts(n).into_par_iter().enumerate().for_each(|(sample, y)| {
        let image = Image { op, x: x.part(sample, n), channels: c, plane: h * w };
        for (at, y) in y.iter_mut().enumerate() {
            *y = T::of(image.x[at].wide() * image.divisor(at).powf(-op.beta));
        }
    });
    Ok(())
}

/// (X, dY) → dX.
pub(super) fn grad<T: Real>(op: &LocalResponseNorm, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let (x, dy) = (launch.input::<T>(0)?, launch.input::<T>(1)?);
    let [n, c, h, w] = launch.input_dims(0);
    let stored = match launch.algorithm {
        STORED => launch.scratch::<T>(n * c * h * w)?,
        LOOP => &mut [],
        _ => return Err(launch.refuse(format!("expected {STORED} or {LOOP}"))),
    };
    let again = launch.algorithm == LOOP;
    let dx = launch.output::<T>(0)?;
    let mut terms: Vec<&mut [T]> = stored.chunks_mut((c * h * w).max(1)).collect();
    terms.resize_with(n, Default::default);
    dx.into_parts(n).into_par_iter().zip(terms).enumerate().for_each(|(sample, (dx, terms))| {
        let image = Image { op, x: x.part(sample, n), channels: c, plane: h * w };
        let dy = dy.part(sample, n);
        terms.iter_mut().enumerate().for_each(|(at, term)| *term = T::of(image.term(dy, at)));
        for (at, dx) in dx.iter_mut().enumerate() {
            let term = |at: usize| if again { T::of(image.term(dy, at)).wide() } else { terms[at].wide() };
            let sum: f64 = image.windows_with(at).map(|channel| term(image.beside(at, channel))).sum();
            let own = dy[at].wide() * image.divisor(at).powf(-op.beta);
            *dx = T::of(own - 2.0 * op.alpha * op.beta / op.size as f64 * image.x[at].wide() * sum);
        }
    });
    Ok(())
}

/// One sample `[C, H, W]`; `at` is an element's index in it.
struct Image<'a, T> {
    op: &'a LocalResponseNorm,
    x: &'a [T],
    channels: usize,
    plane: usize,
}

impl<T: Real> Image<'_, T> {
    /// D at an element.
    fn divisor(&self, at: usize) -> f64 {
        let size = self.op.size as usize;
        let window = self.around(at, size / 2, (size - 1) / 2);
        let squares: f64 = window.map(|channel| self.x[self.beside(at, channel)].wide().powi(2)).sum();
        self.op.k + self.op.alpha / self.op.size as f64 * squares
    }

    /// T at an element.
    fn term(&self, dy: &[T], at: usize) -> f64 {
        dy[at].wide() * self.x[at].wide() * self.divisor(at).powf(-self.op.beta - 1.0)
    }

    /// Channels whose windows an element lies in.
    fn windows_with(&self, at: usize) -> Range<usize> {
        let size = self.op.size as usize;
        self.around(at, (size - 1) / 2, size / 2)
    }

    fn around(&self, at: usize, below: usize, above: usize) -> Range<usize> {
        let channel = at / self.plane;
        channel.saturating_sub(below)..(channel + above + 1).min(self.channels)
    }

    /// The element of another channel at the same pixel.
    fn beside(&self, at: usize, channel: usize) -> usize {
        channel * self.plane + at % self.plane
    }
}
