//! Images of bytes as numbers, looked up: a channel has 256 of them, each rounded once.

use super::launch::Launch;
use super::real::Real;
use crate::DeviceError;
use rayon::prelude::*;
use vdnn_graph::op::Normalise;

/// (image of bytes `[N, C, H, W]`) → (byte / 255 − mean) / std.
pub(super) fn forward<T: Real>(op: &Normalise, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let (x, samples) = (launch.bytes(0)?, launch.samples());
    let [_, channels, height, width] = launch.input_dims(0);
    let y = launch.output::<T>(0)?;
    if y.is_empty() {
        return Ok(());
    }
    let levels: Vec<[T; 256]> =
        (0..channels).map(|channel| std::array::from_fn(|byte| T::of(op.level(channel, byte as u8)))).collect();
    let plane = height * width;
    y.into_parts(samples).into_par_iter().enumerate().for_each(|(sample, y)| {
        let planes = x.part(sample, samples).chunks(plane).zip(y.chunks_mut(plane)).zip(&levels);
        for ((x, y), levels) in planes {
            y.iter_mut().zip(x).for_each(|(y, &byte)| *y = levels[usize::from(byte)]);
        }
    });
    Ok(())
}
