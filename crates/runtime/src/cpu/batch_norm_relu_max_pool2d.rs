//! Batch norm, ReLU and max pooling in one pass, the map between a channel of a sample at a time. The bits are those of the ops
//! one after the other.

use super::batch_norm::{Coefficients, Gradient};
use super::batch_norm_relu::through;
use super::launch::Launch;
use super::max_pool2d::{pool_channel, scatter};
use super::real::Real;
use super::relu::rectified;
use crate::DeviceError;
use rayon::prelude::*;
use vdnn_graph::op::BatchNormReluMaxPool2d;

/// (X, mean, variance, gamma, beta) → Y, indices.
pub(super) fn forward<T: Real>(op: &BatchNormReluMaxPool2d, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let coefficients = Coefficients::of(&op.norm, &launch, 1)?;
    let x = launch.input::<T>(0)?;
    let [n, c, h, w] = launch.input_dims(0);
    let [.., oh, ow] = launch.output_dims(0);
    let (y, indices) = (launch.output::<T>(0)?, launch.byte_output(1)?);
    let plane = (oh * ow).max(1);
    let samples = y.into_parts(n).into_par_iter().zip(indices.into_parts(n)).enumerate();
    samples.for_each_init(Vec::new, |between, (sample, (y, indices))| {
        let planes = y.chunks_exact_mut(plane).zip(indices.chunks_exact_mut(plane)).enumerate();
        for (channel, (y, indices)) in planes {
            let (affine, x) = (coefficients.channel(channel), x.part(sample * c + channel, n * c));
            between.clear();
            between.extend(x.iter().map(|&x| rectified(affine.apply(x))));
            pool_channel(&op.pool.window, between, [h, w], y, indices, ow);
        }
    });
    Ok(())
}

/// (X, indices, dY, mean, variance, gamma, beta) → dX, dgamma, dbeta. dX first holds the pool's dX, then ReLU's, then batch norm's.
pub(super) fn grad<T: Real>(op: &BatchNormReluMaxPool2d, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let (coefficients, gradient) = (Coefficients::of(&op.norm, &launch, 3)?, Gradient::of(&op.norm, &launch, 3)?);
    let (x, indices, dy) = (launch.input::<T>(0)?, launch.bytes(1)?, launch.input::<T>(2)?);
    let sizes = [launch.input_dims(2), launch.output_dims(0)];
    let mut dx = launch.output::<T>(0)?;
    scatter(&op.pool.window, sizes, indices, dy, |_, _| |_| true, dx.reborrow());
    let [n, c, ..] = sizes[1];
    through(&coefficients, [n, c], x, None, dx.reborrow());
    gradient.write(None, [dx, launch.output::<T>(1)?, launch.output::<T>(2)?]);
    Ok(())
}
