//! The driver's calls as a function table, opened once; its errors with their names.
//!
//! `cudarc::driver::sys` supplies the types. Its calls are not used, because they panic when the library or a symbol
//! is missing and return statuses as an enum that a newer driver may leave.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUstream,
};
use vdnn_cudnn_sys::search::{self, Surroundings};
use vdnn_cudnn_sys::{Opened, function_table, open_first};

use crate::CudaError;

/// A driver status as returned; 0 is success.
pub(crate) type Status = u32;

/// A function that the driver calls on a thread of its own, in the order of a stream. It may not call the driver.
pub(crate) type HostFunction = unsafe extern "C" fn(*mut c_void);

const NO_DEVICE: Status = 100;

function_table! {
    /// The driver functions that we call.
    pub struct DriverFunctions {
        /// `cuInit(flags)`.
        init = "cuInit": fn(c_uint) -> Status;
        /// `cuDriverGetVersion(*version)`: 13000 for CUDA 13.0.
        version = "cuDriverGetVersion": fn(*mut c_int) -> Status;
        /// `cuGetErrorName(code, *text)`.
        error_name = "cuGetErrorName": fn(Status, *mut *const c_char) -> Status;
        /// `cuGetErrorString(code, *text)`.
        error_string = "cuGetErrorString": fn(Status, *mut *const c_char) -> Status;
        /// `cuDeviceGetCount(*count)`.
        device_count = "cuDeviceGetCount": fn(*mut c_int) -> Status;
        /// `cuDeviceGet(*device, ordinal)`.
        device_get = "cuDeviceGet": fn(*mut CUdevice, c_int) -> Status;
        /// `cuDeviceGetName(text, capacity, device)`.
        device_name = "cuDeviceGetName": fn(*mut c_char, c_int, CUdevice) -> Status;
        /// `cuDeviceGetAttribute(*value, attribute, device)`.
        device_attribute = "cuDeviceGetAttribute": fn(*mut c_int, u32, CUdevice) -> Status;
        /// `cuDeviceTotalMem(*bytes, device)`.
        device_total = "cuDeviceTotalMem_v2": fn(*mut usize, CUdevice) -> Status;
        /// `cuDevicePrimaryCtxRetain(*context, device)`.
        context_retain = "cuDevicePrimaryCtxRetain": fn(*mut CUcontext, CUdevice) -> Status;
        /// `cuDevicePrimaryCtxRelease(device)`.
        context_release = "cuDevicePrimaryCtxRelease_v2": fn(CUdevice) -> Status;
        /// `cuCtxSetCurrent(context)`.
        context_set = "cuCtxSetCurrent": fn(CUcontext) -> Status;
        /// `cuCtxSynchronize()`.
        context_synchronize = "cuCtxSynchronize": fn() -> Status;
        /// `cuCtxGetStreamPriorityRange(*least, *greatest)`.
        priority_range = "cuCtxGetStreamPriorityRange": fn(*mut c_int, *mut c_int) -> Status;
        /// `cuStreamCreateWithPriority(*stream, flags, priority)`.
        stream_create = "cuStreamCreateWithPriority": fn(*mut CUstream, c_uint, c_int) -> Status;
        /// `cuStreamDestroy(stream)`.
        stream_destroy = "cuStreamDestroy_v2": fn(CUstream) -> Status;
        /// `cuStreamSynchronize(stream)`.
        stream_synchronize = "cuStreamSynchronize": fn(CUstream) -> Status;
        /// `cuStreamQuery(stream)`.
        stream_query = "cuStreamQuery": fn(CUstream) -> Status;
        /// `cuStreamWaitEvent(stream, event, flags)`.
        stream_wait = "cuStreamWaitEvent": fn(CUstream, CUevent, c_uint) -> Status;
        /// `cuStreamBeginCapture(stream, mode)`.
        capture_begin = "cuStreamBeginCapture_v2": fn(CUstream, u32) -> Status;
        /// `cuStreamEndCapture(stream, *graph)`.
        capture_end = "cuStreamEndCapture": fn(CUstream, *mut CUgraph) -> Status;
        /// `cuGraphInstantiateWithFlags(*executable, graph, flags)`.
        graph_instantiate = "cuGraphInstantiateWithFlags": fn(*mut CUgraphExec, CUgraph, u64) -> Status;
        /// `cuGraphUpload(executable, stream)`.
        graph_upload = "cuGraphUpload": fn(CUgraphExec, CUstream) -> Status;
        /// `cuGraphLaunch(executable, stream)`.
        graph_launch = "cuGraphLaunch": fn(CUgraphExec, CUstream) -> Status;
        /// `cuGraphDestroy(graph)`.
        graph_destroy = "cuGraphDestroy": fn(CUgraph) -> Status;
        /// `cuGraphExecDestroy(executable)`.
        graph_exec_destroy = "cuGraphExecDestroy": fn(CUgraphExec) -> Status;
        /// `cuEventCreate(*event, flags)`.
        event_create = "cuEventCreate": fn(*mut CUevent, c_uint) -> Status;
        /// `cuEventDestroy(event)`.
        event_destroy = "cuEventDestroy_v2": fn(CUevent) -> Status;
        /// `cuEventRecord(event, stream)`.
        event_record = "cuEventRecord": fn(CUevent, CUstream) -> Status;
        /// `cuEventSynchronize(event)`.
        event_synchronize = "cuEventSynchronize": fn(CUevent) -> Status;
        /// `cuEventElapsedTime(*ms, start, end)`.
        event_elapsed = "cuEventElapsedTime": fn(*mut f32, CUevent, CUevent) -> Status;
        /// `cuLaunchHostFunc(stream, function, argument)`.
        host_function = "cuLaunchHostFunc": fn(CUstream, HostFunction, *mut c_void) -> Status;
        /// `cuMemGetInfo(*free, *total)`.
        memory_info = "cuMemGetInfo_v2": fn(*mut usize, *mut usize) -> Status;
        /// `cuMemAlloc(*address, bytes)`.
        memory_alloc = "cuMemAlloc_v2": fn(*mut CUdeviceptr, usize) -> Status;
        /// `cuMemFree(address)`.
        memory_free = "cuMemFree_v2": fn(CUdeviceptr) -> Status;
        /// `cuMemHostRegister(address, bytes, flags)`.
        host_register = "cuMemHostRegister_v2": fn(*mut c_void, usize, c_uint) -> Status;
        /// `cuMemHostUnregister(address)`.
        host_unregister = "cuMemHostUnregister": fn(*mut c_void) -> Status;
        /// `cuMemcpyDtoHAsync(host, device, bytes, stream)`.
        copy_to_host = "cuMemcpyDtoHAsync_v2": fn(*mut c_void, CUdeviceptr, usize, CUstream) -> Status;
        /// `cuMemcpyHtoDAsync(device, host, bytes, stream)`.
        copy_to_device = "cuMemcpyHtoDAsync_v2": fn(CUdeviceptr, *const c_void, usize, CUstream) -> Status;
        /// `cuMemcpyDtoDAsync(to, from, bytes, stream)`.
        copy_on_device = "cuMemcpyDtoDAsync_v2": fn(CUdeviceptr, CUdeviceptr, usize, CUstream) -> Status;
        /// `cuMemcpy2DAsync(*copy, stream)`.
        copy_rows = "cuMemcpy2DAsync_v2": fn(*const CUDA_MEMCPY2D, CUstream) -> Status;
        /// `cuMemsetD8Async(address, value, bytes, stream)`.
        fill = "cuMemsetD8Async": fn(CUdeviceptr, u8, usize, CUstream) -> Status;
        /// `cuModuleLoadData(*module, image)`.
        module_load = "cuModuleLoadData": fn(*mut CUmodule, *const c_void) -> Status;
        /// `cuModuleUnload(module)`.
        module_unload = "cuModuleUnload": fn(CUmodule) -> Status;
        /// `cuModuleGetFunction(*function, module, name)`.
        module_function = "cuModuleGetFunction": fn(*mut CUfunction, CUmodule, *const c_char) -> Status;
        /// `cuFuncLoad(function)`: loads it now, also when loading is lazy (CUDA 12.4).
        function_load = "cuFuncLoad": fn(CUfunction) -> Status;
        /// `cuFuncSetAttribute(function, attribute, value)`.
        function_set = "cuFuncSetAttribute": fn(CUfunction, u32, c_int) -> Status;
        /// `cuLaunchKernel(function, grid xyz, block xyz, shared, stream, arguments, extra)`.
        launch = "cuLaunchKernel": fn(
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream,
            *mut *mut c_void, *mut *mut c_void,
        ) -> Status;
    }
}

