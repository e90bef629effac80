//! Unfolding: what a window sees becomes channels; and its gradient, which sums over the windows that saw an element.

use super::launch::Launch;
use super::real::Real;
use crate::DeviceError;
use rayon::prelude::*;
use std::ops::Range;
use vdnn_graph::op::{Unfold, UnfoldGrad};

/// (X) → Y.
pub(super) fn forward<T: Real>(op: &Unfold, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let x = launch.input::<T>(0)?;
    let [n, c, h, w] = launch.input_dims(0);
    let [_, channels, _, ow] = launch.output_dims(0);
    let y = launch.output::<T>(0)?;
    y.into_parts(n * channels).into_par_iter().enumerate().for_each(|(part, y)| {
        let (sample, channel) = (part / channels.max(1), part % channels.max(1));
        let tap = Tap::of(op, channel);
        let x = x.part(sample * c + tap.channel, n * c);
        for (i, y) in y.chunks_exact_mut(ow.max(1)).enumerate() {
            y.fill(T::ZERO);
            let Some(row) = tap.place(op, 0, i).filter(|&row| row < h) else { continue };
            let columns = tap.inside(op, 1, ow, w);
            let Some(first) = tap.place(op, 1, columns.start) else { continue };
            let from = x[row * w..][..w].iter().skip(first).step_by(op.stride[1] as usize);
            y[columns].iter_mut().zip(from).for_each(|(y, &x)| *y = x);
        }
    });
    Ok(())
}

/// (dY) → dX: windows in Y's order, taps in the channels' order.
pub(super) fn grad<T: Real>(op: &UnfoldGrad, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let (dy, op) = (launch.input::<T>(0)?, &op.unfold);
    let [n, channels, oh, ow] = launch.input_dims(0);
    let [_, c, h, w] = launch.output_dims(0);
    let dx = launch.output::<T>(0)?;
    let window = (op.window[0] * op.window[1]) as usize;
    dx.into_parts(n * c).into_par_iter().enumerate().for_each(|(part, dx)| {
        dx.fill(T::ZERO);
        let (sample, channel) = (part / c.max(1), part % c.max(1));
        for of in channel * window..(channel + 1) * window {
            let tap = Tap::of(op, of);
            let dy = dy.part(sample * channels + of, n * channels);
            for i in tap.inside(op, 0, oh, h) {
                for j in tap.inside(op, 1, ow, w) {
                    let (Some(row), Some(column)) = (tap.place(op, 0, i), tap.place(op, 1, j)) else { continue };
                    dx[row * w + column] += dy[i * ow + j];
                }
            }
        }
    });
    Ok(())
}

/// The channel of X that a channel of Y reads, and from which place of the window.
struct Tap {
    channel: usize,
    at: [usize; 2],
}

impl Tap {
    fn of(op: &Unfold, channel: usize) -> Self {
        let [rows, columns] = op.window.map(|size| size as usize);
        Tap { channel: channel / (rows * columns), at: [channel / columns % rows, channel % columns] }
    }

    /// What output `index` reads along an axis; `None` before X's beginning.
    fn place(&self, op: &Unfold, axis: usize, index: usize) -> Option<usize> {
        (index * op.stride[axis] as usize + self.at[axis]).checked_sub(op.padding[axis] as usize)
    }

    /// Outputs that read inside X along an axis.
    fn inside(&self, op: &Unfold, axis: usize, outputs: usize, size: usize) -> Range<usize> {
        let (stride, padding) = (op.stride[axis] as usize, op.padding[axis] as usize);
        let first = padding.saturating_sub(self.at[axis]).div_ceil(stride).min(outputs);
        let end = (size + padding).saturating_sub(self.at[axis]).div_ceil(stride).min(outputs);
        first..end.max(first)
    }
}
