//! Batch normalisation: statistics, normalisation, the running statistics' update and the gradient.
//!
//! Sums run in `f64`, channel by channel, samples in order. The variance takes a second pass over the data, around the
//! mean, so that it never comes out of the difference of two large sums; for the same reason the mean is taken off X first.

use super::launch::Launch;
use super::operand::Source;
use super::real::Real;
use super::reduce;
use crate::{DeviceError, View, ViewMut};
use rayon::prelude::*;
use vdnn_graph::op::{BatchNorm, BatchNormUpdate};

/// (X) → mean, biased variance. Both are 0 for an empty batch.
pub(super) fn stats<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let x = launch.input::<T>(0)?;
    let [n, c, h, w] = launch.input_dims(0);
    let (mean, variance) = (launch.output::<T>(0)?, launch.output::<T>(1)?);
    let count = (n * h * w).max(1) as f64;
    let plane = |sample: usize, channel: usize| x.part(sample * c + channel, n * c);
    let outputs: Vec<_> = mean.into_parts(c).into_iter().zip(variance.into_parts(c)).collect();
    outputs.into_par_iter().enumerate().for_each(|(channel, (mean, variance))| {
        let average = (0..n).map(|sample| reduce::sum(plane(sample, channel))).sum::<f64>() / count;
        let around = |sample| reduce::sum_by(plane(sample, channel), |x| (x - average) * (x - average));
        mean[0] = T::of(average);
        variance[0] = T::of((0..n).map(around).sum::<f64>() / count);
    });
    Ok(())
}

/// What normalises X: one number of each a channel.
pub(super) struct Coefficients<'a, T> {
    mean: View<'a, T>,
    variance: View<'a, T>,
    gamma: View<'a, T>,
    beta: View<'a, T>,
    eps: f64,
}

/// `y = (x − mean) · scale + shift` of one channel.
#[derive(Clone, Copy)]
pub(super) struct Affine<T> {
    mean: T,
    scale: T,
    shift: T,
}

impl<'a, T: Real> Coefficients<'a, T> {
    /// The four inputs from `first` on.
    pub fn of(op: &BatchNorm, launch: &Launch<'a>, first: usize) -> Result<Self, DeviceError> {
        let [mean, variance] = [launch.input::<T>(first)?, launch.input(first + 1)?];
        let [gamma, beta] = [launch.input::<T>(first + 2)?, launch.input(first + 3)?];
        Ok(Coefficients { mean, variance, gamma, beta, eps: op.eps })
    }

    pub fn channel(&self, channel: usize) -> Affine<T> {
        let scale = at(&self.gamma, channel).wide() * inverse_deviation(self.eps, &self.variance, channel);
        Affine { mean: at(&self.mean, channel), scale: T::of(scale), shift: at(&self.beta, channel) }
    }
}

impl<T: Real> Affine<T> {
    #[inline(always)]
    pub fn apply(self, x: T) -> T {
        (x - self.mean) * self.scale + self.shift
    }
}

/// (X, mean, variance, gamma, beta) → Y, also in place.
pub(super) fn forward<T: Real>(op: &BatchNorm, launch: Launch<'_>) -> Result<(), DeviceError> {
    forward_then::<T>(op, launch, |y| y)
}

/// The same, each number finished by `then`.
pub(super) fn forward_then<T: Real>(
    op: &BatchNorm,
    mut launch: Launch<'_>,
    then: impl Fn(T) -> T + Copy + Sync,
) -> Result<(), DeviceError> {
    let coefficients = Coefficients::of(op, &launch, 1)?;
    let x = launch.source::<T>(0, 0)?;
    let [n, c, ..] = launch.input_dims(0);
    let y = launch.output::<T>(0)?;
    map_channels([n, c], x, y, |channel| {
        let affine = coefficients.channel(channel);
        move |x| then(affine.apply(x))
    });
    Ok(())
}

/// `y = f(x)` with an f for each channel; x absent in place.
fn map_channels<T: Real, F: Fn(T) -> T>(
    [n, c]: [usize; 2],
    x: Source<'_, T>,
    y: ViewMut<'_, T>,
    of_channel: impl Fn(usize) -> F + Sync,
) {
    y.into_parts(n).into_par_iter().enumerate().for_each(|(sample, y)| {
        let plane = y.len() / c.max(1);
        for (channel, y) in y.chunks_exact_mut(plane.max(1)).enumerate() {
            let f = of_channel(channel);
            match &x {
                Some(x) => {
                    let x = x.part(sample * c + channel, n * c);
                    y.iter_mut().zip(x).for_each(|(y, &x)| *y = f(x));
                }
                None => y.iter_mut().for_each(|y| *y = f(*y)),
            }
        }
    });
}

