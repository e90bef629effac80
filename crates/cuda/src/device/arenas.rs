//! The memory of a device: two arenas, taken once, and the pinned bytes through which the host's batches pass.

use vdnn_runtime::DeviceError;
use vdnn_schedule::{Direction, Space};

use std::sync::Arc;

use super::backend;
use super::disk::{DiskCopy, DiskTier};
use super::gpu::Gpu;
use crate::CudaError;
use crate::context::Stream;
use crate::memory::{DeviceArena, HostLimits, PAGE, PinnedArena, Rows, offload, prefetch};

/// A byte that makes a number read before it was written not a number.
const POISON: u8 = 0xFF;
/// From here on several threads copy, because one reaches a fifth of the link's rate.
const PARALLEL_BYTES: usize = 4 << 20;
const COPY_THREADS: usize = 8;
/// Least staging memory: weights pass through it as well.
const LEAST_STAGED: u64 = 16 << 20;
/// Most bytes of a batch on their way at once.
const MOST_STAGED: u64 = 512 << 20;

/// Both arenas of a schedule.
#[derive(Debug)]
pub(super) struct Arenas {
    device: DeviceArena,
    host: Option<PinnedArena>,
    staging: Option<PinnedArena>,
    /// The file for what the host arena does not hold.
    pub disk: Option<Arc<DiskTier>>,
    /// Device memory that the driver took for page tables, of the pinned host arena and of the device arena.
    page_tables: u64,
    /// Bytes of the staging memory under copies that may still run.
    staged: u64,
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
        Ok(Arenas { device, host, staging: None, disk: None, page_tables, staged: 0 })
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
        self.staging.as_ref().map_or(0, PinnedArena::reserved_bytes)
    }

    /// The device address of a byte of the device arena.
    pub fn address(&self, offset: u64) -> u64 {
        self.device.address(offset)
    }

    /// Makes room for `bytes` written between two iterations, as far as the host has it.
    pub fn stage(&mut self, gpu: &Gpu, bytes: u64) -> Result<(), CudaError> {
        let most = MOST_STAGED.min(HostLimits::of_process().pinnable().unwrap_or(u64::MAX) / 4);
        let bytes = bytes.max(LEAST_STAGED).min(most);
        if bytes > self.staging.as_ref().map_or(0, PinnedArena::bytes) {
            gpu.streams.compute.synchronize()?;
            self.staging = None;
            // Without it batches are copied from pageable memory, which is slower and nothing else.
            self.staging = PinnedArena::new(&gpu.context, bytes).ok();
            self.staged = 0;
        }
        Ok(())
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
        let stream = &gpu.streams.compute;
        let Some(staging) = &self.staging else { return self.device.write(stream, offset, bytes) };
        let capacity = staging.bytes();
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            if self.staged == capacity {
                stream.synchronize()?;
                self.staged = 0;
            }
            let (piece, after) = rest.split_at(rest.len().min((capacity - self.staged) as usize));
            let length = piece.len() as u64;
            fill(staging, self.staged, piece)?;
            let (from, to) = (Rows::contiguous(self.staged, length), Rows::contiguous(at, length));
            prefetch(stream, staging, from, &self.device, to)?;
            (self.staged, at, rest) = (self.staged + length, at + length, after);
        }
        Ok(())
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

    /// All copies have ended: staging memory is free again.
    pub fn settled(&mut self) {
        self.staged = 0;
    }
}

/// Copies into pinned memory, with several threads when it is worth it.
fn fill(staging: &PinnedArena, offset: u64, bytes: &[u8]) -> Result<(), CudaError> {
    if bytes.len() < PARALLEL_BYTES {
        return staging.write(offset, bytes);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(COPY_THREADS);
    staging.write_by(threads, offset, bytes)
}
