//! Two batch norms, their sum and ReLU in one pass. The bits are those of the ops one after the other.

use super::batch_norm::{Coefficients, Gradient};
use super::launch::Launch;
use super::operand::Input;
use super::real::Real;
use super::relu::{rectified, through_mask, write_mask};
use super::stretch::zip;
use crate::DeviceError;
use rayon::prelude::*;
use vdnn_graph::op::{BatchNorm, BatchNormPair};

/// (A, mean, variance, gamma, beta, B, mean, variance, gamma, beta) → Y, mask, with Y also over B.
pub(super) fn forward<T: Real>(op: &BatchNormPair, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let [of_a, of_b] = norms(op);
    let (of_a, of_b) = (Coefficients::of(&of_a, &launch, 1)?, Coefficients::of(&of_b, &launch, 6)?);
    let (a, b) = (launch.input::<T>(0)?, launch.source::<T>(5, 0)?);
    let [n, c, ..] = launch.input_dims(0);
    let (y, mask) = (launch.output::<T>(0)?, launch.byte_output(1)?);
    let samples = y.into_parts(n).into_par_iter().zip(mask.into_parts(n)).enumerate();
    samples.for_each(|(sample, (y, mask))| {
        let plane = y.len() / c.max(1);
        for (channel, y) in y.chunks_exact_mut(plane.max(1)).enumerate() {
            let (line_a, line_b) = (of_a.channel(channel), of_b.channel(channel));
            let (a, b) = (a.part(sample * c + channel, n * c), b.map(|b| b.part(sample * c + channel, n * c)));
            for (i, y) in y.iter_mut().enumerate() {
                *y = rectified(line_a.apply(a[i]) + line_b.apply(b.map_or(*y, |b| b[i])));
            }
        }
        write_mask(y, mask);
    });
    Ok(())
}

/// (A, dY, mask, mean, variance, gamma, B, mean, variance, gamma, dY'?) → dA, dgamma, dbeta, dB, dgamma, dbeta, with dA or dB also
/// over dY and dA over dY'. dB first holds ReLU's dX, from which both norms' gradients follow; nothing reads dY or dY' after that.
pub(super) fn grad<T: Real>(op: &BatchNormPair, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let [of_a, of_b] = norms(op);
    let (of_a, of_b) = (Gradient::of(&of_a, &launch, 3)?, Gradient::about(&of_b, &launch, 6, 7)?);
    let (samples, mask) = (launch.samples(), launch.bytes(2)?);
    let [dy_under_da, second_under_da] = [1, 10].map(|at| matches!(launch.inputs.get(at), Some(Input::InPlace(0))));
    let has_second = launch.inputs.len() > 10;
    let dy = if dy_under_da { None } else { launch.source::<T>(1, 3)? };
    let second = if has_second && !second_under_da { Some(launch.input::<T>(10)?) } else { None };
    let [da, mut db] = [launch.output::<T>(0)?, launch.output::<T>(3)?];
    let dy = if dy_under_da { Some(da.as_view()) } else { dy };
    if has_second {
        let second = second.unwrap_or(da.as_view());
        zip(samples, second, dy, db.reborrow(), |second, dy| dy + second);
        through_mask(samples, mask, None, db.reborrow());
    } else {
        through_mask(samples, mask, dy, db.reborrow());
    }
    of_a.write(Some(db.as_view()), [da, launch.output::<T>(1)?, launch.output::<T>(2)?]);
    of_b.write(None, [db, launch.output::<T>(4)?, launch.output::<T>(5)?]);
    Ok(())
}

fn norms(op: &BatchNormPair) -> [BatchNorm; 2] {
    op.eps.map(|eps| BatchNorm { eps })
}
