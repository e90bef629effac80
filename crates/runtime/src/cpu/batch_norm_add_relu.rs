//! Batch normalisation, a residual and ReLU in one pass. The bits are those of the three ops one after the other.

use super::batch_norm::{Coefficients, Gradient};
use super::launch::Launch;
use super::operand::Input;
use super::real::Real;
use super::relu::{rectified, through_mask, write_mask};
use super::stretch::zip;
use crate::DeviceError;
use rayon::prelude::*;
use vdnn_graph::op::BatchNorm;

/// (X, mean, variance, gamma, beta, R) → Y, mask, with Y also over X or R.
pub(super) fn forward<T: Real>(op: &BatchNorm, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let coefficients = Coefficients::of(op, &launch, 1)?;
    let (x, residual) = (launch.source::<T>(0, 0)?, launch.source::<T>(5, 0)?);
    let [n, c, ..] = launch.input_dims(0);
    let (y, mask) = (launch.output::<T>(0)?, launch.byte_output(1)?);
    let samples = y.into_parts(n).into_par_iter().zip(mask.into_parts(n)).enumerate();
    samples.for_each(|(sample, (y, mask))| {
        let plane = y.len() / c.max(1);
        for (channel, y) in y.chunks_exact_mut(plane.max(1)).enumerate() {
            let affine = coefficients.channel(channel);
            let [x, residual] = [x, residual].map(|source| source.map(|view| view.part(sample * c + channel, n * c)));
            for (i, y) in y.iter_mut().enumerate() {
                let (x, r) = (x.map_or(*y, |x| x[i]), residual.map_or(*y, |r| r[i]));
                *y = rectified(affine.apply(x) + r);
            }
        }
        write_mask(y, mask);
    });
    Ok(())
}

/// (X, dY, mask, mean, variance, gamma, dY'?) → dX, dgamma, dbeta, dR, with dR or dX also over dY and dX over dY'. dR is ReLU's
/// dX, from which batch norm's follows; both gradients have been read before dX is written.
pub(super) fn grad<T: Real>(op: &BatchNorm, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let gradient = Gradient::of(op, &launch, 3)?;
    let (samples, mask) = (launch.samples(), launch.bytes(2)?);
    let [dy_under_dx, second_under_dx] = [1, 6].map(|at| matches!(launch.inputs.get(at), Some(Input::InPlace(0))));
    let has_second = launch.inputs.len() > 6;
    let dy = if dy_under_dx { None } else { launch.source::<T>(1, 3)? };
    let second = if has_second && !second_under_dx { Some(launch.input::<T>(6)?) } else { None };
    let [dx, mut residual] = [launch.output::<T>(0)?, launch.output::<T>(3)?];
    let dy = if dy_under_dx { Some(dx.as_view()) } else { dy };
    if has_second {
        let second = second.unwrap_or(dx.as_view());
        zip(samples, second, dy, residual.reborrow(), |second, dy| dy + second);
        through_mask(samples, mask, None, residual.reborrow());
    } else {
        through_mask(samples, mask, dy, residual.reborrow());
    }
    gradient.write(Some(residual.as_view()), [dx, launch.output::<T>(1)?, launch.output::<T>(2)?]);
    Ok(())
}
