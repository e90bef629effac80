//! `A + B`, also over either.

use super::launch::Launch;
use super::real::Real;
use super::stretch::zip;
use crate::DeviceError;

/// (A, B) → A + B.
pub(super) fn forward<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let (plain, other) = if launch.is_in_place(0) { (1, 0) } else { (0, 1) };
    let a = launch.input::<T>(plain)?;
    let b = launch.source::<T>(other, 0)?;
    let y = launch.output::<T>(0)?;
    zip(launch.samples(), a, b, y, |a, b| a + b);
    Ok(())
}
