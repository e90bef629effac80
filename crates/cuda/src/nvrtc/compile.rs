//! One source, one architecture, one image.

use core::ffi::{CStr, c_char};
use std::ffi::CString;

use cudarc::nvrtc::sys::nvrtcProgram;

use crate::CudaError;
use crate::library::Nvrtc;

/// Text for the compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelSource<'a> {
    /// Name in messages, `conv2d.cu`.
    pub name: &'a str,
    /// CUDA C++ without `#include`.
    pub text: &'a str,
    /// Further compiler options, such as `-DROWS=4`.
    pub options: &'a [&'a str],
}

/// An image with what the compiler said about it.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The architecture, `sm_90`.
    pub architecture: String,
    /// The machine code.
    pub cubin: Vec<u8>,
    /// Warnings; usually empty.
    pub log: String,
}

/// Compiles for `architecture` (`sm_90`), or says where the source is wrong.
///
/// Multiplication and addition are contracted, division and square root are exact, denormals are kept: the defaults,
/// stated so that the key of the cache holds them.
pub fn compile(nvrtc: &Nvrtc, source: &KernelSource<'_>, architecture: &str) -> Result<Compiled, CudaError> {
    let program = Program::new(nvrtc, source)?;
    let options = options(source, architecture);
    let texts: Vec<CString> = options.iter().map(|o| text(o)).collect::<Result<_, _>>()?;
    let pointers: Vec<*const c_char> = texts.iter().map(|o| o.as_ptr()).collect();
    // SAFETY: the program lives; the options are zero-ended texts that outlive the call.
    let status = unsafe { (nvrtc.functions.compile)(program.raw, pointers.len() as i32, pointers.as_ptr()) };
    let log = program.log()?;
    if status != 0 && !log.is_empty() {
        return Err(CudaError::Compile { name: source.name.into(), architecture: architecture.into(), log });
    }
    check(nvrtc, "nvrtcCompileProgram", status)?;
    Ok(Compiled { architecture: architecture.into(), cubin: program.cubin()?, log })
}

/// Compiles for every architecture and returns the images; the first error ends it. Needs no GPU.
pub fn check_compiles(
    nvrtc: &Nvrtc,
    source: &KernelSource<'_>,
    architectures: &[&str],
) -> Result<Vec<Compiled>, CudaError> {
    architectures.iter().map(|a| compile(nvrtc, source, a)).collect()
}

/// All options, in the order in which the compiler and the cache's key see them.
pub(super) fn options(source: &KernelSource<'_>, architecture: &str) -> Vec<String> {
    let mut all = vec![format!("--gpu-architecture={architecture}")];
    for fixed in ["--std=c++17", "--fmad=true", "--prec-div=true", "--prec-sqrt=true", "--ftz=false"] {
        all.push(fixed.into());
    }
    all.extend(source.options.iter().map(|o| o.to_string()));
    all
}

fn text(words: &str) -> Result<CString, CudaError> {
    let status = "a text with a zero byte in it".to_string();
    CString::new(words).map_err(|_| CudaError::Nvrtc { call: "nvrtcCompileProgram", status })
}

fn check(nvrtc: &Nvrtc, call: &'static str, status: u32) -> Result<(), CudaError> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: returns a constant text for every number.
    let name = unsafe { CStr::from_ptr((nvrtc.functions.error_string)(status)) };
    Err(CudaError::Nvrtc { call, status: name.to_string_lossy().into_owned() })
}

/// A program of NVRTC with its texts, which it may refer to.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    raw: nvrtcProgram,
    _texts: (CString, CString),
}

impl<'a> Program<'a> {
    fn new(nvrtc: &'a Nvrtc, source: &KernelSource<'_>) -> Result<Self, CudaError> {
        let texts = (text(source.text)?, text(source.name)?);
        let mut raw: nvrtcProgram = std::ptr::null_mut();
        let none = std::ptr::null();
        let create = nvrtc.functions.create;
        // SAFETY: both texts end with zero and live in the program; no headers are passed.
        let status = unsafe { create(&mut raw, texts.0.as_ptr(), texts.1.as_ptr(), 0, none, none) };
        check(nvrtc, "nvrtcCreateProgram", status)?;
        Ok(Self { nvrtc, raw, _texts: texts })
    }

    fn log(&self) -> Result<String, CudaError> {
        let f = &self.nvrtc.functions;
        let mut size = 0usize;
        // SAFETY: the second call writes as many bytes as the first announced, the last of them zero.
        let bytes = unsafe {
            check(self.nvrtc, "nvrtcGetProgramLogSize", (f.log_size)(self.raw, &mut size))?;
            let mut bytes = vec![0u8; size];
            check(self.nvrtc, "nvrtcGetProgramLog", (f.log)(self.raw, bytes.as_mut_ptr().cast()))?;
            bytes
        };
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').trim().to_string())
    }

    fn cubin(&self) -> Result<Vec<u8>, CudaError> {
        let f = &self.nvrtc.functions;
        let mut size = 0usize;
        // SAFETY: the second call writes as many bytes as the first announced.
        unsafe {
            check(self.nvrtc, "nvrtcGetCUBINSize", (f.cubin_size)(self.raw, &mut size))?;
            let mut image = vec![0u8; size];
            check(self.nvrtc, "nvrtcGetCUBIN", (f.cubin)(self.raw, image.as_mut_ptr().cast()))?;
            Ok(image)
        }
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is ours.
        unsafe { (self.nvrtc.functions.destroy)(&mut self.raw) };
    }
}
