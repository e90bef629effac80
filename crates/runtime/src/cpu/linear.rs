//! The fully connected layer: `Y = X Wᵀ + bias`, and its gradients `dX = dY W`, `dW = dYᵀ X`.
//!
//! `gemm` cuts the output into fixed blocks, one matrix product each; `direct` is the plain loop, summing in `f64`.

use super::choices::Algorithm;
use super::launch::Launch;
use super::matrix::{Matrix, MatrixMut};
use super::real::Real;
use crate::{DeviceError, View, ViewMut};
use rayon::prelude::*;

const GEMM: &str = "gemm";
const DIRECT: &str = "direct";
/// Rows and columns of an output block.
const BLOCK: [usize; 2] = [128, 256];

/// The algorithms of all three ops; neither borrows workspace.
pub(super) fn algorithms() -> Vec<Algorithm> {
    let fast = Algorithm { efficiency: 0.7, ..Algorithm::plain(GEMM) };
    let plain = Algorithm { efficiency: 0.01, ..Algorithm::plain(DIRECT) };
    vec![fast, plain]
}

/// (X `[N, in]`, W `[out, in]`, bias?) → Y `[N, out]`.
pub(super) fn forward<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let (x, w) = (launch.input::<T>(0)?, launch.input::<T>(1)?);
    let bias = (launch.inputs.len() > 2).then(|| launch.input::<T>(2)).transpose()?;
    let [n, out] = [launch.samples(), launch.output_dims(0)[1]];
    let mut y = launch.output::<T>(0)?;
    for sample in 0..n {
        match &bias {
            Some(bias) => {
                y.part(sample, n).iter_mut().enumerate().for_each(|(k, y)| *y = bias.part(k, out)[0]);
            }
            None => y.part(sample, n).fill(T::ZERO),
        }
    }
    let (x, w) = (Matrix::of_samples(x, n), Matrix::of_samples(w, out).transposed());
    multiply(&launch, y, n, x, w)
}

/// (dY, W) → dX.
pub(super) fn data_grad<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let (dy, w) = (launch.input::<T>(0)?, launch.input::<T>(1)?);
    let [n, out] = [launch.samples(), launch.input_dims(0)[1]];
    let dx = zeroed(launch.output::<T>(0)?, n);
    multiply(&launch, dx, n, Matrix::of_samples(dy, n), Matrix::of_samples(w, out))
}

/// (X, dY) → dW; all zero for an empty batch.
pub(super) fn weight_grad<T: Real>(mut launch: Launch<'_>) -> Result<(), DeviceError> {
    let (x, dy): (View<'_, T>, View<'_, T>) = (launch.input(0)?, launch.input(1)?);
    let [n, out] = [launch.samples(), launch.output_dims(0)[0]];
    let dw = zeroed(launch.output::<T>(0)?, out);
    if n == 0 {
        return Ok(());
    }
    multiply(&launch, dw, out, Matrix::of_samples(dy, n).transposed(), Matrix::of_samples(x, n))
}

fn zeroed<T: Real>(mut view: ViewMut<'_, T>, rows: usize) -> ViewMut<'_, T> {
    (0..rows).for_each(|row| view.part(row, rows).fill(T::ZERO));
    view
}

/// `c += a · b`.
fn multiply<T: Real>(
    launch: &Launch<'_>,
    c: ViewMut<'_, T>,
    rows: usize,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
) -> Result<(), DeviceError> {
    match launch.algorithm {
        GEMM => {
            let blocks = MatrixMut::of_samples(c, rows).blocks(BLOCK[0], BLOCK[1]);
            blocks.into_par_iter().for_each(|block| block.product(a, b, true));
        }
        DIRECT => c.into_parts(rows).into_par_iter().enumerate().for_each(|(i, row)| {
            for (j, c) in row.iter_mut().enumerate() {
                *c += T::of(a.dot(i, b, j));
            }
        }),
        _ => return Err(launch.refuse(format!("expected {GEMM} or {DIRECT}"))),
    }
    Ok(())
}
