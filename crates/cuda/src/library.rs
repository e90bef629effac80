//! Finding and opening the CUDA libraries: driver, NVRTC, cuBLASLt, cuBLAS, cuDNN, in this order.
//!
//! Each is opened once per process from an absolute path and stays open. What must be there before another (NVRTC's
//! built-ins, the cuBLASLt of cuDNN) is opened first, because those libraries would look it up by a bare name and end
//! the process, or fail much later, without it. [`doctor`](crate::doctor) reports what happened here.

use core::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::cublas::sys::cublasHandle_t;
use cudarc::driver::sys::CUstream;
use cudarc::nvrtc::sys::nvrtcProgram;
use vdnn_cudnn_sys::search::{self, Place, Surroundings};
use vdnn_cudnn_sys::{Cudnn, Opened, function_table, load_global, open_first};

use crate::CudaError;
use crate::driver::{Driver, cuda_version_text, driver};

function_table! {
    /// NVRTC, the compiler of kernel sources.
    pub struct NvrtcFunctions {
        /// `nvrtcVersion(*major, *minor)`.
        version = "nvrtcVersion": fn(*mut c_int, *mut c_int) -> u32;
        /// `nvrtcGetErrorString(status)`.
        error_string = "nvrtcGetErrorString": fn(u32) -> *const c_char;
        /// `nvrtcCreateProgram(*program, source, name, headers, texts, names)`.
        create = "nvrtcCreateProgram": fn(
            *mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
        ) -> u32;
        /// `nvrtcDestroyProgram(*program)`.
        destroy = "nvrtcDestroyProgram": fn(*mut nvrtcProgram) -> u32;
        /// `nvrtcCompileProgram(program, count, options)`.
        compile = "nvrtcCompileProgram": fn(nvrtcProgram, c_int, *const *const c_char) -> u32;
        /// `nvrtcGetProgramLogSize(program, *bytes)`.
        log_size = "nvrtcGetProgramLogSize": fn(nvrtcProgram, *mut usize) -> u32;
        /// `nvrtcGetProgramLog(program, text)`.
        log = "nvrtcGetProgramLog": fn(nvrtcProgram, *mut c_char) -> u32;
        /// `nvrtcGetCUBINSize(program, *bytes)`.
        cubin_size = "nvrtcGetCUBINSize": fn(nvrtcProgram, *mut usize) -> u32;
        /// `nvrtcGetCUBIN(program, image)`.
        cubin = "nvrtcGetCUBIN": fn(nvrtcProgram, *mut c_char) -> u32;
    }
}

function_table! {
    /// cuBLAS, as far as one matrix product needs it.
    pub struct CublasFunctions {
        /// `cublasCreate(*handle)`.
        create = "cublasCreate_v2": fn(*mut cublasHandle_t) -> u32;
        /// `cublasDestroy(handle)`.
        destroy = "cublasDestroy_v2": fn(cublasHandle_t) -> u32;
        /// `cublasGetProperty(which, *value)`: 0 major, 1 minor, 2 patch; needs no handle.
        property = "cublasGetProperty": fn(u32, *mut c_int) -> u32;
        /// `cublasGetStatusString(status)`.
        status_string = "cublasGetStatusString": fn(u32) -> *const c_char;
        /// `cublasSetStream(handle, stream)`; forgets the workspace.
        set_stream = "cublasSetStream_v2": fn(cublasHandle_t, CUstream) -> u32;
        /// `cublasSetWorkspace(handle, address, bytes)`.
        set_workspace = "cublasSetWorkspace_v2": fn(cublasHandle_t, *mut c_void, usize) -> u32;
        /// `cublasSetMathMode(handle, mode)`.
        set_math_mode = "cublasSetMathMode": fn(cublasHandle_t, u32) -> u32;
        /// `cublasSetAtomicsMode(handle, mode)`.
        set_atomics_mode = "cublasSetAtomicsMode": fn(cublasHandle_t, u32) -> u32;
        /// `cublasGemmEx_64(handle, op a, op b, m, n, k, *alpha, a, type, lda, b, type, ldb, *beta, c, type, ldc,
        /// compute type, algorithm)`.
        gemm = "cublasGemmEx_64": fn(
            cublasHandle_t, u32, u32, i64, i64, i64, *const c_void, *const c_void, u32, i64, *const c_void, u32, i64,
            *const c_void, *mut c_void, u32, i64, u32, c_int,
        ) -> u32;
    }
}