/// The driver, open and initialised.
#[derive(Debug)]
pub struct Driver {
    /// Its functions.
    pub functions: DriverFunctions,
    /// The file and why it was taken.
    pub opened: Opened,
    /// The CUDA version it supports, 13000 for 13.0.
    pub version: usize,
    init: Status,
}

/// Opens the driver once per process. Without one, or without the functions we call, says so.
pub fn driver() -> Result<&'static Driver, CudaError> {
    static OPEN: OnceLock<Result<Driver, CudaError>> = OnceLock::new();
    OPEN.get_or_init(|| open(&Surroundings::of_process())).as_ref().map_err(Clone::clone)
}

/// Number of GPUs; without a driver or a GPU, an error that says what is missing.
pub fn device_count() -> Result<usize, CudaError> {
    driver()?.device_count()
}

fn open(around: &Surroundings) -> Result<Driver, CudaError> {
    let (library, opened) = open_first("NVIDIA driver (libcuda)", &search::places(around), &["libcuda.so.1"])?;
    let path: PathBuf = opened.path.clone();
    let functions = DriverFunctions::resolve(&library).map_err(|missing| CudaError::Symbol { path, missing })?;
    std::mem::forget(library);
    let mut version: c_int = 0;
    // SAFETY: the version may be asked before initialisation; `cuInit(0)` is what every user of the driver does.
    let init = unsafe {
        (functions.version)(&mut version);
        (functions.init)(0)
    };
    Ok(Driver { functions, opened, version: version.max(0) as usize, init })
}

