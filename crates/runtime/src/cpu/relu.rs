//! ReLU: `Y = max(X, 0)`; `dX = dY` where Y > 0. Not-a-numbers pass through, so that a diverged run shows.

use super::launch::Launch;
use super::real::Real;
use super::stretch::{map, zip};
use crate::DeviceError;

/// (X) → Y, also in place.
pub(super) fn forward<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let x = launch.source::<T>(0, 0)?;
    let y = launch.output::<T>(0)?;
    map(launch.samples(), x, y, |x| if x < T::ZERO { T::ZERO } else { x });
    Ok(())
}

/// (Y, dY) → dX, also over dY.
pub(super) fn grad<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let y = launch.input::<T>(0)?;
    let dy = launch.source::<T>(1, 0)?;
    let dx = launch.output::<T>(0)?;
    zip(launch.samples(), y, dy, dx, |y, dy| if y <= T::ZERO { T::ZERO } else { dy });
    Ok(())
}
