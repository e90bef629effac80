//! Batch normalisation: statistics, normalisation, the running statistics' update and the gradient.
//!
//! Sums run in `f64`, channel by channel, samples in order. The variance takes a second pass over the data, around the
//! mean, so that it never comes out of the difference of two large sums; for the same reason the mean is taken off X first.

use super::launch::Launch;
use super::real::Real;
use super::reduce;
use crate::{DeviceError, View};
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

/// (X, mean, variance, gamma, beta) → Y, also in place.
pub(super) fn forward<T: Real>(op: &BatchNorm, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let x = launch.source::<T>(0, 0)?;
    let [n, c, ..] = launch.input_dims(0);
    let [mean, variance, gamma, beta] = [launch.input::<T>(1)?, launch.input(2)?, launch.input(3)?, launch.input(4)?];
    let y = launch.output::<T>(0)?;
    let coefficients = |channel: usize| {
        let scale = at(&gamma, channel).wide() * inverse_deviation(op, &variance, channel);
        (at(&mean, channel), T::of(scale), at(&beta, channel))
    };
    y.into_parts(n).into_par_iter().enumerate().for_each(|(sample, y)| {
        let plane = y.len() / c.max(1);
        for (channel, y) in y.chunks_exact_mut(plane.max(1)).enumerate() {
            let (mean, scale, shift) = coefficients(channel);
            match &x {
                Some(x) => {
                    let x = x.part(sample * c + channel, n * c);
                    y.iter_mut().zip(x).for_each(|(y, &x)| *y = (x - mean) * scale + shift);
                }
                None => y.iter_mut().for_each(|y| *y = (*y - mean) * scale + shift),
            }
        }
    });
    Ok(())
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
///
/// With x̂ the normalised X and m the count: `dbeta = Σ dY`, `dgamma = Σ dY · x̂`,
/// `dX = gamma / σ · (dY − dbeta / m − x̂ · dgamma / m)`.
pub(super) fn grad<T: Real>(op: &BatchNorm, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let x = launch.input::<T>(0)?;
    let dy = launch.source::<T>(1, 0)?;
    let [n, c, h, w] = launch.input_dims(0);
    let [mean, variance, gamma] = [launch.input::<T>(2)?, launch.input(3)?, launch.input(4)?];
    let (dx, mut dgamma, mut dbeta) = (launch.output::<T>(0)?, launch.output::<T>(1)?, launch.output::<T>(2)?);
    let count = (n * h * w).max(1) as f64;
    let upstream = dy.unwrap_or(dx.as_view());
    let sums: Vec<(f64, f64)> = (0..c)
        .into_par_iter()
        .map(|channel| {
            let average = at(&mean, channel).wide();
            let part = |sample| {
                let (x, dy) = (x.part(sample * c + channel, n * c), upstream.part(sample * c + channel, n * c));
                (reduce::sum(dy), reduce::sum_by2(x, dy, |x, dy| (x - average) * dy))
            };
            (0..n).map(part).fold((0.0, 0.0), |total, part| (total.0 + part.0, total.1 + part.1))
        })
        .collect();
    for (channel, &(sum, moment)) in sums.iter().enumerate() {
        let inverse = inverse_deviation(op, &variance, channel);
        dbeta.part(channel, c)[0] = T::of(sum);
        dgamma.part(channel, c)[0] = T::of(moment * inverse);
    }
    // dX = a · dY + b · (X − mean) + d for each channel.
    let coefficients = |channel: usize| {
        let inverse = inverse_deviation(op, &variance, channel);
        let scale = at(&gamma, channel).wide() * inverse;
        let (sum, moment) = sums[channel];
        let slope = -scale * inverse * inverse * moment / count;
        (at(&mean, channel), T::of(scale), T::of(slope), T::of(-scale * sum / count))
    };
    dx.into_parts(n).into_par_iter().enumerate().for_each(|(sample, dx)| {
        let plane = dx.len() / c.max(1);
        for (channel, dx) in dx.chunks_exact_mut(plane.max(1)).enumerate() {
            let (mean, a, b, d) = coefficients(channel);
            let x = x.part(sample * c + channel, n * c);
            match &dy {
                Some(dy) => {
                    let dy = dy.part(sample * c + channel, n * c);
                    dx.iter_mut().zip(x).zip(dy).for_each(|((dx, &x), &dy)| *dx = a * dy + b * (x - mean) + d);
                }
                None => dx.iter_mut().zip(x).for_each(|(dx, &x)| *dx = a * *dx + b * (x - mean) + d),
            }
        }
    });
    Ok(())
}

/// Element `index` of a vector.
fn at<T: Real>(vector: &View<'_, T>, index: usize) -> T {
    vector.part(index, vector.len())[0]
}

fn inverse_deviation<T: Real>(op: &BatchNorm, variance: &View<'_, T>, channel: usize) -> f64 {
    1.0 / (at(variance, channel).wide() + op.eps).sqrt()
}
