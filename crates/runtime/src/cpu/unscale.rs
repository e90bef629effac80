//! Gradients divided by the loss's scale, in place where the schedule has it so, and whether all of them were finite.

use super::launch::Launch;
use super::real::Real;
use super::stretch::visit;
use crate::DeviceError;
use std::sync::atomic::{AtomicBool, Ordering};
use vdnn_graph::op::Unscale;

/// (scale, guard, dW, …) → guard', dW / scale, …
pub(super) fn forward<T: Real>(op: &Unscale, mut launch: Launch<'_>) -> Result<(), DeviceError> {
    // Exact for the powers of two that the scale is.
    let inverse = T::of(1.0) / launch.scalar::<T>(0)?;
    let guard = launch.scalar::<T>(1)?;
    let finite = AtomicBool::new(true);
    for index in 1..=op.gradients as usize {
        let (x, y) = (launch.source::<T>(index + 1, index)?, launch.output::<T>(index)?);
        let samples = launch.output_types[index].shape.samples() as usize;
        visit(samples, x, y, |_, x, y| {
            if let Some(x) = x {
                y.copy_from_slice(x);
            }
            // Any order gives the same answer.
            if !y.iter().all(|y| y.wide().is_finite()) {
                finite.store(false, Ordering::Relaxed);
            }
            y.iter_mut().for_each(|y| *y = *y * inverse);
        });
    }
    let found = if finite.into_inner() { guard } else { T::of(f64::NAN) };
    launch.output::<T>(0)?.part(0, 1)[0] = found;
    Ok(())
}