/// (mean, variance, running mean, running variance) → the updated running statistics.
pub(super) fn update<T: Real>(op: &BatchNormUpdate, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let unbiased = if op.count > 1 { op.count as f64 / (op.count - 1) as f64 } else { 1.0 };
    let momentum = if op.count == 0 { 0.0 } else { op.momentum };
    let c = launch.input_types[0].shape.elements() as usize;
    for (index, factor) in [(0, 1.0), (1, unbiased)] {
        let batch = launch.input::<T>(index)?;
        let from = launch.source::<T>(index + 2, index)?;
        let mut running = launch.output::<T>(index)?;
        for channel in 0..c {
            let to = &mut running.part(channel, c)[0];
            let old = from.as_ref().map_or(*to, |from| at(from, channel));
            *to = match op.count {
                0 => old,
                _ => T::of((1.0 - momentum) * old.wide() + momentum * factor * at(&batch, channel).wide()),
            };
        }
    }
    Ok(())
}

/// (X, dY, mean, variance, gamma) → dX, dgamma, dbeta; dX also over dY.
pub(super) fn grad<T: Real>(op: &BatchNorm, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let dy = launch.source::<T>(1, 0)?;
    let gradient = Gradient::of(op, &launch, 2)?;
    let outputs = [launch.output::<T>(0)?, launch.output::<T>(1)?, launch.output::<T>(2)?];
    gradient.write(dy, outputs);
    Ok(())
}

/// The operands of the gradient besides dY.
pub(super) struct Gradient<'a, T> {
    x: View<'a, T>,
    dims: [usize; 4],
    mean: View<'a, T>,
    variance: View<'a, T>,
    gamma: View<'a, T>,
    eps: f64,
}

impl<'a, T: Real> Gradient<'a, T> {
    /// X is the first input; mean, variance and gamma are those from `first` on.
    pub fn of(op: &BatchNorm, launch: &Launch<'a>, first: usize) -> Result<Self, DeviceError> {
        let (x, dims) = (launch.input::<T>(0)?, launch.input_dims(0));
        let [mean, variance, gamma] = [launch.input::<T>(first)?, launch.input(first + 1)?, launch.input(first + 2)?];
        Ok(Gradient { x, dims, mean, variance, gamma, eps: op.eps })
    }

    /// dX, dgamma, dbeta from dY, which is what dX holds where it is absent.
    ///
    /// With x̂ the normalised X and m the count: `dbeta = Σ dY`, `dgamma = Σ dY · x̂`,
    /// `dX = gamma / σ · (dY − dbeta / m − x̂ · dgamma / m)`.
    pub fn write(&self, dy: Source<'_, T>, [dx, mut dgamma, mut dbeta]: [ViewMut<'_, T>; 3]) {
        let [n, c, h, w] = self.dims;
        let count = (n * h * w).max(1) as f64;
        let sums = self.sums(dy.unwrap_or(dx.as_view()));
        for (channel, &(sum, moment)) in sums.iter().enumerate() {
            let inverse = inverse_deviation(self.eps, &self.variance, channel);
            dbeta.part(channel, c)[0] = T::of(sum);
            dgamma.part(channel, c)[0] = T::of(moment * inverse);
        }
        // dX = a · dY + b · (X − mean) + d for each channel.
        let coefficients = |channel: usize| {
            let inverse = inverse_deviation(self.eps, &self.variance, channel);
            let scale = at(&self.gamma, channel).wide() * inverse;
            let (sum, moment) = sums[channel];
            let slope = -scale * inverse * inverse * moment / count;
            (at(&self.mean, channel), T::of(scale), T::of(slope), T::of(-scale * sum / count))
        };
        dx.into_parts(n).into_par_iter().enumerate().for_each(|(sample, dx)| {
            let plane = dx.len() / c.max(1);
            for (channel, dx) in dx.chunks_exact_mut(plane.max(1)).enumerate() {
                let (mean, a, b, d) = coefficients(channel);
                let x = self.x.part(sample * c + channel, n * c);
                match &dy {
                    Some(dy) => {
                        let dy = dy.part(sample * c + channel, n * c);
                        dx.iter_mut().zip(x).zip(dy).for_each(|((dx, &x), &dy)| *dx = a * dy + b * (x - mean) + d);
                    }
                    None => dx.iter_mut().zip(x).for_each(|(dx, &x)| *dx = a * *dx + b * (x - mean) + d),
                }
            }
        });
    }

    /// Of each channel: `Σ dY` and `Σ dY · (X − mean)`.
    fn sums(&self, dy: View<'_, T>) -> Vec<(f64, f64)> {
        let [n, c, ..] = self.dims;
        let of_channel = |channel: usize| {
            let average = at(&self.mean, channel).wide();
            let part = |sample| {
                let (x, dy) = (self.x.part(sample * c + channel, n * c), dy.part(sample * c + channel, n * c));
                (reduce::sum(dy), reduce::sum_by2(x, dy, |x, dy| (x - average) * dy))
            };
            (0..n).map(part).fold((0.0, 0.0), |total, part| (total.0 + part.0, total.1 + part.1))
        };
        (0..c).into_par_iter().map(of_channel).collect()
    }
}

/// Element `index` of a vector.
fn at<T: Real>(vector: &View<'_, T>, index: usize) -> T {
    vector.part(index, vector.len())[0]
}

fn inverse_deviation<T: Real>(eps: f64, variance: &View<'_, T>, channel: usize) -> f64 {
    1.0 / (at(variance, channel).wide() + eps).sqrt()
}
