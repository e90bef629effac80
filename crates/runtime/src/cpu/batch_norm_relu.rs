//! Batch normalisation and ReLU in one pass. The bits are those of the two ops one after the other.

use super::batch_norm::{Coefficients, Gradient, forward_then};
use super::launch::Launch;
use super::operand::Source;
use super::real::Real;
use super::relu::{passes, rectified};
use crate::{DeviceError, View, ViewMut};
use rayon::prelude::*;
use vdnn_graph::op::BatchNorm;

/// (X, mean, variance, gamma, beta) → Y, also in place.
pub(super) fn forward<T: Real>(op: &BatchNorm, launch: Launch<'_>) -> Result<(), DeviceError> {
    forward_then::<T>(op, launch, rectified)
}

/// (X, dY, mean, variance, gamma, beta) → dX, dgamma, dbeta; dX also over dY. dX first holds ReLU's dX, then batch norm's.
pub(super) fn grad<T: Real>(op: &BatchNorm, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let coefficients = Coefficients::of(op, &launch, 2)?;
    let (x, dy) = (launch.input::<T>(0)?, launch.source::<T>(1, 0)?);
    let gradient = Gradient::of(op, &launch, 2)?;
    let [n, c, ..] = launch.input_dims(0);
    let mut dx = launch.output::<T>(0)?;
    through(&coefficients, [n, c], x, dy, dx.reborrow());
    gradient.write(None, [dx, launch.output::<T>(1)?, launch.output::<T>(2)?]);
    Ok(())
}

/// dY where the normalised X passes the ReLU, else 0.
pub(super) fn through<T: Real>(
    coefficients: &Coefficients<'_, T>,
    [n, c]: [usize; 2],
    x: View<'_, T>,
    dy: Source<'_, T>,
    dx: ViewMut<'_, T>,
) {
    dx.into_parts(n).into_par_iter().enumerate().for_each(|(sample, dx)| {
        if let Some(dy) = &dy {
            dx.copy_from_slice(dy.part(sample, n));
        }
        let plane = dx.len() / c.max(1);
        for (channel, dx) in dx.chunks_exact_mut(plane.max(1)).enumerate() {
            let (affine, x) = (coefficients.channel(channel), x.part(sample * c + channel, n * c));
            let each = dx.iter_mut().zip(x);
            each.for_each(|(dx, &x)| *dx = if passes(affine.apply(x)) { *dx } else { T::ZERO });
        }
    });
}
