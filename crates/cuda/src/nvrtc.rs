//! Kernel sources to machine code, modules, functions and prepared launches.
//!
//! Sources include no headers, so no toolkit is needed. They are compiled for the exact architecture, never to PTX,
//! and kept in memory and in a folder under a key of (source, options, architecture, compiler version). Modules are
//! loaded before the first step, because loading takes device memory.

mod cache;
mod compile;

use core::ffi::{c_int, c_void};
use std::ffi::CString;
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction, CUmodule};

pub use cache::{CubinCache, cache_folder};
pub use compile::{Compiled, KernelSource, check_compiles, compile};

use crate::CudaError;
use crate::context::{Context, Stream};

/// Machine code on the device.
#[derive(Debug)]
pub struct Module {
    name: String,
    raw: CUmodule,
    context: Arc<Context>,
}

// SAFETY: the driver allows a module to be used from any thread in which its context is current.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Loads an image made by [`compile`]; `name` is for messages.
    pub fn load(context: &Arc<Context>, name: &str, cubin: &[u8]) -> Result<Arc<Self>, CudaError> {
        let mut raw: CUmodule = std::ptr::null_mut();
        // SAFETY: a CUBIN states its own length; the driver copies it.
        let status = unsafe { (context.driver.functions.module_load)(&mut raw, cubin.as_ptr().cast()) };
        context.driver.check("cuModuleLoadData", status)?;
        Ok(Arc::new(Self { name: name.into(), raw, context: context.clone() }))
    }

    /// Finds a function and loads it now, also when the driver is set to load lazily.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Function, CudaError> {
        let missing = || CudaError::MissingFunction { module: self.name.clone(), function: name.into() };
        let symbol = CString::new(name).map_err(|_| missing())?;
        let mut raw: CUfunction = std::ptr::null_mut();
        let f = &self.context.driver.functions;
        // SAFETY: the module lives; the name ends with zero.
        if unsafe { (f.module_function)(&mut raw, self.raw, symbol.as_ptr()) } != 0 {
            return Err(missing());
        }
        // SAFETY: the function was just found.
        self.context.driver.check("cuFuncLoad", unsafe { (f.function_load)(raw) })?;
        Ok(Function { raw, module: self.clone() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: the handle is ours, and functions keep the module alive.
            unsafe { (self.context.driver.functions.module_unload)(self.raw) };
        }
    }
}

/// A kernel.
#[derive(Debug, Clone)]
pub struct Function {
    raw: CUfunction,
    module: Arc<Module>,
}

// SAFETY: as for modules.
unsafe impl Send for Function {}
// SAFETY: as for modules.
unsafe impl Sync for Function {}

impl Function {
    /// Allows launches with more than 48 KiB of dynamic shared memory, up to `bytes`.
    pub fn allow_shared_memory(&self, bytes: u32) -> Result<(), CudaError> {
        let max_dynamic_shared = 8; // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        let driver = self.module.context.driver;
        // SAFETY: the function lives as long as its module.
        let status = unsafe { (driver.functions.function_set)(self.raw, max_dynamic_shared, bytes as c_int) };
        driver.check("cuFuncSetAttribute", status)
    }
}

/// Blocks, threads per block and dynamic shared memory of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Number of blocks in x, y, z.
    pub blocks: [u32; 3],
    /// Threads of a block in x, y, z.
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory per block.
    pub shared_bytes: u32,
}

impl Grid {
    /// One-dimensional: enough blocks of `threads` for `elements`, but not more than `most` blocks, since kernels
    /// stride over the rest.
    pub fn linear(elements: u64, threads: u32, most: u32) -> Self {
        let blocks = elements.div_ceil(u64::from(threads)).clamp(1, u64::from(most.max(1))) as u32;
        Self { blocks: [blocks, 1, 1], threads: [threads, 1, 1], shared_bytes: 0 }
    }
}

