//! Matrix products against plain loops in f64.

use serde_json::json;
use vdnn_cuda::CudaError;
use vdnn_cuda::blas::{BEST_WORKSPACE, Blas, LEAST_WORKSPACE, Matrix, Product};
use vdnn_cuda::cudnn::Precision;
use vdnn_cuda::memory::DeviceArena;
use vdnn_tensor::DType;

use crate::{Bench, download, numbers, relative_error, upload};

/// Bytes kept for each of A, B and C.
const SLOT: u64 = 192 << 20;

pub fn run(bench: &mut Bench) -> Result<(), CudaError> {
    let free = bench.free();
    let blas = Blas::new(bench.libraries.cublas, &bench.streams.compute)?;
    bench.report("cuBLAS handle", true, json!({"device_bytes": free.saturating_sub(bench.free())}));
    let arena = DeviceArena::new(&bench.context, 3 * SLOT + BEST_WORKSPACE)?;
    for workspace in [LEAST_WORKSPACE, BEST_WORKSPACE] {
        // SAFETY: the tail of the arena is nothing but workspace.
        unsafe { blas.set_workspace(arena.address(3 * SLOT), workspace)? };
        for precision in [Precision::Fp32, Precision::Tf32] {
            for [m, n, k] in [[64, 1000, 512], [7, 5, 3], [128, 4096, 9216], [1, 10, 4096]] {
                for (ta, tb) in [(false, true), (true, false), (false, false), (true, true)] {
                    for beta in [0.0, 1.0] {
                        one(bench, &blas, &arena, [m, n, k], (ta, tb), beta, (precision, workspace))?;
                    }
                }
            }
        }
    }
    // SAFETY: refused before it is used.
    let small = unsafe { blas.set_workspace(arena.address(0), 100) };
    bench.report("small workspace", matches!(small, Err(CudaError::Workspace { .. })), json!({}));
    Ok(())
}

fn one(
    bench: &mut Bench,
    blas: &Blas,
    arena: &DeviceArena,
    [m, n, k]: [u64; 3],
    (ta, tb): (bool, bool),
    beta: f32,
    (precision, workspace): (Precision, u64),
) -> Result<(), CudaError> {
    let stream = bench.streams.compute.clone();
    // Rows are three elements longer than needed, so a wrong stride shows.
    let (a_rows, a_columns) = if ta { (k, m) } else { (m, k) };
    let (b_rows, b_columns) = if tb { (n, k) } else { (k, n) };
    let (lda, ldb, ldc) = (a_columns + 3, b_columns + 3, n + 3);
    let a = numbers(1, (a_rows * lda) as usize);
    let b = numbers(2, (b_rows * ldb) as usize);
    let c = numbers(3, (m * ldc) as usize);
    for (slot, values) in [&a, &b, &c].into_iter().enumerate() {
        upload(arena, &stream, slot as u64 * SLOT, values)?;
    }
    let matrix =
        |slot: u64, row_stride, transposed| Matrix { address: arena.address(slot * SLOT), row_stride, transposed };
    let product = Product {
        m,
        n,
        k,
        alpha: 0.5,
        a: matrix(0, lda, ta),
        b: matrix(1, ldb, tb),
        beta,
        c: arena.address(2 * SLOT),
        c_row_stride: ldc,
        dtype: DType::F32,
        precision,
    };
    // SAFETY: the slots hold the matrices.
    unsafe { blas.gemm(&product)? };
    let first = download(arena, &stream, 2 * SLOT, c.len())?;
    upload(arena, &stream, 2 * SLOT, &c)?;
    // SAFETY: as above.
    unsafe { blas.gemm(&product)? };
    let second = download(arena, &stream, 2 * SLOT, c.len())?;
    let (pairs, gaps_kept) = compared(&product, [&a, &b, &c], &first);
    let error = relative_error(&pairs);
    let limit = if precision == Precision::Fp32 { 1e-5 } else { 2e-3 };
    let same = first == second;
    let facts = json!({
        "m": m, "n": n, "k": k, "ta": ta, "tb": tb, "beta": beta, "precision": format!("{precision:?}"),
        "workspace": workspace, "relative_error": error, "same_bits_twice": same, "gaps_kept": gaps_kept,
    });
    bench.report("gemm", error <= limit && same && gaps_kept, facts);
    Ok(())
}

/// Some 500 elements of C, spread over it, with what they should be; and whether the ends of their rows were kept.
fn compared(p: &Product, [a, b, c]: [&[f32]; 3], result: &[f32]) -> (Vec<(f32, f64)>, bool) {
    let at = |values: &[f32], matrix: &Matrix, row: u64, column: u64| -> f64 {
        let (row, column) = if matrix.transposed { (column, row) } else { (row, column) };
        f64::from(values[(row * matrix.row_stride + column) as usize])
    };
    let (mut pairs, mut gaps_kept) = (Vec::new(), true);
    let step = (p.m * p.n / 500).max(1);
    for element in (0..p.m * p.n).step_by(step as usize) {
        let (i, j) = (element / p.n, element % p.n);
        let sum: f64 = (0..p.k).map(|q| at(a, &p.a, i, q) * at(b, &p.b, q, j)).sum();
        let place = (i * p.c_row_stride + j) as usize;
        let end = (i * p.c_row_stride + p.n) as usize;
        pairs.push((result[place], f64::from(p.alpha) * sum + f64::from(p.beta) * f64::from(c[place])));
        gaps_kept &= result[end] == c[end];
    }
    (pairs, gaps_kept)
}
