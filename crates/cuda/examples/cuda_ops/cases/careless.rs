//! A GPU on which some waits of a schedule are left out: what the mistakes look like that a test must notice.

use std::path::Path;
use std::sync::Arc;
use vdnn_cuda::CudaDevice;
use vdnn_graph::{Graph, Program};
use vdnn_runtime::{Description, Device, DeviceError, KernelRequest, PreparedId};
use vdnn_schedule::{Action, KernelTable, Schedule, Space, StreamRole, Timeline};
use vdnn_tensor::Bytes;

/// Which waits: of a stream, for events of another; `None` for those of any.
pub type LeftOut = (StreamRole, Option<StreamRole>);

#[derive(Debug)]
pub struct Careless {
    device: CudaDevice,
    left_out: LeftOut,
    /// By schedule and command.
    skipped: Vec<Vec<bool>>,
}

impl Careless {
    /// Commands are issued one by one, so that some can be left out.
    pub fn new(mut device: CudaDevice, left_out: LeftOut) -> Self {
        device.set_replay(false);
        Careless { device, left_out, skipped: Vec::new() }
    }
}

/// The waits of a schedule that are left out, by command.
pub fn waits(schedule: &Schedule, (stream, of): LeftOut) -> Vec<bool> {
    let role = |index: usize| schedule.streams[schedule.commands[index].stream.index()];
    let recorded = |event| {
        let at = schedule.commands.iter().position(|command| command.action == Action::Record(event));
        at.map(role)
    };
    let skipped = |(index, command): (usize, &vdnn_schedule::Command)| match command.action {
        Action::Wait(event) => role(index) == stream && (of.is_none() || recorded(event) == of),
        _ => false,
    };
    schedule.commands.iter().enumerate().map(skipped).collect()
}

impl Device for Careless {
    fn description(&self) -> Description {
        self.device.description()
    }

    fn kernel_table(&mut self, graph: &Graph, request: KernelRequest) -> Result<KernelTable, DeviceError> {
        self.device.kernel_table(graph, request)
    }

    fn reserve(&mut self, device: Bytes, host: Bytes) -> Result<(), DeviceError> {
        self.device.reserve(device, host)
    }

    fn set_disk_folder(&mut self, folder: &Path) {
        self.device.set_disk_folder(folder);
    }

    fn reserve_staging(&mut self, offset: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        self.device.reserve_staging(offset, bytes)
    }

    fn prepare(&mut self, program: Arc<Program>, schedule: Arc<Schedule>) -> Result<PreparedId, DeviceError> {
        let skipped = waits(&schedule, self.left_out);
        let id = self.device.prepare(program, schedule)?;
        self.skipped.push(skipped);
        Ok(id)
    }

    fn begin(&mut self, schedule: PreparedId) -> Result<(), DeviceError> {
        self.device.begin(schedule)
    }

    fn issue(&mut self, schedule: PreparedId, command: usize) -> Result<(), DeviceError> {
        if self.skipped[schedule.0][command] { Ok(()) } else { self.device.issue(schedule, command) }
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

    fn set_timing(&mut self, on: bool) {
        self.device.set_timing(on);
    }

    fn timeline(&mut self) -> Option<Timeline> {
        self.device.timeline()
    }
}
