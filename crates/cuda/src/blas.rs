//! Matrix products by cuBLAS, row-major, on one stream, in a workspace that the plan owns.

use core::ffi::{CStr, c_void};

use cudarc::cublas::sys::{cublasComputeType_t as Compute, cublasHandle_t, cudaDataType_t};

use vdnn_tensor::DType;

use crate::CudaError;
use crate::context::Stream;
use crate::cudnn::Precision;
use crate::library::Cublas;

/// Least workspace with which every product works.
pub const LEAST_WORKSPACE: u64 = 64 << 10;
/// Workspace beyond which cuBLAS gets no faster (its own recommendation for Hopper).
pub const BEST_WORKSPACE: u64 = 32 << 20;

/// One matrix as the product reads it: `[rows, columns]` row-major before transposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrix {
    /// Address of the first element.
    pub address: u64,
    /// Elements from one row to the next.
    pub row_stride: u64,
    /// Whether it is read transposed.
    pub transposed: bool,
}

/// `C [m, n] = alpha · op(A) [m, k] · op(B) [k, n] + beta · C`, all of one type; sums are f32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    /// Rows of C.
    pub m: u64,
    /// Columns of C.
    pub n: u64,
    /// Length of the sums.
    pub k: u64,
    /// Factor of the product.
    pub alpha: f32,
    /// Left operand.
    pub a: Matrix,
    /// Right operand.
    pub b: Matrix,
    /// Factor of the old C, which is not read when this is 0.
    pub beta: f32,
    /// Address of C.
    pub c: u64,
    /// Elements from one row of C to the next.
    pub c_row_stride: u64,
    /// Type of A, B and C: f32, f16 or bf16.
    pub dtype: DType,
    /// Of f32: whether TF32 may be used.
    pub precision: Precision,
}

/// cuBLAS on one stream, deterministic: one stream, no atomics, a workspace of ours.
#[derive(Debug)]
pub struct Blas {
    raw: cublasHandle_t,
    cublas: &'static Cublas,
    stream: Stream,
}

// SAFETY: cuBLAS allows a handle to move between threads, as long as one at a time uses it.
unsafe impl Send for Blas {}

impl Blas {
    /// Makes a handle in the current context, bound to `stream`.
    pub fn new(cublas: &'static Cublas, stream: &Stream) -> Result<Self, CudaError> {
        let mut raw: cublasHandle_t = std::ptr::null_mut();
        let f = &cublas.functions;
        // SAFETY: writes one handle.
        check(cublas, "cublasCreate", unsafe { (f.create)(&mut raw) })?;
        let blas = Self { raw, cublas, stream: stream.clone() };
        let (default_math, no_atomics) = (0, 0); // CUBLAS_DEFAULT_MATH, CUBLAS_ATOMICS_NOT_ALLOWED
        // SAFETY: the handle and the stream live.
        unsafe {
            check(cublas, "cublasSetStream", (f.set_stream)(raw, stream.raw()))?;
            check(cublas, "cublasSetMathMode", (f.set_math_mode)(raw, default_math))?;
            check(cublas, "cublasSetAtomicsMode", (f.set_atomics_mode)(raw, no_atomics))?;
        }
        Ok(blas)
    }

    /// Gives cuBLAS the workspace of the products that follow; it then uses no memory of its own.
    ///
    /// # Safety
    ///
    /// The bytes must be device memory that nothing else uses while such products run.
    pub unsafe fn set_workspace(&self, address: u64, bytes: u64) -> Result<(), CudaError> {
        if bytes < LEAST_WORKSPACE {
            return Err(CudaError::Workspace { what: "cuBLAS".into(), needed: LEAST_WORKSPACE, given: bytes });
        }
        if address == 0 || !address.is_multiple_of(256) {
            return Err(CudaError::Misaligned { what: "cuBLAS workspace", address, alignment: 256 });
        }
        // SAFETY: the caller owns the memory.
        let status = unsafe { (self.cublas.functions.set_workspace)(self.raw, address as *mut c_void, bytes as usize) };
        check(self.cublas, "cublasSetWorkspace", status)
    }

    /// Queues a product. With m or n of 0 there is nothing to do.
    ///
    /// # Safety
    ///
    /// The addresses must hold the matrices, C must overlap neither operand, and nothing else may touch them meanwhile.
    pub unsafe fn gemm(&self, p: &Product) -> Result<(), CudaError> {
        if p.m == 0 || p.n == 0 {
            return Ok(());
        }
        // cuBLAS is column-major: our row-major C is its transpose, and Cᵀ = op(B)ᵀ · op(A)ᵀ.
        let (element, compute) = match (p.dtype, p.precision) {
            (DType::BF16, _) => (cudaDataType_t::CUDA_R_16BF, Compute::CUBLAS_COMPUTE_32F),
            (DType::F16, _) => (cudaDataType_t::CUDA_R_16F, Compute::CUBLAS_COMPUTE_32F),
            (_, Precision::Fp32) => (cudaDataType_t::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F_PEDANTIC),
            (_, Precision::Tf32) => (cudaDataType_t::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F_FAST_TF32),
        };
        let (element, compute) = (element as u32, compute as u32);
        let operation = |m: &Matrix| u32::from(m.transposed); // CUBLAS_OP_N is 0, CUBLAS_OP_T is 1
        let pointer = |address: u64| address as *const c_void;
        let (alpha, beta) = (std::ptr::from_ref(&p.alpha).cast(), std::ptr::from_ref(&p.beta).cast());
        let default_algorithm = -1;
        // SAFETY: the caller answers for the addresses; the factors are read during the call.
        let status = unsafe {
            (self.cublas.functions.gemm)(
                self.raw,
                operation(&p.b),
                operation(&p.a),
                p.n as i64,
                p.m as i64,
                p.k as i64,
                alpha,
                pointer(p.b.address),
                element,
                p.b.row_stride as i64,
                pointer(p.a.address),
                element,
                p.a.row_stride as i64,
                beta,
                p.c as *mut c_void,
                element,
                p.c_row_stride as i64,
                compute,
                default_algorithm,
            )
        };
        check(self.cublas, "cublasGemmEx", status)
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        if self.stream.context.bind().is_ok() {
            // SAFETY: the handle is ours.
            unsafe { (self.cublas.functions.destroy)(self.raw) };
        }
    }
}

fn check(cublas: &Cublas, call: &'static str, status: u32) -> Result<(), CudaError> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: returns a constant text for every number.
    let name = unsafe { CStr::from_ptr((cublas.functions.status_string)(status)) };
    Err(CudaError::Cublas { call, status: name.to_string_lossy().into_owned() })
}
