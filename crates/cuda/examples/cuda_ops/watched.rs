//! A GPU with somebody watching its calls: who looks at what goes on around them, or leaves some commands out.

use std::path::Path;
use std::sync::Arc;
use vdnn_cuda::CudaDevice;
use vdnn_graph::{Graph, Program};
use vdnn_runtime::{Description, Device, DeviceError, KernelRequest, PreparedId};
use vdnn_schedule::{KernelTable, Schedule, Space, Timeline};
use vdnn_tensor::Bytes;

/// A call that may take memory.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    Measure,
    Reserve,
    Prepare,
}

/// What is done besides; nothing unless said.
pub trait Watch: std::fmt::Debug {
    /// Makes a call.
    fn around<T>(&mut self, _call: Call, act: impl FnOnce() -> T) -> T {
        act()
    }

    /// Hears of a schedule that was prepared; they are numbered in this order.
    fn prepared(&mut self, _schedule: &Schedule) {}

    /// Whether a command is issued.
    fn issues(&self, _schedule: PreparedId, _command: usize) -> bool {
        true
    }
}

/// The device and who watches it. Whether iterations are launched as a whole is settled before: on the device itself.
#[derive(Debug)]
pub struct Watched<W> {
    pub device: CudaDevice,
    pub watch: W,
}

impl<W: Watch> Device for Watched<W> {
    fn description(&self) -> Description {
        self.device.description()
    }

    fn kernel_table(&mut self, graph: &Graph, request: KernelRequest) -> Result<KernelTable, DeviceError> {
        self.watch.around(Call::Measure, || self.device.kernel_table(graph, request))
    }

    fn reserve(&mut self, device: Bytes, host: Bytes) -> Result<(), DeviceError> {
        self.watch.around(Call::Reserve, || self.device.reserve(device, host))
    }

    fn set_disk_folder(&mut self, folder: &Path) {
        self.device.set_disk_folder(folder);
    }

    fn reserve_disk(&mut self, bytes: Bytes) -> Result<(), DeviceError> {
        self.device.reserve_disk(bytes)
    }

    fn reserve_staging(&mut self, offset: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        self.watch.around(Call::Prepare, || self.device.reserve_staging(offset, bytes))
    }

    fn prepare(&mut self, program: Arc<Program>, schedule: Arc<Schedule>) -> Result<PreparedId, DeviceError> {
        let id = self.watch.around(Call::Prepare, || self.device.prepare(program, Arc::clone(&schedule)))?;
        self.watch.prepared(&schedule);
        Ok(id)
    }

    fn begin(&mut self, schedule: PreparedId) -> Result<(), DeviceError> {
        self.device.begin(schedule)
    }

    fn issue(&mut self, schedule: PreparedId, command: usize) -> Result<(), DeviceError> {
        if self.watch.issues(schedule, command) { self.device.issue(schedule, command) } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        self.device.finish()
    }

    fn write(&mut self, space: Space, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        self.device.write(space, offset, bytes)
    }

    fn stage(&mut self, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        self.device.stage(offset, bytes)
    }

    fn load_staged(&mut self, from: Bytes, to: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        self.device.load_staged(from, to, bytes)
    }

    fn read(&mut self, space: Space, offset: Bytes, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(space, offset, bytes)
    }

    fn measured_peak(&mut self) -> Option<Bytes> {
        self.device.measured_peak()
    }

    fn measured_host_peak(&mut self) -> Option<Bytes> {
        self.device.measured_host_peak()
    }

    fn set_timing(&mut self, on: bool) {
        self.device.set_timing(on);
    }

    fn timeline(&mut self) -> Option<Timeline> {
        self.device.timeline()
    }
}
