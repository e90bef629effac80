//! The contract between the executor and a device.

use crate::DeviceError;
use std::path::Path;
use std::sync::Arc;
use vdnn_graph::{Graph, Program};
use vdnn_schedule::{KernelTable, Schedule, Space, Timeline};
use vdnn_tensor::Bytes;

/// What a device is, for reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// Short name: `cpu`, `cuda:0`, `null`, `chaos`.
    pub name: String,
    /// Hardware and library versions.
    pub details: String,
    /// Bytes taken outside the arena by the driver's context and loaded modules.
    pub context_bytes: Bytes,
}

/// What kernels may be offered to the planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRequest {
    /// Only kernels whose results never vary between runs.
    pub deterministic: bool,
    /// No kernel that wants more workspace.
    pub workspace_limit: Option<Bytes>,
    /// Also kernels in pieces of the batch, for plans within so many bytes. A device that has to measure them may leave out
    /// those whose workspace is small beside that.
    pub pieces_within: Option<Bytes>,
}

impl KernelRequest {
    /// Kernels of the whole batch, with any workspace.
    pub fn whole(deterministic: bool) -> Self {
        KernelRequest { deterministic, workspace_limit: None, pieces_within: None }
    }
}

/// A schedule made ready on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PreparedId(pub usize);

/// Something that runs a schedule's commands.
///
/// Life: `kernel_table` → (plan) → `reserve` once (and `reserve_disk`, `reserve_staging`) → `prepare` each schedule → per iteration `begin`, `issue` every command
/// in order, `finish`. Between iterations the host reads and writes homes. Nothing is allocated after the first `begin`.
pub trait Device {
    /// What this device is.
    fn description(&self) -> Description;

    /// The algorithms this device offers for each node, with workspace and time, fastest first.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] for a node no kernel can run.
    fn kernel_table(&mut self, graph: &Graph, request: KernelRequest) -> Result<KernelTable, DeviceError>;

    /// Takes the arenas, once, large enough for every schedule to come.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    fn reserve(&mut self, device: Bytes, host: Bytes) -> Result<(), DeviceError>;

    /// Says in which folder [`Device::reserve_disk`] takes its file, where that is a file.
    fn set_disk_folder(&mut self, _folder: &Path) {}

