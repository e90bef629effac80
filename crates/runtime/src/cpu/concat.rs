//! Concatenation along the channels and its backward. Operands that already lie in place are skipped.

use super::launch::Launch;
use super::operand::Output;
use super::real::Real;
use crate::DeviceError;

/// (A, B, …) → their channels one after the other.
pub(super) fn forward<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let samples = launch.samples();
    let mut y = launch.output::<T>(0)?;
    let mut start = 0;
    for index in 0..launch.inputs.len() {
        let len = launch.input_types[index].shape.elements_per_sample() as usize;
        if let Some(x) = launch.source::<T>(index, 0)? {
            for sample in 0..samples {
                y.part(sample, samples)[start..start + len].copy_from_slice(x.part(sample, samples));
            }
        }
        start += len;
    }
    Ok(())
}

/// (Y) → its channels cut into parts.
pub(super) fn split<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let samples = launch.samples();
    let mut start = 0;
    for index in 0..launch.outputs.len() {
        let len = launch.output_types[index].shape.elements_per_sample() as usize;
        if !matches!(launch.outputs[index], Output::InPlace(_)) {
            let y = launch.input::<T>(0)?;
            let mut part = launch.output::<T>(index)?;
            for sample in 0..samples {
                part.part(sample, samples).copy_from_slice(&y.part(sample, samples)[start..start + len]);
            }
        }
        start += len;
    }
    Ok(())
}