/// A value that a kernel takes as an argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Argument {
    /// A device address or any 64-bit integer.
    U64(u64),
    /// A signed 64-bit integer.
    I64(i64),
    /// A 32-bit integer.
    U32(u32),
    /// A signed 32-bit integer.
    I32(i32),
    /// A single-precision number.
    F32(f32),
    /// A double-precision number.
    F64(f64),
    /// A further word of the structure that the argument before begins.
    Word(u64),
}

impl Argument {
    /// The bytes at the low end of a slot, as the driver reads them.
    fn slot(self) -> u64 {
        match self {
            Self::U64(v) | Self::Word(v) => v,
            Self::I64(v) => v as u64,
            Self::U32(v) => u64::from(v),
            Self::I32(v) => u64::from(v as u32),
            Self::F32(v) => u64::from(v.to_bits()),
            Self::F64(v) => v.to_bits(),
        }
    }
}

/// A launch with everything settled; made once per launch site, run in every iteration.
#[derive(Debug, Clone)]
pub struct Launch {
    function: Function,
    grid: Grid,
    /// The words of all arguments.
    slots: Vec<u64>,
    /// The slot at which each parameter starts.
    starts: Vec<u32>,
}

impl Launch {
    /// Settles a launch.
    ///
    /// # Safety
    ///
    /// `arguments` must be as many and of the kinds that the kernel's source declares, structures word by word, and every address among them
    /// must stay valid for what the kernel does with it whenever the launch runs.
    pub unsafe fn new(function: &Function, grid: Grid, arguments: &[Argument]) -> Self {
        let begins = |(at, argument): (usize, &Argument)| (!matches!(argument, Argument::Word(_))).then_some(at as u32);
        let starts = arguments.iter().enumerate().filter_map(begins).collect();
        Self { function: function.clone(), grid, slots: arguments.iter().map(|a| a.slot()).collect(), starts }
    }

    /// Queues the kernel on `stream`.
    pub fn run(&self, stream: &Stream) -> Result<(), CudaError> {
        let driver = self.function.module.context.driver;
        let mut pointers: [*mut c_void; 32] = [std::ptr::null_mut(); 32];
        let mut spilled = Vec::new();
        let pointers: &mut [*mut c_void] = if self.starts.len() <= pointers.len() {
            &mut pointers
        } else {
            spilled.resize(self.starts.len(), std::ptr::null_mut());
            &mut spilled
        };
        for (pointer, &start) in pointers.iter_mut().zip(&self.starts) {
            *pointer = self.slots[start as usize..].as_ptr().cast_mut().cast();
        }
        let ([bx, by, bz], [tx, ty, tz]) = (self.grid.blocks, self.grid.threads);
        let (shared, arguments, none) = (self.grid.shared_bytes, pointers.as_mut_ptr(), std::ptr::null_mut());
        let launch = driver.functions.launch;
        // SAFETY: `new` was promised that the arguments fit the kernel; the driver copies them during the call.
        let status =
            unsafe { launch(self.function.raw, bx, by, bz, tx, ty, tz, shared, stream.raw(), arguments, none) };
        driver.check("cuLaunchKernel", status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_grid_covers_small_and_caps_large() {
        assert_eq!(Grid::linear(1, 256, 1024).blocks, [1, 1, 1]);
        assert_eq!(Grid::linear(257, 256, 1024).blocks, [2, 1, 1]);
        assert_eq!(Grid::linear(1 << 40, 256, 1024).blocks, [1024, 1, 1]);
        assert_eq!(Grid::linear(0, 256, 1024).blocks, [1, 1, 1]);
    }

    #[test]
    fn narrow_arguments_lie_at_the_low_end_of_their_slot() {
        assert_eq!(Argument::I32(-1).slot().to_le_bytes(), [255, 255, 255, 255, 0, 0, 0, 0]);
        assert_eq!(Argument::F32(1.0).slot(), 0x3f80_0000);
    }
}
