//! Number of rows whose largest logit (the first on ties) is the label's.

use super::launch::Launch;
use super::real::Real;
use crate::DeviceError;

/// (logits, labels) → count.
pub(super) fn forward<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let logits = launch.input::<T>(0)?;
    let labels = launch.labels(1)?;
    let n = launch.samples();
    let correct = (0..n).filter(|&row| first_largest(logits.part(row, n)) as i64 == i64::from(labels.part(row, n)[0]));
    let count = correct.count();
    launch.output::<T>(0)?.part(0, 1)[0] = T::of(count as f64);
    Ok(())
}

fn first_largest<T: Real>(row: &[T]) -> usize {
    let mut best = 0;
    for (index, value) in row.iter().enumerate() {
        if *value > row[best] {
            best = index;
        }
    }
    best
}
