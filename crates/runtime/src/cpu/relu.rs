//! ReLU: `Y = max(X, 0)`; `dX = dY` where Y > 0. Not-a-numbers pass through, so that a diverged run shows.
//!
//! With a mask, forward writes a bit an element beside Y, and the gradient reads it in place of Y. A sample's mask begins
//! with a byte of its own, and a byte is written as a whole, so no two threads share one.

use super::launch::Launch;
use super::operand::Source;
use super::real::Real;
use super::stretch::{map, zip};
use crate::{DeviceError, View, ViewMut};
use rayon::prelude::*;

/// Bytes of a mask that are one piece of work.
const PIECE: usize = 1 << 11;

/// (X) → Y, also in place.
pub(super) fn forward<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let x = launch.source::<T>(0, 0)?;
    let y = launch.output::<T>(0)?;
    map(launch.samples(), x, y, rectified);
    Ok(())
}

/// (Y, dY) → dX, also over dY.
pub(super) fn grad<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let y = launch.input::<T>(0)?;
    let dy = launch.source::<T>(1, 0)?;
    let dx = launch.output::<T>(0)?;
    zip(launch.samples(), y, dy, dx, |y, dy| if passes(y) { dy } else { T::ZERO });
    Ok(())
}

/// (X) → Y, mask, also with Y over X.
pub(super) fn forward_masked<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let (x, samples) = (launch.source::<T>(0, 0)?, launch.samples());
    let (y, mask) = (launch.output::<T>(0)?, launch.byte_output(1)?);
    let rows = y.into_parts(samples).into_par_iter().zip(mask.into_parts(samples)).enumerate();
    rows.for_each(|(sample, (y, mask))| {
        let x = x.as_ref().map(|x| x.part(sample, samples));
        let pieces = y.par_chunks_mut(8 * PIECE).zip(mask.par_chunks_mut(PIECE)).enumerate();
        pieces.for_each(|(index, (y, mask))| {
            match x {
                Some(x) => y.iter_mut().zip(&x[8 * PIECE * index..]).for_each(|(y, &x)| *y = rectified(x)),
                None => y.iter_mut().for_each(|y| *y = rectified(*y)),
            }
            write_mask(y, mask);
        });
    });
    Ok(())
}

/// A bit for each element of Y, from its first on; bits beyond the last are 0.
pub(super) fn write_mask<T: Real>(y: &[T], mask: &mut [u8]) {
    for (y, byte) in y.chunks(8).zip(mask) {
        *byte = y.iter().rev().fold(0, |bits, &y| bits << 1 | u8::from(passes(y)));
    }
}

/// (mask, dY) → dX, also over dY.
pub(super) fn grad_masked<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let (mask, dy) = (launch.bytes(0)?, launch.source::<T>(1, 0)?);
    let samples = launch.samples();
    let dx = launch.output::<T>(0)?;
    through_mask(samples, mask, dy, dx);
    Ok(())
}

/// dX from dY, which is what dX holds where it is absent.
pub(super) fn through_mask<T: Real>(samples: usize, mask: View<'_, u8>, dy: Source<'_, T>, dx: ViewMut<'_, T>) {
    dx.into_parts(samples).into_par_iter().enumerate().for_each(|(sample, dx)| {
        let (mask, dy) = (mask.part(sample, samples), dy.as_ref().map(|dy| dy.part(sample, samples)));
        let pieces = dx.par_chunks_mut(8 * PIECE).zip(mask.par_chunks(PIECE)).enumerate();
        pieces.for_each(|(index, (dx, mask))| {
            if let Some(dy) = dy {
                dx.copy_from_slice(&dy[8 * PIECE * index..][..dx.len()]);
            }
            for (dx, &bits) in dx.chunks_mut(8).zip(mask) {
                let each = dx.iter_mut().enumerate();
                each.for_each(|(bit, dx)| *dx = if bits >> bit & 1 == 1 { *dx } else { T::ZERO });
            }
        });
    });
}

#[inline(always)]
pub(super) fn rectified<T: Real>(x: T) -> T {
    if x < T::ZERO { T::ZERO } else { x }
}

/// True where the gradient goes through: above 0, and where Y is no number.
#[inline(always)]
pub(super) fn passes<T: Real>(y: T) -> bool {
    y > T::ZERO || y.is_nan()
}
