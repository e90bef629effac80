//! The memory of a device: two arenas, taken once, and the pinned bytes through which the host's batches pass.

use vdnn_runtime::DeviceError;
use vdnn_schedule::{Direction, Space};

use std::sync::Arc;

use super::backend;
use super::disk::{DiskCopy, DiskTier};
use super::feeding::Feeding;
use super::gpu::Gpu;
use super::staging::{Staging, fill};
use crate::CudaError;
use crate::context::Stream;
use crate::memory::{DeviceArena, PAGE, PinnedArena, Rows, offload, prefetch};

/// A byte that makes a number read before it was written not a number.
const POISON: u8 = 0xFF;
/// Least staging memory: weights pass through it as well.
const LEAST_STAGED: u64 = 16 << 20;
/// Both arenas of a schedule.
#[derive(Debug)]
pub(super) struct Arenas {
    /// Where the next batch is copied while an iteration runs. Dropped first, since its copies end in the device arena.
    feeding: Option<Feeding>,
    device: DeviceArena,
    host: Option<PinnedArena>,
    /// For what the host writes between iterations.
    staging: Staging,
    /// The file for what the host arena does not hold.
    pub disk: Option<Arc<DiskTier>>,
    /// Device memory that the driver took for page tables, of the pinned host arena and of the device arena.
    page_tables: u64,
}

impl Arenas {
    /// Takes both arenas, or says what is missing.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] with what is free or allowed.
    pub fn new(gpu: &Gpu, device: u64, host: u64) -> Result<Self, DeviceError> {
        let (free, total) = gpu.context.memory().map_err(backend)?;
        if device > free {
            let reason = format!(
                "{free} of {total} bytes are free; lower --budget or --batch-size, or end other programs on the GPU"
            );
            return Err(DeviceError::OutOfMemory { space: "device", bytes: device, reason });
        }
        // The host first: it is refused by limits, before anything is taken.
        let host = (host > 0).then(|| PinnedArena::new(&gpu.context, host)).transpose().map_err(backend)?;
        let left = gpu.free_bytes().map_err(backend)?;
        let device = DeviceArena::new(&gpu.context, device).map_err(backend)?;
        // An arena of n pages wants n entries: now and then they begin another page of tables, never more than one for so few.
        let taken = left.saturating_sub(gpu.free_bytes().map_err(backend)?);
        let own = taken.saturating_sub(device.bytes() + device.page_rest()).min(PAGE);
        let page_tables = free.saturating_sub(left) + own;
        device.fill(&gpu.streams.compute, 0, device.bytes(), POISON).map_err(backend)?;
        gpu.streams.compute.synchronize().map_err(backend)?;
        Ok(Arenas { feeding: None, device, host, staging: Staging::default(), disk: None, page_tables })
    }

    pub fn device_bytes(&self) -> u64 {
        self.device.bytes()
    }

    /// Device memory that goes with the arenas besides the device arena's bytes: the rest of its last page (computed) and
    /// page tables (measured while pinning and while taking the device arena, and of that one page at most).
    pub fn overhead(&self) -> u64 {
        self.device.page_rest() + self.page_tables
    }

    pub fn host_bytes(&self) -> u64 {
        self.host.as_ref().map_or(0, PinnedArena::bytes)
    }

    /// Bytes of a space's arena.
    pub fn bytes_of(&self, space: Space) -> u64 {
        match space {
            Space::Device => self.device_bytes(),
            Space::Host => self.host_bytes(),
            Space::Disk => self.disk.as_ref().map_or(0, |disk| disk.bytes()),
        }
    }

    /// Pinned bytes besides the host arena.
    pub fn staging_bytes(&self) -> u64 {
        self.staging.reserved_bytes() + self.feeding.as_ref().map_or(0, Feeding::pinned_bytes)
    }

    /// The device address of a byte of the device arena.
    pub fn address(&self, offset: u64) -> u64 {
        self.device.address(offset)
    }

