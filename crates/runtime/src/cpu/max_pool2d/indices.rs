//! Max pooling that remembers places: a byte for each window says which of its pixels was the first maximum.
//!
//! A place counts every tap of the window, padding included, so that it does not depend on where the window lies:
//!
//! ```text
//!   3×3 window over the top left corner, padding 1      ·  ·  ·      taps 0 1 2
//!                                                       ·  a  b           3 4 5      b is the largest: 5
//!                                                       ·  c  d           6 7 8
//! ```

use super::super::bias;
use super::super::launch::Launch;
use super::super::real::{Real, vectorised};
use super::super::relu::passes;
use super::{beats, is_two_by_two, largest, taps};
use crate::{DeviceError, View, ViewMut};
use rayon::prelude::*;
use vdnn_graph::op::{MaxPool2d, NO_PLACE, Window};

/// (X) → Y, indices.
pub(in super::super) fn forward_indexed<T: Real>(op: &MaxPool2d, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let x = launch.input::<T>(0)?;
    let [n, c, h, w] = launch.input_dims(0);
    let [.., oh, ow] = launch.output_dims(0);
    let (y, indices) = (launch.output::<T>(0)?, launch.byte_output(1)?);
    let (window, plane) = (&op.window, (oh * ow).max(1));
    let samples = y.into_parts(n).into_par_iter().zip(indices.into_parts(n)).enumerate();
    samples.for_each(|(sample, (y, indices))| {
        let planes = y.chunks_exact_mut(plane).zip(indices.chunks_exact_mut(plane)).enumerate();
        for (channel, (y, indices)) in planes {
            pool_channel(window, x.part(sample * c + channel, n * c), [h, w], y, indices, ow);
        }
    });
    Ok(())
}

/// One channel of a sample, and the places of its maxima.
pub(in super::super) fn pool_channel<T: Real>(
    window: &Window,
    x: &[T],
    [h, w]: [usize; 2],
    y: &mut [T],
    indices: &mut [u8],
    ow: usize,
) {
    if is_two_by_two(window) {
        vectorised(|| halve(x, w, y, indices, ow));
        return;
    }
    let rows = y.chunks_exact_mut(ow).zip(indices.chunks_exact_mut(ow)).enumerate();
    for (i, (y, indices)) in rows {
        for (j, (y, index)) in y.iter_mut().zip(indices).enumerate() {
            let at = largest(x, w, taps(window, 0, i, h), taps(window, 1, j, w), window.dilation);
            *y = at.map_or(T::LOWEST, |at| x[at]);
            *index = at.map_or(NO_PLACE, |at| place(window, [i, j], [at / w, at % w]));
        }
    }
}

/// (indices, dY) → dX.
pub(in super::super) fn grad_indexed<T: Real>(op: &MaxPool2d, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let (indices, dy) = (launch.bytes(0)?, launch.input::<T>(1)?);
    let sizes = [launch.input_dims(1), launch.output_dims(0)];
    scatter(&op.window, sizes, indices, dy, |_, _| |_| true, launch.output::<T>(0)?);
    Ok(())
}

/// (indices, Y, dY) → dZ, dbias: the gradient that goes through the ReLU before the pool, whose maxima are above 0 where Y is.
pub(in super::super) fn grad_relu_bias<T: Real>(op: &MaxPool2d, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let (indices, y, dy) = (launch.bytes(0)?, launch.input::<T>(1)?, launch.input::<T>(2)?);
    let sizes = [launch.input_dims(2), launch.output_dims(0)];
    let (mut dz, dbias) = (launch.output::<T>(0)?, launch.output::<T>(1)?);
    let opens = |part, parts| {
        let y = y.part(part, parts);
        move |window: usize| passes(y[window])
    };
    scatter(&op.window, sizes, indices, dy, opens, dz.reborrow());
    let [n, c, ..] = sizes[1];
    bias::sums(dz.as_view(), dbias, n, c);
    Ok(())
}

/// Adds each window's gradient, where the gate of its channel lets it through, to the pixel of its place.
pub(in super::super) fn scatter<'a, T: Real, G: Fn(usize) -> bool>(
    window: &Window,
    [[n, c, _, ow], [_, _, h, w]]: [[usize; 4]; 2],
    indices: View<'a, u8>,
    dy: View<'a, T>,
    opens: impl Fn(usize, usize) -> G + Sync,
    dx: ViewMut<'a, T>,
) {
    let steps = steps(window, w);
    dx.into_parts(n).into_par_iter().enumerate().for_each(|(sample, dx)| {
        dx.fill(T::ZERO);
        for (channel, dx) in dx.chunks_exact_mut((h * w).max(1)).enumerate() {
            let part = sample * c + channel;
            let (indices, dy, opens) = (indices.part(part, n * c), dy.part(part, n * c), opens(part, n * c));
            for (i, (indices, dy)) in indices.chunks_exact(ow).zip(dy.chunks_exact(ow)).enumerate() {
                let row = start(window, 0, i) * w as isize;
                for (j, (&index, &dy)) in indices.iter().zip(dy).enumerate() {
                    if index != NO_PLACE && opens(i * ow + j) {
                        dx[(row + start(window, 1, j) + steps[usize::from(index)]) as usize] += dy;
                    }
                }
            }
        }
    });
}

/// Where a window begins along an axis; below 0 in the padding.
#[inline(always)]
fn start(window: &Window, axis: usize, index: usize) -> isize {
    index as isize * window.stride[axis] as isize - window.padding[axis] as isize
}

/// Pixels from a window's first tap to each of its taps, in a plane of this width.
fn steps(window: &Window, width: usize) -> Vec<isize> {
    let [rows, columns] = window.kernel;
    let step = |a: u64, b: u64| a * window.dilation[0] * width as u64 + b * window.dilation[1];
    (0..rows).flat_map(|a| (0..columns).map(move |b| step(a, b) as isize)).collect()
}

/// The tap of window (i, j) that a pixel is.
fn place(window: &Window, at: [usize; 2], pixel: [usize; 2]) -> u8 {
    let tap = |axis: usize| (pixel[axis] as isize - start(window, axis, at[axis])) as u64 / window.dilation[axis];
    (tap(0) * window.kernel[1] + tap(1)) as u8
}

/// One channel through 2×2 windows.
#[inline(always)]
fn halve<T: Real>(x: &[T], width: usize, y: &mut [T], indices: &mut [u8], out: usize) {
    let rows = x.chunks_exact(2 * width).zip(y.chunks_exact_mut(out).zip(indices.chunks_exact_mut(out)));
    for (pair, (y, indices)) in rows {
        let (top, bottom) = pair.split_at(width);
        let windows = top.chunks_exact(2).zip(bottom.chunks_exact(2));
        for ((y, index), (top, bottom)) in y.iter_mut().zip(indices).zip(windows) {
            let (right_above, right_below) = (beats(top[1], top[0]), beats(bottom[1], bottom[0]));
            let above = if right_above { top[1] } else { top[0] };
            let below = if right_below { bottom[1] } else { bottom[0] };
            let below_wins = beats(below, above);
            *y = if below_wins { below } else { above };
            *index = if below_wins { 2 + u8::from(right_below) } else { u8::from(right_above) };
        }
    }
}
