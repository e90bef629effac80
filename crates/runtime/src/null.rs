//! A device that computes nothing: it counts what it is asked to do. Any schedule runs on it, in no time and no memory.

use crate::{Description, Device, DeviceError, KernelRequest, PreparedId};
use std::sync::Arc;
use vdnn_graph::{Graph, Program};
use vdnn_schedule::{Action, Choice, Direction, KernelTable, Schedule, Space, StreamRole, Timeline};
use vdnn_tensor::Bytes;

/// What a null device was asked to do since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Iterations finished.
    pub iterations: u64,
    /// Commands of all kinds.
    pub commands: u64,
    /// Kernel launches, recomputation included.
    pub launches: u64,
    /// Launches that recompute (run > 0).
    pub recomputed: u64,
    /// Buffers allocated.
    pub allocs: u64,
    /// Buffers freed.
    pub frees: u64,
    /// Events recorded.
    pub records: u64,
    /// Waits for events.
    pub waits: u64,
    /// Bytes moved from device to host by transfers.
    pub offload_bytes: Bytes,
    /// Bytes moved from host to device by transfers.
    pub prefetch_bytes: Bytes,
    /// Bytes moved from host memory to disk.
    pub to_disk_bytes: Bytes,
    /// Bytes moved from disk to host memory.
    pub from_disk_bytes: Bytes,
    /// Bytes of homes written by the host.
    pub written_bytes: Bytes,
    /// Bytes of homes read by the host.
    pub read_bytes: Bytes,
}

/// A device that counts.
#[derive(Debug, Default)]
pub struct NullDevice {
    reserved: Option<[Bytes; 2]>,
    disk: Bytes,
    schedules: Vec<Arc<Schedule>>,
    running: Option<PreparedId>,
    counts: Counts,
}

impl NullDevice {
    /// A device that has counted nothing.
    pub fn new() -> Self {
        NullDevice::default()
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn check_range(&self, space: Space, offset: Bytes, len: usize) -> Result<(), DeviceError> {
        let [device, host] = self.reserved.unwrap_or_default();
        let reserved = match space {
            Space::Device => device,
            Space::Host => host,
            Space::Disk => self.disk,
        };
        match offset.checked_add(len as Bytes) {
            Some(end) if end <= reserved => Ok(()),
            _ => Err(refuse("the host", format!("expected {len} bytes at {offset} within an arena of {reserved}"))),
        }
    }
}

fn refuse(place: &str, reason: String) -> DeviceError {
    DeviceError::Schedule { place: place.to_string(), reason }
}

impl Device for NullDevice {
    fn description(&self) -> Description {
        Description { name: "null".to_string(), details: "counts, computes nothing".to_string(), context_bytes: 0 }
    }

    /// One choice a node, without workspace.
    fn kernel_table(&mut self, graph: &Graph, _request: KernelRequest) -> Result<KernelTable, DeviceError> {
        let choice = Choice { algorithm: "null".to_string(), workspace: 0, seconds: 1e-6, deterministic: true };
        Ok(KernelTable::new(vec![vec![choice]; graph.nodes().len()]))
    }

    fn reserve(&mut self, device: Bytes, host: Bytes) -> Result<(), DeviceError> {
        if let Some([device, host]) = self.reserved {
            return Err(refuse(
                "reserve",
                format!("expected it once, found {device} and {host} bytes reserved before"),
            ));
        }
        self.reserved = Some([device, host]);
        Ok(())
    }

    fn reserve_disk(&mut self, bytes: Bytes) -> Result<(), DeviceError> {
        self.disk = bytes;
        Ok(())
    }

    fn reserve_staging(&mut self, offset: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        self.check_range(Space::Device, offset, bytes as usize)
    }

    fn prepare(&mut self, _program: Arc<Program>, schedule: Arc<Schedule>) -> Result<PreparedId, DeviceError> {
        let [device, host] = self.reserved.unwrap_or_default();
        for (space, reserved) in [(Space::Device, device), (Space::Host, host), (Space::Disk, self.disk)] {
            let needed = schedule.peak_bytes(space);
            if needed > reserved {
                let reason = format!("expected {needed} bytes of {space:?} memory, found {reserved} reserved");
                return Err(refuse(&schedule.name, reason));
            }
        }
        self.schedules.push(schedule);
        Ok(PreparedId(self.schedules.len() - 1))
    }

    fn begin(&mut self, schedule: PreparedId) -> Result<(), DeviceError> {
        if self.running.is_some() || schedule.0 >= self.schedules.len() {
            return Err(refuse("begin", "expected a prepared schedule and no iteration running".to_string()));
        }
        self.running = Some(schedule);
        Ok(())
    }

    fn issue(&mut self, schedule: PreparedId, command: usize) -> Result<(), DeviceError> {
        if self.running != Some(schedule) {
            return Err(refuse("issue", "expected the schedule that was begun".to_string()));
        }
        let schedule = &self.schedules[schedule.0];
        let Some(command) = schedule.commands.get(command) else {
            return Err(refuse("issue", format!("expected a command of the schedule, found number {command}")));
        };
        let on_disk = schedule.streams.get(command.stream.index()) == Some(&StreamRole::Disk);
        let counts = &mut self.counts;
        counts.commands += 1;
        match &command.action {
            Action::Alloc(_) => counts.allocs += 1,
            Action::Free(_) => counts.frees += 1,
            Action::Launch { run, .. } => {
                counts.launches += 1;
                counts.recomputed += u64::from(*run > 0);
            }
            Action::Transfer { direction: Direction::Offload, src, .. } if on_disk => {
                counts.to_disk_bytes += src.bytes();
            }
            Action::Transfer { direction: Direction::Prefetch, src, .. } if on_disk => {
                counts.from_disk_bytes += src.bytes();
            }
            Action::Transfer { direction: Direction::Offload, src, .. } => counts.offload_bytes += src.bytes(),
            Action::Transfer { direction: Direction::Prefetch, src, .. } => counts.prefetch_bytes += src.bytes(),
            Action::Record(_) => counts.records += 1,
            Action::Wait(_) => counts.waits += 1,
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        self.counts.iterations += u64::from(self.running.take().is_some());
        Ok(())
    }

    fn write(&mut self, space: Space, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check_range(space, offset, bytes.len())?;
        self.counts.written_bytes += bytes.len() as Bytes;
        Ok(())
    }

    fn stage(&mut self, offset: Bytes, bytes: &[u8]) -> Result<(), DeviceError> {
        self.write(Space::Device, offset, bytes)
    }

    fn load_staged(&mut self, from: Bytes, to: Bytes, bytes: Bytes) -> Result<(), DeviceError> {
        [from, to].into_iter().try_for_each(|offset| self.check_range(Space::Device, offset, bytes as usize))
    }

    /// Zeros.
    fn read(&mut self, space: Space, offset: Bytes, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.check_range(space, offset, bytes.len())?;
        self.counts.read_bytes += bytes.len() as Bytes;
        bytes.fill(0);
        Ok(())
    }

    fn measured_peak(&mut self) -> Option<Bytes> {
        None
    }

    fn set_timing(&mut self, _on: bool) {}

    fn timeline(&mut self) -> Option<Timeline> {
        None
    }
}
