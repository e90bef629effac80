//! Linear layers as cuBLAS's matrix products.

use vdnn_graph::Op;
use vdnn_tensor::{DType, Layout};

use super::site::Site;
use crate::blas::{BEST_WORKSPACE, LEAST_WORKSPACE, Matrix, Product};
use crate::kernels::Operand;

/// cuBLAS with a workspace of one size: another size may mean another kernel, so the size is the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Algorithm {
    pub name: &'static str,
    pub workspace: u64,
}

/// The least workspace.
pub(super) const SMALL: Algorithm = Algorithm { name: "cublas_64k", workspace: LEAST_WORKSPACE };
/// The workspace that cuBLAS recommends.
pub(super) const LARGE: Algorithm = Algorithm { name: "cublas_32m", workspace: BEST_WORKSPACE };

/// The workspace of an algorithm by name.
pub(super) fn workspace_of(name: &str) -> Option<u64> {
    [SMALL, LARGE].iter().find(|algorithm| algorithm.name == name).map(|algorithm| algorithm.workspace)
}

/// A product to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    pub product: Product,
}

impl Found {
    /// True when there is nothing to multiply. The result is then zero where it has elements.
    pub fn is_empty(&self) -> bool {
        [self.product.m, self.product.n, self.product.k].contains(&0)
    }
}

/// The product of a launch; `None` for other ops.
///
/// Y `[N, out]` = X `[N, in]` · Wᵀ, dX = dY · W, dW `[out, in]` = dYᵀ · X.
pub(super) fn of(site: &Site<'_>) -> Option<Result<Found, String>> {
    let (first, second, c) = (site.inputs.first(), site.inputs.get(1), site.outputs.first());
    let (left, right) = match site.op {
        Op::Linear => (matrix(first?, false), matrix(second?, true)),
        Op::LinearDataGrad => (matrix(first?, false), matrix(second?, false)),
        Op::LinearWeightGrad => (matrix(second?, true), matrix(first?, false)),
        _ => return None,
    };
    let c = c?;
    let dtype = c.ty.dtype;
    for operand in [first?, second?, c] {
        let known = matches!(dtype, DType::F32 | DType::F16 | DType::BF16) && operand.ty.dtype == dtype;
        if !known || operand.ty.layout != Layout::default() {
            let found = operand.ty;
            return Some(Err(format!(
                "expected matrices of one type, f32, f16 or bf16, found {found}; use --dtype f32"
            )));
        }
    }
    // The length of the sums: `in` forward, `out` for dX, N for dW; in each case the first input's other extent.
    let k = match site.op {
        Op::LinearWeightGrad => first?.ty.shape.dim(0),
        _ => first?.ty.shape.dim(1),
    };
    let product = Product {
        m: c.ty.shape.dim(0),
        n: c.ty.shape.dim(1),
        k,
        alpha: 1.0,
        a: left,
        b: right,
        beta: 0.0,
        c: c.address,
        c_row_stride: row_stride(c),
        dtype,
        precision: site.precision,
    };
    Some(Ok(Found { product }))
}

fn matrix(operand: &Operand<'_>, transposed: bool) -> Matrix {
    Matrix { address: operand.address, row_stride: row_stride(operand), transposed }
}

fn row_stride(operand: &Operand<'_>) -> u64 {
    if operand.ty.shape.samples() > 1 { operand.row_stride } else { operand.ty.shape.dim(1) }
}

#[cfg(test)]
mod tests {
    use super::super::gpu::Bytes;
    use super::*;
    use crate::cudnn::Precision;
    use vdnn_tensor::TensorType;

    /// The product by plain loops over numbers that are their own addresses.
    fn run(p: &Product, memory: &[f32]) -> Vec<f32> {
        let at = |matrix: &Matrix, row: u64, column: u64| {
            let (row, column) = if matrix.transposed { (column, row) } else { (row, column) };
            memory[(matrix.address / 4 + row * matrix.row_stride + column) as usize]
        };
        let sum = |i: u64, j: u64| (0..p.k).map(|q| at(&p.a, i, q) * at(&p.b, q, j)).sum();
        (0..p.m * p.n).map(|e| sum(e / p.n, e % p.n)).collect()
    }

    fn found(op: &Op, inputs: &[Operand<'_>], output: Operand<'_>) -> Product {
        let (inputs, outputs) = (inputs.to_vec(), vec![output]);
        let precision = Precision::Fp32;
        let site = Site { op, precision, inputs, outputs, algorithm: SMALL.name, workspace: Bytes::default() };
        of(&site).unwrap().unwrap().product
    }

    #[test]
    fn products_are_those_of_a_linear_layer() {
        // X [2, 3] at 0, W [2, 3] at 6, dY [2, 2] at 12.
        let memory: Vec<f32> = vec![1., 2., 3., 4., 5., 6., 1., 0., 2., 0., 3., 1., 1., 2., 3., 4.];
        let (x, y) = (TensorType::new([2, 3], DType::F32), TensorType::new([2, 2], DType::F32));
        let at = |ty, element: u64| Operand::contiguous(ty, element * 4);
        let forward = found(&Op::Linear, &[at(&x, 0), at(&x, 6)], at(&y, 0));
        assert_eq!(run(&forward, &memory), [7., 9., 16., 21.]);
        let data = found(&Op::LinearDataGrad, &[at(&y, 12), at(&x, 6)], at(&x, 0));
        assert_eq!(run(&data, &memory), [1., 6., 4., 3., 12., 10.]);
        let weight = found(&Op::LinearWeightGrad, &[at(&x, 0), at(&y, 12)], at(&x, 0));
        assert_eq!(run(&weight, &memory), [13., 17., 21., 18., 24., 30.]);
    }

    #[test]
    fn rows_of_a_slice_lie_apart() {
        let (x, y) = (TensorType::new([2, 3], DType::F32), TensorType::new([2, 2], DType::F32));
        let slice = Operand { ty: &x, address: 8, row_stride: 10 };
        let product = found(&Op::Linear, &[slice, Operand::contiguous(&x, 80)], Operand::contiguous(&y, 0));
        assert_eq!((product.a.row_stride, product.b.row_stride, product.c_row_stride), (10, 3, 2));
    }

    #[test]
    fn no_samples_give_a_product_over_nothing() {
        let (x, y) = (TensorType::new([0, 3], DType::F32), TensorType::new([0, 2], DType::F32));
        let w = TensorType::new([2, 3], DType::F32);
        let at = |ty| Operand::contiguous(ty, 0);
        let product = found(&Op::LinearWeightGrad, &[at(&x), at(&y)], at(&w));
        assert!(Found { product }.is_empty());
        assert_eq!((product.m, product.n, product.k), (2, 3, 0));
    }
}
