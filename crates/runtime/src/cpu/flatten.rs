//! Flatten and its backward: nothing when the output is the input's bytes, else a copy.

use super::launch::Launch;
use super::real::Real;
use super::stretch::map;
use crate::DeviceError;

/// (X) → the same elements under another shape.
pub(super) fn copy<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let Some(x) = launch.source::<T>(0, 0)? else {
        return Ok(());
    };
    let y = launch.output::<T>(0)?;
    map(launch.samples(), Some(x), y, |x| x);
    Ok(())
}
