//! Concatenation along the channels or the batch and its backward. Operands that already lie in place are skipped.

use super::launch::Launch;
use super::operand::Output;
use super::real::Real;
use crate::{DeviceError, View, ViewMut};
use std::ops::Range;
use vdnn_graph::op::Axis;
use vdnn_tensor::{Element, TensorType};

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
    for (index, place) in places(launch.output_types, axis).enumerate() {
        if !matches!(launch.outputs[index], Output::InPlace(_)) {
            let y = launch.input::<T>(0)?;
            place.take(y, all, launch.output::<T>(index)?);
        }
    }
    Ok(())
}

/// The same of images that come as bytes.
pub(super) fn split_bytes(mut launch: Launch<'_>, axis: Axis) -> Result<(), DeviceError> {
    let all = launch.samples();
    for (index, place) in places(launch.output_types, axis).enumerate() {
        if !matches!(launch.outputs[index], Output::InPlace(_)) {
            let y = launch.bytes(0)?;
            place.take(y, all, launch.byte_output(index)?);
        }
    }
    Ok(())
}

impl Place {
    /// Copies a part from its place in a whole of so many samples.
    fn take<T: Element>(self, whole: View<'_, T>, all: usize, mut part: ViewMut<'_, T>) {
        let Place { first, samples, elements } = self;
        for sample in 0..samples {
            part.part(sample, samples).copy_from_slice(&whole.part(first + sample, all)[elements.clone()]);
        }
    }
}
