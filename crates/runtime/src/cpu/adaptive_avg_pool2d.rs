//! Adaptive average pooling: output row i averages the input rows from ⌊i·H/OH⌋ up to ⌈(i+1)·H/OH⌉.

use super::avg_pool2d::{mean, spread};
use super::launch::Launch;
use super::real::Real;
use crate::DeviceError;
use rayon::prelude::*;
use std::ops::Range;

/// (X) → Y.
pub(super) fn forward<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let x = launch.input::<T>(0)?;
    let [n, c, h, w] = launch.input_dims(0);
    let [.., oh, ow] = launch.output_dims(0);
    let y = launch.output::<T>(0)?;
    y.into_parts(n).into_par_iter().enumerate().for_each(|(sample, y)| {
        for (channel, y) in y.chunks_exact_mut(oh * ow).enumerate() {
            let x = x.part(sample * c + channel, n * c);
            for (at, y) in y.iter_mut().enumerate() {
                let (rows, columns) = (pixels(at / ow, h, oh), pixels(at % ow, w, ow));
                let divisor = rows.len() * columns.len();
                *y = mean(x, w, rows, columns, divisor);
            }
        }
    });
    Ok(())
}

/// (dY) → dX.
pub(super) fn grad<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let dy = launch.input::<T>(0)?;
    let [n, c, oh, ow] = launch.input_dims(0);
    let [.., h, w] = launch.output_dims(0);
    let dx = launch.output::<T>(0)?;
    dx.into_parts(n).into_par_iter().enumerate().for_each(|(sample, dx)| {
        dx.fill(T::ZERO);
        for (channel, dx) in dx.chunks_exact_mut((h * w).max(1)).enumerate() {
            for (at, &dy) in dy.part(sample * c + channel, n * c).iter().enumerate() {
                let (rows, columns) = (pixels(at / ow, h, oh), pixels(at % ow, w, ow));
                let share = dy / T::of((rows.len() * columns.len()) as f64);
                spread(dx, w, rows, columns, share);
            }
        }
    });
    Ok(())
}

/// The input pixels of output pixel `index` along one axis.
fn pixels(index: usize, size: usize, output: usize) -> Range<usize> {
    index * size / output..((index + 1) * size).div_ceil(output)
}