    /// Takes what schedules rest on disk, once, after [`Device::reserve`] and before anything is prepared. Nothing is taken
    /// for no bytes.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] for a device without a disk, [`DeviceError::DiskFolder`] without the room.
    fn reserve_disk(&mut self, bytes: Bytes) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        let (what, reason) = ("a disk tier", format!("{} cannot have values rest on disk", self.description().name));
        let advice = "Leave out --disk-budget.".to_string();
        Err(DeviceError::Unavailable { what: what.to_string(), reason, advice })
    }

    /// Says which bytes of the device arena, used by no schedule, [`Device::stage`] fills while iterations run; once, after
    /// [`Device::reserve`].
    ///
    /// # Errors
    /// [`DeviceError`] when they lie outside the arena, or a device cannot have them.
    fn reserve_staging(&mut self, offset: Bytes, bytes: Bytes) -> Result<(), DeviceError>;

    /// Makes descriptors, kernels and events for a schedule.
    ///
    /// # Errors
    /// [`DeviceError`] when a launch cannot run as the schedule says, or the arenas are too small.
    fn prepare(&mut self, program: Arc<Program>, schedule: Arc<Schedule>) -> Result<PreparedId, DeviceError>;

    /// Starts an iteration of a prepared schedule.
    ///
    /// # Errors
    /// [`DeviceError`] when the device is in a failed state.
    fn begin(&mut self, schedule: PreparedId) -> Result<(), DeviceError>;

    /// Issues one command (index into the schedule's commands) on its stream. May return before it has run.
    ///
    /// # Errors
    /// [`DeviceError`] when the command cannot be issued.
    fn issue(&mut self, schedule: PreparedId, command: usize) -> Result<(), DeviceError>;

    /// Waits until everything issued has run.
    ///
    /// # Errors
    /// The first failure of any command of the iteration.
    fn finish(&mut self) -> Result<(), DeviceError>;

    /// Writes contiguous bytes of a space's arena between iterations.
    ///
    /// # Errors
    /// [`DeviceError`] when the space has no arena here, or the range lies outside it.
    fn write(&mut self, space: Space, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Writes bytes of the staging region, also while an iteration runs. Has read `bytes` when it returns; the copy may still be
    /// on its way.
    ///
    /// # Errors
    /// [`DeviceError`] when the range lies outside the region.
    fn stage(&mut self, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Copies bytes of the staging region, once they have arrived, to a place of the device arena, between iterations.
    ///
    /// # Errors
    /// [`DeviceError`] when a range lies outside the region or the arena.
    fn load_staged(&mut self, from: Bytes, to: Bytes, bytes: Bytes) -> Result<(), DeviceError>;

    /// Reads contiguous bytes of a space's arena between iterations.
    ///
    /// # Errors
    /// [`DeviceError`] when the space has no arena here, or the range lies outside it.
    fn read(&mut self, space: Space, offset: Bytes, bytes: &mut [u8]) -> Result<(), DeviceError>;

    /// Memory actually used: on the CPU one past the highest byte of the device arena changed from a fill pattern, on
    /// CUDA the drop in free memory. `None` where nothing is measured.
    fn measured_peak(&mut self) -> Option<Bytes>;

    /// The same of the host arena, on the CPU.
    fn measured_host_peak(&mut self) -> Option<Bytes> {
        None
    }

    /// Turns per-command timing on or off.
    fn set_timing(&mut self, on: bool);

    /// Whether iterations may be launched as a whole, where the device can; on unless turned off. Turned off before
    /// [`Device::prepare`], nothing is captured. Per-command timing issues command by command in any case.
    fn set_replay(&mut self, _on: bool) {}

    /// Times of the last iteration's commands, when timing is on.
    fn timeline(&mut self) -> Option<Timeline>;
}

/// A device chosen at run time.
impl<D: Device + ?Sized> Device for Box<D> {
    fn description(&self) -> Description {
        (**self).description()
    }

    fn kernel_table(&mut self, graph: &Graph, request: KernelRequest) -> Result<KernelTable, DeviceError> {
        (**self).kernel_table(graph, request)
    }

    fn reserve(&mut self, device: Bytes, host: Bytes) -> Result<(), DeviceError> {
        (**self).reserve(device, host)
    }

    fn set_disk_folder(&mut self, folder: &Path) {
        (**self).set_disk_folder(folder);
    }

    fn reserve_disk(&mut self, bytes: Bytes) -> Result<(), DeviceError> {
        (**self).reserve_disk(bytes)
    }

    fn reserve_staging(&mut self, offset: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        (**self).reserve_staging(offset, bytes)
    }

    fn prepare(&mut self, program: Arc<Program>, schedule: Arc<Schedule>) -> Result<PreparedId, DeviceError> {
        (**self).prepare(program, schedule)
    }

    fn begin(&mut self, schedule: PreparedId) -> Result<(), DeviceError> {
        (**self).begin(schedule)
    }

    fn issue(&mut self, schedule: PreparedId, command: usize) -> Result<(), DeviceError> {
        (**self).issue(schedule, command)
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        (**self).finish()
    }

    fn write(&mut self, space: Space, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        (**self).write(space, offset, bytes)
    }

    fn stage(&mut self, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        (**self).stage(offset, bytes)
    }

    fn load_staged(&mut self, from: Bytes, to: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        (**self).load_staged(from, to, bytes)
    }

    fn read(&mut self, space: Space, offset: Bytes, bytes: &mut [u8]) -> Result<(), DeviceError> {
        (**self).read(space, offset, bytes)
    }

    fn measured_peak(&mut self) -> Option<Bytes> {
        (**self).measured_peak()
    }

    fn measured_host_peak(&mut self) -> Option<Bytes> {
        (**self).measured_host_peak()
    }

    fn set_timing(&mut self, on: bool) {
        (**self).set_timing(on);
    }

    fn set_replay(&mut self, on: bool) {
        (**self).set_replay(on);
    }

    fn timeline(&mut self) -> Option<Timeline> {
        (**self).timeline()
    }
}
