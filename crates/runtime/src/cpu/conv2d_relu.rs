//! Convolution, bias and ReLU, and the first part of the backward. The bits are those of the ops one after the other.

use super::launch::Launch;
use super::real::Real;
use super::relu::{passes, rectified};
use super::stretch::{map, zip};
use super::{bias, conv2d};
use crate::DeviceError;
use vdnn_graph::op::Conv2d;

/// (X, W, bias?) → Y = max(X ∗ W + bias, 0).
pub(super) fn forward<T: Real>(op: &Conv2d, launch: Launch<'_>) -> Result<(), DeviceError> {
    let samples = launch.samples();
    let y = conv2d::convolved::<T>(op, launch)?;
    map(samples, None, y, rectified);
    Ok(())
}

/// (Y, dY) → dZ, dbias; dZ also over dY.
pub(super) fn bias_grad<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let y = launch.input::<T>(0)?;
    let dy = launch.source::<T>(1, 0)?;
    let (samples, channels) = (launch.samples(), launch.input_types[0].shape.dim(1) as usize);
    let (mut dz, dbias) = (launch.output::<T>(0)?, launch.output::<T>(1)?);
    zip(samples, y, dy, dz.reborrow(), |y, dy| if passes(y) { dy } else { T::ZERO });
    bias::sums(dz.as_view(), dbias, samples, channels);
    Ok(())
}