/// NVRTC, open.
#[derive(Debug)]
pub struct Nvrtc {
    /// Its functions.
    pub functions: NvrtcFunctions,
    /// The file and why it was taken.
    pub opened: Opened,
    /// Major and minor version.
    pub version: (usize, usize),
}

/// cuBLAS, open.
#[derive(Debug)]
pub struct Cublas {
    /// Its functions.
    pub functions: CublasFunctions,
    /// The file and why it was taken.
    pub opened: Opened,
    /// Major, minor and patch version.
    pub version: (usize, usize, usize),
}

/// What a user may say about libraries.
#[derive(Debug, Clone, Default)]
pub struct LibraryOptions {
    /// The cuDNN to use: a file or its folder. Wins over `VDNN_CUDNN_PATH`, which wins over the search.
    pub cudnn: Option<PathBuf>,
    /// Folders to look in before all others (with those of `VDNN_CUDA_LIBS`).
    pub folders: Vec<PathBuf>,
}

impl LibraryOptions {
    /// This process's surroundings with the folders of the options in front.
    pub(crate) fn surroundings(&self) -> Surroundings {
        let mut around = Surroundings::of_process();
        around.named.splice(0..0, self.folders.iter().cloned());
        around
    }
}

/// Everything that the device needs, open and of versions that go together.
#[derive(Debug, Clone, Copy)]
pub struct Libraries {
    /// The driver.
    pub driver: &'static Driver,
    /// The compiler.
    pub nvrtc: &'static Nvrtc,
    /// Matrix products.
    pub cublas: &'static Cublas,
    /// Convolutions.
    pub cudnn: &'static Cudnn,
}

impl Libraries {
    /// Opens all, in order, and compares their versions with the driver's.
    pub fn open(options: &LibraryOptions) -> Result<Self, CudaError> {
        let driver = driver()?;
        driver.device_count()?;
        let nvrtc = nvrtc(options)?;
        let cublas = cublas(options)?;
        let cudnn = cudnn(options)?;
        let built_for = [
            ("NVRTC", nvrtc.version.0 * 1000 + nvrtc.version.1 * 10),
            ("cuBLAS", cublas.version.0 * 1000 + cublas.version.1 * 10),
            ("cuDNN", cudnn.cudart_version),
        ];
        for (library, version) in built_for {
            check_driver(driver.version, library, version)?;
        }
        Ok(Self { driver, nvrtc, cublas, cudnn })
    }
}

/// Refuses a library made for a newer major CUDA than the driver's. Within a major version kernels compiled to
/// machine code run on every driver; that is the only kind we make.
pub(crate) fn check_driver(driver: usize, library: &str, version: usize) -> Result<(), CudaError> {
    if version / 1000 <= driver / 1000 {
        return Ok(());
    }
    Err(CudaError::DriverTooOld {
        driver: cuda_version_text(driver),
        driver_major: driver / 1000,
        library: library.into(),
        library_version: cuda_version_text(version),
    })
}

/// Opens NVRTC once per process; the first caller's options count.
pub fn nvrtc(options: &LibraryOptions) -> Result<&'static Nvrtc, CudaError> {
    static OPEN: OnceLock<Result<Nvrtc, CudaError>> = OnceLock::new();
    OPEN.get_or_init(|| open_nvrtc(&search::places(&options.surroundings()))).as_ref().map_err(Clone::clone)
}