impl Driver {
    /// Number of devices; a driver without any is an error that says why.
    pub fn device_count(&self) -> Result<usize, CudaError> {
        let none = |reason: String| Err(CudaError::NoDevice { reason });
        if self.init != 0 {
            return none(self.error_name(self.init));
        }
        let mut count: c_int = 0;
        // SAFETY: writes one integer.
        let status = unsafe { (self.functions.device_count)(&mut count) };
        match (status, count) {
            (0, 1..) => Ok(count as usize),
            (0, _) => none(self.error_name(NO_DEVICE)),
            (status, _) => none(self.error_name(status)),
        }
    }

    /// Turns a status into a result that names the call.
    pub(crate) fn check(&self, call: &'static str, status: Status) -> Result<(), CudaError> {
        if status == 0 {
            return Ok(());
        }
        let (name, text) = (self.error_name(status), self.text_of(self.functions.error_string, status));
        Err(CudaError::Driver { call, code: status, name, text })
    }

    fn error_name(&self, status: Status) -> String {
        self.text_of(self.functions.error_name, status)
    }

    fn text_of(&self, ask: unsafe extern "C" fn(Status, *mut *const c_char) -> Status, status: Status) -> String {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the driver writes the address of a constant string, or leaves null for an unknown status.
        unsafe {
            if ask(status, &mut text) != 0 || text.is_null() {
                return format!("status {status}");
            }
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

/// "13.0" of 13000.
pub fn cuda_version_text(version: usize) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}
