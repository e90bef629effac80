//! Average pooling, with PyTorch's divisor: a window's size within the padded image, or, without `count_include_pad`, the
//! number of its pixels within the image.

use super::launch::Launch;
use super::real::Real;
use crate::DeviceError;
use rayon::prelude::*;
use std::ops::Range;
use vdnn_graph::op::{AvgPool2d, AvgPool2dGrad};

/// (X) → Y.
pub(super) fn forward<T: Real>(op: &AvgPool2d, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let x = launch.input::<T>(0)?;
    let [n, c, h, w] = launch.input_dims(0);
    let [.., oh, ow] = launch.output_dims(0);
    let y = launch.output::<T>(0)?;
    y.into_parts(n).into_par_iter().enumerate().for_each(|(sample, y)| {
        for (channel, y) in y.chunks_exact_mut((oh * ow).max(1)).enumerate() {
            let x = x.part(sample * c + channel, n * c);
            for (i, y) in y.chunks_exact_mut(ow).enumerate() {
                for (j, y) in y.iter_mut().enumerate() {
                    let (rows, columns, divisor) = window(op, [i, j], [h, w]);
                    *y = mean(x, w, rows, columns, divisor);
                }
            }
        }
    });
    Ok(())
}

/// (dY) → dX: each window spreads its gradient evenly.
pub(super) fn grad<T: Real>(op: &AvgPool2dGrad, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let dy = launch.input::<T>(0)?;
    let [n, c, _, ow] = launch.input_dims(0);
    let [.., h, w] = launch.output_dims(0);
    let dx = launch.output::<T>(0)?;
    dx.into_parts(n).into_par_iter().enumerate().for_each(|(sample, dx)| {
        dx.fill(T::ZERO);
        for (channel, dx) in dx.chunks_exact_mut((h * w).max(1)).enumerate() {
            for (i, dy) in dy.part(sample * c + channel, n * c).chunks_exact(ow).enumerate() {
                for (j, &dy) in dy.iter().enumerate() {
                    let (rows, columns, divisor) = window(&op.pool, [i, j], [h, w]);
                    spread(dx, w, rows, columns, dy / T::of(divisor as f64));
                }
            }
        }
    });
    Ok(())
}

/// The mean of a rectangle of pixels over a given divisor.
pub(super) fn mean<T: Real>(x: &[T], width: usize, rows: Range<usize>, columns: Range<usize>, divisor: usize) -> T {
    let row_sum = |row: usize| x[row * width..][columns.clone()].iter().map(|x| x.wide()).sum::<f64>();
    T::of(rows.map(row_sum).sum::<f64>() / divisor as f64)
}

/// Adds a share to every pixel of a rectangle.
pub(super) fn spread<T: Real>(dx: &mut [T], width: usize, rows: Range<usize>, columns: Range<usize>, share: T) {
    for row in rows {
        dx[row * width..][columns.clone()].iter_mut().for_each(|dx| *dx += share);
    }
}

/// The pixels of window (i, j) and its divisor.
fn window(op: &AvgPool2d, at: [usize; 2], size: [usize; 2]) -> (Range<usize>, Range<usize>, usize) {
    let [(rows, tall), (columns, wide)] = [0, 1].map(|axis| {
        let [kernel, stride, padding] =
            [op.window.kernel, op.window.stride, op.window.padding].map(|pair| pair[axis] as usize);
        let start = at[axis] * stride;
        let end = (start + kernel).min(size[axis] + 2 * padding);
        (start.saturating_sub(padding)..end.saturating_sub(padding).min(size[axis]), end - start)
    });
    let divisor = if op.count_include_pad { tall * wide } else { rows.len() * columns.len() };
    (rows, columns, divisor.max(1))
}
