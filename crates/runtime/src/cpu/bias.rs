//! The gradient of a bias: the sum of dY over everything but the channels, in `f64`, samples in order.

use super::launch::Launch;
use super::real::Real;
use super::reduce;
use crate::{DeviceError, View, ViewMut};
use rayon::prelude::*;

/// (dY) → dbias.
pub(super) fn grad<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let dy = launch.input::<T>(0)?;
    let (n, c) = (launch.samples(), launch.input_types[0].shape.dim(1) as usize);
    sums(dy, launch.output::<T>(0)?, n, c);
    Ok(())
}

/// dbias `[C]` from dY, n samples of c channels.
pub(super) fn sums<T: Real>(dy: View<'_, T>, dbias: ViewMut<'_, T>, n: usize, c: usize) {
    dbias.into_parts(c).into_par_iter().enumerate().with_min_len(16).for_each(|(channel, dbias)| {
        let total: f64 = (0..n).map(|sample| reduce::sum(dy.part(sample * c + channel, n * c))).sum();
        dbias[0] = T::of(total);
    });
}