    /// Makes room for `bytes` written between two iterations, as far as the host has it.
    pub fn make_room(&mut self, gpu: &Gpu, bytes: u64) -> Result<(), CudaError> {
        let bytes = Staging::granted(bytes.max(LEAST_STAGED));
        if bytes > self.staging.bytes() {
            gpu.streams.compute.synchronize()?;
            self.staging = Staging::default();
            self.staging = Staging::new(gpu, bytes);
        }
        Ok(())
    }

    /// Takes what copying to a region of the device arena wants while iterations run.
    pub fn reserve_feeding(&mut self, gpu: &Gpu, offset: u64, bytes: u64) -> Result<(), CudaError> {
        self.feeding = Some(Feeding::new(gpu, offset, bytes)?);
        Ok(())
    }

    /// The way to the staging region, if that holds so many bytes there, and the device arena.
    pub fn feeding(&mut self, offset: u64, bytes: u64) -> Option<(&mut Feeding, &DeviceArena)> {
        self.feeding.as_mut().filter(|feeding| feeding.holds(offset, bytes)).map(|feeding| (feeding, &self.device))
    }

    /// A copy between a slot of the host arena and the file, ready to be queued.
    ///
    /// # Errors
    /// What is missing, or does not lie in one piece.
    pub fn disk_copy(&self, direction: Direction, slot: Rows, file: Rows) -> Result<Arc<DiskCopy>, String> {
        let (Some(host), Some(disk)) = (&self.host, &self.disk) else {
            return Err("expected host memory and a disk reserved before".to_string());
        };
        if slot.rows > 1 || file.rows > 1 || slot.offset + slot.bytes() > host.bytes() {
            return Err(format!("expected one piece to or from disk, found {} and {} rows", slot.rows, file.rows));
        }
        let at = host.base().wrapping_add(slot.offset as usize);
        // SAFETY: the slot lies within the host arena, which the device drops after its streams have run dry; the schedule,
        // which was checked, gives its bytes to this copy while it runs.
        Ok(unsafe { DiskCopy::new(Arc::clone(disk), direction, at, slot.bytes() as usize, file.offset) })
    }

    /// Queues a transfer of a schedule on the stream that the schedule names.
    pub fn transfer(&self, stream: &Stream, direction: Direction, src: Rows, dst: Rows) -> Result<(), CudaError> {
        match (&self.host, direction) {
            (Some(host), Direction::Offload) => offload(stream, &self.device, src, host, dst),
            (Some(host), Direction::Prefetch) => prefetch(stream, host, src, &self.device, dst),
            // Without a host arena a region of it can only be empty: `prepare` checked.
            (None, _) => Ok(()),
        }
    }

    /// Writes bytes of the device arena: through pinned memory, so that the copy runs on while the host goes on.
    pub fn write(&mut self, gpu: &Gpu, offset: u64, bytes: &[u8]) -> Result<(), CudaError> {
        self.staging.write(&gpu.streams.compute, &self.device, offset, bytes)
    }

    /// Reads bytes of the device arena and waits for them.
    pub fn read(&mut self, gpu: &Gpu, offset: u64, bytes: &mut [u8]) -> Result<(), CudaError> {
        self.device.read(&gpu.streams.compute, offset, bytes)?;
        self.settled();
        Ok(())
    }

    /// Writes bytes of the host arena, where what streams has its homes. No copy of them may be under way.
    pub fn write_host(&self, offset: u64, bytes: &[u8]) -> Result<(), CudaError> {
        self.host.as_ref().map_or(Ok(()), |host| fill(host, offset, bytes))
    }

    /// Reads bytes of the host arena. No copy of them may be under way.
    pub fn read_host(&self, offset: u64, bytes: &mut [u8]) -> Result<(), CudaError> {
        self.host.as_ref().map_or(Ok(()), |host| host.read(offset, bytes))
    }

    /// All copies of the compute stream have ended: what the host writes between iterations has arrived.
    pub fn settled(&mut self) {
        self.staging.settled();
    }
}