/// Opens cuBLASLt and cuBLAS once per process; the first caller's options count.
pub fn cublas(options: &LibraryOptions) -> Result<&'static Cublas, CudaError> {
    static OPEN: OnceLock<Result<Cublas, CudaError>> = OnceLock::new();
    OPEN.get_or_init(|| open_cublas(&search::places(&options.surroundings()))).as_ref().map_err(Clone::clone)
}

/// Opens cuDNN once per process.
pub fn cudnn(options: &LibraryOptions) -> Result<&'static Cudnn, CudaError> {
    Ok(vdnn_cudnn_sys::open(&options.surroundings(), options.cudnn.as_deref())?)
}

fn open_nvrtc(places: &[Place]) -> Result<Nvrtc, CudaError> {
    let names = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
    // The built-ins have no other way of being found than being open already.
    if let Some(hit) = search::find(places, &names).first() {
        open_builtins(&hit.path);
    }
    let (library, opened) = open_first("NVRTC", places, &names)?;
    let symbol = |missing| CudaError::Symbol { path: opened.path.clone(), missing };
    let functions = NvrtcFunctions::resolve(&library).map_err(symbol)?;
    std::mem::forget(library);
    let (mut major, mut minor): (c_int, c_int) = (0, 0);
    // SAFETY: writes two integers.
    unsafe { (functions.version)(&mut major, &mut minor) };
    Ok(Nvrtc { functions, opened, version: (major.max(0) as usize, minor.max(0) as usize) })
}

fn open_builtins(nvrtc: &Path) {
    let Some(entries) = nvrtc.parent().and_then(|folder| std::fs::read_dir(folder).ok()) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so.")
            && let Ok(library) = load_global(&entry.path())
        {
            std::mem::forget(library);
        }
    }
}

fn open_cublas(places: &[Place]) -> Result<Cublas, CudaError> {
    let mut last = None;
    for major in [13, 12] {
        let (lt, blas) = (format!("libcublasLt.so.{major}"), format!("libcublas.so.{major}"));
        let opened = open_first("cuBLASLt", places, &[&lt]).and_then(|(library, _)| {
            std::mem::forget(library);
            open_first("cuBLAS", places, &[&blas])
        });
        match opened {
            Ok((library, opened)) => return describe_cublas(library, opened),
            // The reason why the newer one failed says more than that there is no older one.
            Err(e) => last = last.or(Some(e)),
        }
    }
    Err(last.map(CudaError::from).expect("two major versions were tried"))
}

fn describe_cublas(
    library: vdnn_cudnn_sys::libloading::os::unix::Library,
    opened: Opened,
) -> Result<Cublas, CudaError> {
    let symbol = |missing| CudaError::Symbol { path: opened.path.clone(), missing };
    let functions = CublasFunctions::resolve(&library).map_err(symbol)?;
    std::mem::forget(library);
    let part = |which: u32| {
        let mut value: c_int = 0;
        // SAFETY: writes one integer; needs neither handle nor device.
        unsafe { (functions.property)(which, &mut value) };
        value.max(0) as usize
    };
    let version = (part(0), part(1), part(2));
    Ok(Cublas { functions, opened, version })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case B51.
    #[test]
    fn a_library_of_a_newer_major_cuda_is_refused_with_both_versions() {
        let error = check_driver(12040, "NVRTC", 13000).unwrap_err().to_string();
        assert!(error.contains("CUDA 12.4") && error.contains("CUDA 13.0"), "{error}");
        assert!(error.contains("update the driver") && error.contains("a NVRTC for CUDA 12"), "{error}");
    }

    #[test]
    fn older_and_minor_newer_libraries_are_accepted() {
        assert!(check_driver(13000, "cuDNN", 12090).is_ok());
        assert!(check_driver(13000, "cuDNN", 13010).is_ok());
    }
}
