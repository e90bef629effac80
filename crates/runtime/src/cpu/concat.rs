//! Concatenation along the channels or the batch and its backward. Operands that already lie in place are skipped.

use super::launch::Launch;
use super::operand::Output;
use super::real::Real;
use crate::DeviceError;
use std::ops::Range;
use vdnn_graph::op::Axis;
use vdnn_tensor::TensorType;

/// Where a part lies in the whole.
struct Place {
    /// The sample of the whole that is the part's first.
    first: usize,
    samples: usize,
    /// Elements of each of those samples.
    elements: Range<usize>,
}

/// The places of parts that follow each other along an axis.
fn places(parts: &[TensorType], axis: Axis) -> impl Iterator<Item = Place> {
    let (mut sample, mut element) = (0, 0);
    parts.iter().map(move |ty| {
        let (samples, len) = (ty.shape.samples() as usize, ty.shape.elements_per_sample() as usize);
        let place = Place { first: sample, samples, elements: element..element + len };
        match axis {
            Axis::Channels => element += len,
            Axis::Batch => sample += samples,
        }
        place
    })
}

/// (A, B, …) → one after the other.
pub(super) fn forward<T: Real>(mut launch: Launch<'_>, axis: Axis) -> Result<(), DeviceError> {
    let all = launch.output_types[0].shape.samples() as usize;
    let mut y = launch.output::<T>(0)?;
    for (index, Place { first, samples, elements }) in places(launch.input_types, axis).enumerate() {
        if let Some(x) = launch.source::<T>(index, 0)? {
            for sample in 0..samples {
                y.part(first + sample, all)[elements.clone()].copy_from_slice(x.part(sample, samples));
            }
        }
    }
    Ok(())
}

/// (Y) → its parts.
pub(super) fn split<T: Real>(mut launch: Launch<'_>, axis: Axis) -> Result<(), DeviceError> {
    let all = launch.samples();
    for (index, Place { first, samples, elements }) in places(launch.output_types, axis).enumerate() {
        if !matches!(launch.outputs[index], Output::InPlace(_)) {
            let y = launch.input::<T>(0)?;
            let mut part = launch.output::<T>(index)?;
            for sample in 0..samples {
                part.part(sample, samples).copy_from_slice(&y.part(first + sample, all)[elements.clone()]);
            }
        }
    }
    Ok(())
}
