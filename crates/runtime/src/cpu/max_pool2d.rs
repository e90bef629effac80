//! Max pooling: padding counts as −∞, the first maximum of a window gets its gradient, overlapping windows add up.
//!
//! A not-a-number is larger than any number, as in PyTorch. With indices, forward also writes the place of each window's
//! first maximum, row by row within the window, and the gradient reads that in place of X and Y (`indices`).

mod indices;

pub(super) use indices::{forward_indexed, grad_indexed, grad_relu_bias, pool_channel, scatter};

use super::launch::Launch;
use super::real::{Real, vectorised};
use crate::DeviceError;
use rayon::prelude::*;
use std::ops::Range;
use vdnn_graph::op::{MaxPool2d, Window};

/// (X) → Y.
pub(super) fn forward<T: Real>(op: &MaxPool2d, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let x = launch.input::<T>(0)?;
    let [n, c, h, w] = launch.input_dims(0);
    let [.., oh, ow] = launch.output_dims(0);
    let y = launch.output::<T>(0)?;
    y.into_parts(n).into_par_iter().enumerate().for_each(|(sample, y)| {
        for (channel, y) in y.chunks_exact_mut((oh * ow).max(1)).enumerate() {
            let x = x.part(sample * c + channel, n * c);
            if is_two_by_two(&op.window) {
                vectorised(|| halve(x, w, y, ow));
                continue;
            }
            for (i, y) in y.chunks_exact_mut(ow).enumerate() {
                let rows = taps(&op.window, 0, i, h);
                for (j, y) in y.iter_mut().enumerate() {
                    let at = largest(x, w, rows.clone(), taps(&op.window, 1, j, w), op.window.dilation);
                    *y = at.map_or(T::LOWEST, |at| x[at]);
                }
            }
        }
    });
    Ok(())
}

/// (X, Y, dY) → dX. The place of the maximum is found again in X.
pub(super) fn grad<T: Real>(op: &MaxPool2d, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let (x, dy) = (launch.input::<T>(0)?, launch.input::<T>(2)?);
    let [n, c, h, w] = launch.input_dims(0);
    let [.., oh, ow] = launch.input_dims(1);
    let dx = launch.output::<T>(0)?;
    dx.into_parts(n).into_par_iter().enumerate().for_each(|(sample, dx)| {
        dx.fill(T::ZERO);
        for (channel, dx) in dx.chunks_exact_mut((h * w).max(1)).enumerate() {
            let (x, dy) = (x.part(sample * c + channel, n * c), dy.part(sample * c + channel, n * c));
            if is_two_by_two(&op.window) {
                vectorised(|| spread_halves(x, w, dy, ow, dx));
                continue;
            }
            for (i, dy) in dy.chunks_exact(ow).enumerate().take(oh) {
                let rows = taps(&op.window, 0, i, h);
                for (j, dy) in dy.iter().enumerate() {
                    let at = largest(x, w, rows.clone(), taps(&op.window, 1, j, w), op.window.dilation);
                    if let Some(at) = at {
                        dx[at] += *dy;
                    }
                }
            }
        }
    });
    Ok(())
}

/// The usual window: 2×2, side by side, no padding. Every pixel belongs to one window at most.
fn is_two_by_two(window: &Window) -> bool {
    *window == Window::square(2)
}

/// One channel through 2×2 windows.
#[inline(always)]
fn halve<T: Real>(x: &[T], width: usize, y: &mut [T], out: usize) {
    for (pair, y) in x.chunks_exact(2 * width).zip(y.chunks_exact_mut(out)) {
        let (top, bottom) = pair.split_at(width);
        for ((y, top), bottom) in y.iter_mut().zip(top.chunks_exact(2)).zip(bottom.chunks_exact(2)) {
            let larger = |a: T, b: T| if beats(b, a) { b } else { a };
            *y = larger(larger(larger(top[0], top[1]), bottom[0]), bottom[1]);
        }
    }
}

/// One channel's gradients back through 2×2 windows; `dx` holds zeros.
#[inline(always)]
fn spread_halves<T: Real>(x: &[T], width: usize, dy: &[T], out: usize, dx: &mut [T]) {
    let pairs = x.chunks_exact(2 * width).zip(dx.chunks_exact_mut(2 * width));
    for ((x, dx), dy) in pairs.zip(dy.chunks_exact(out)) {
        let ((top, bottom), (dx_top, dx_bottom)) = (x.split_at(width), dx.split_at_mut(width));
        let windows = top.chunks_exact(2).zip(bottom.chunks_exact(2));
        let targets = dx_top.chunks_exact_mut(2).zip(dx_bottom.chunks_exact_mut(2));
        for (((top, bottom), (dx_top, dx_bottom)), &dy) in windows.zip(targets).zip(dy) {
            let (right_above, right_below) = (beats(top[1], top[0]), beats(bottom[1], bottom[0]));
            let above = if right_above { top[1] } else { top[0] };
            let below = if right_below { bottom[1] } else { bottom[0] };
            let below_wins = beats(below, above);
            let at = |here: bool| if here { T::ZERO + dy } else { T::ZERO };
            dx_top[0] = at(!below_wins && !right_above);
            dx_top[1] = at(!below_wins && right_above);
            dx_bottom[0] = at(below_wins && !right_below);
            dx_bottom[1] = at(below_wins && right_below);
        }
    }
}

/// True when a later pixel takes the maximum from an earlier one.
#[inline(always)]
fn beats<T: Real>(later: T, earlier: T) -> bool {
    later > earlier || (later.is_nan() && !earlier.is_nan())
}

/// The first and one past the last pixel of a window along an axis, without padding; steps of the dilation between.
fn taps(window: &Window, axis: usize, index: usize, size: usize) -> Range<usize> {
    let [kernel, stride, padding, dilation] =
        [window.kernel, window.stride, window.padding, window.dilation].map(|pair| pair[axis] as usize);
    let start = index * stride;
    let skipped = padding.saturating_sub(start).div_ceil(dilation);
    let end = (start + (kernel - 1) * dilation + 1).saturating_sub(padding).min(size);
    start + skipped * dilation - padding..end
}

/// Index of the first largest pixel of a window; `None` when dilation steps over the whole image.
fn largest<T: Real>(
    x: &[T],
    width: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    dilation: [u64; 2],
) -> Option<usize> {
    if rows.is_empty() || columns.is_empty() {
        return None;
    }
    let mut at = rows.start * width + columns.start;
    let mut best = x[at];
    let mut row = rows.start;
    while row < rows.end {
        let mut column = columns.start;
        while column < columns.end {
            let value = x[row * width + column];
            if beats(value, best) {
                (at, best) = (row * width + column, value);
            }
            column += dilation[1] as usize;
        }
        row += dilation[0] as usize;
    }
    Some(at)
}
