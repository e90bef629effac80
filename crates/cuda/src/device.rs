//! The CUDA device: one arena, three streams, everything made before the first iteration.

use std::sync::Arc;

use vdnn_graph::{Graph, Program};
use vdnn_runtime::{Description, Device, DeviceError, KernelRequest, PreparedId};
use vdnn_schedule::{KernelTable, Schedule, Timeline};
use vdnn_tensor::Bytes;

use crate::blas::Blas;
use crate::context::{Context, Streams};
use crate::cudnn::Handle;
use crate::driver::cuda_version_text;
use crate::library::{Libraries, LibraryOptions};
use crate::CudaError;

/// How the device works, besides what a schedule says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CudaOptions {
    /// Wait after every command, so that a failure is reported with the command that caused it. Slow; for finding defects.
    pub synchronous: bool,
}

/// One NVIDIA GPU.
#[derive(Debug)]
pub struct CudaDevice {
    options: CudaOptions,
    blas: Blas,
    cudnn: Handle,
    streams: Streams,
    libraries: Libraries,
    context: Arc<Context>,
    context_bytes: Bytes,
}

impl CudaDevice {
    /// Opens a GPU with the libraries found by themselves.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] with what is missing, where it was looked for and what to do.
    pub fn open(ordinal: usize) -> Result<Self, DeviceError> {
        Self::open_with(ordinal, &LibraryOptions::default(), CudaOptions::default())
    }

    /// Opens a GPU with libraries and ways of one's own.
    ///
    /// # Errors
    /// As [`CudaDevice::open`].
    pub fn open_with(ordinal: usize, libraries: &LibraryOptions, options: CudaOptions) -> Result<Self, DeviceError> {
        Self::make(ordinal, libraries, options).map_err(|error| unavailable(ordinal, error))
    }

    fn make(ordinal: usize, libraries: &LibraryOptions, options: CudaOptions) -> Result<Self, CudaError> {
        let libraries = Libraries::open(libraries)?;
        let context = Context::open(ordinal)?;
        let streams = Streams::new(&context)?;
        let cudnn = Handle::new(libraries.cudnn, &streams.compute)?;
        let blas = Blas::new(libraries.cublas, &streams.compute)?;
        let (free, total) = context.memory()?;
        let context_bytes = total.saturating_sub(free);
        Ok(CudaDevice { options, blas, cudnn, streams, libraries, context, context_bytes })
    }
}

/// What cannot be opened is not available, whatever the reason.
fn unavailable(ordinal: usize, error: CudaError) -> DeviceError {
    DeviceError::Unavailable {
        what: format!("cuda:{ordinal}"),
        reason: error.to_string(),
        advice: "`vdnn doctor` lists what was looked for and where; --device cpu needs no GPU".to_string(),
    }
}

impl Device for CudaDevice {
    fn description(&self) -> Description {
        let Libraries { nvrtc, cublas, cudnn, .. } = self.libraries;
        let details = format!(
            "{}, driver for CUDA {}, cuDNN {} ({}), cuBLAS {}.{}.{}, NVRTC {}.{}",
            self.context.name,
            cuda_version_text(self.context.driver_version),
            vdnn_cudnn_sys::version_text(cudnn.version),
            cudnn.opened.path.display(),
            cublas.version.0,
            cublas.version.1,
            cublas.version.2,
            nvrtc.version.0,
            nvrtc.version.1,
        );
        Description { name: format!("cuda:{}", self.context.ordinal), details, context_bytes: self.context_bytes }
    }

    fn kernel_table(&mut self, _: &Graph, _: KernelRequest) -> Result<KernelTable, DeviceError> {
        Err(self.later("kernel_table"))
    }

    fn reserve(&mut self, _: Bytes, _: Bytes) -> Result<(), DeviceError> {
        Err(self.later("reserve"))
    }

    fn prepare(&mut self, _: Arc<Program>, _: Arc<Schedule>) -> Result<PreparedId, DeviceError> {
        Err(self.later("prepare"))
    }

    fn begin(&mut self, _: PreparedId) -> Result<(), DeviceError> {
        Err(self.later("begin"))
    }

    fn issue(&mut self, _: PreparedId, _: usize) -> Result<(), DeviceError> {
        Err(self.later("issue"))
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        Err(self.later("finish"))
    }

    fn write(&mut self, _: Bytes, _: &[u8]) -> Result<(), DeviceError> {
        Err(self.later("write"))
    }

    fn read(&mut self, _: Bytes, _: &mut [u8]) -> Result<(), DeviceError> {
        Err(self.later("read"))
    }

    fn measured_peak(&mut self) -> Option<Bytes> {
        None
    }

    fn set_timing(&mut self, _: bool) {}

    fn timeline(&mut self) -> Option<Timeline> {
        None
    }
}

impl CudaDevice {
    fn later(&self, call: &str) -> DeviceError {
        let message = "this build opens the device and runs nothing yet".to_string();
        DeviceError::Backend { call: format!("{call} on cuda:{}", self.context.ordinal), message }
    }
}
