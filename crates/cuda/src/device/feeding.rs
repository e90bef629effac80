//! The batch that comes next, copied while an iteration runs.
//!
//! ```text
//!  compute  ─ copy on device ● iteration ───────────────────────── wait ─ copy on device ● iteration
//!                            │ loaded                               ▲
//!  feed                      └ wait ─ host to staging region ─● arrived
//!  host       begin            pinned memory filled              finish
//! ```
//!
//! The region is written once what it held has been copied from it, on the device's order; pinned memory is filled again once
//! its copy has arrived, for which the host waits. A captured iteration reads its inputs at their homes, as ever.

use super::gpu::Gpu;
use super::staging::Staging;
use crate::CudaError;
use crate::context::{Event, Priority, Stream, Timing};
use crate::memory::{DeviceArena, copy_on_device};

/// The staging region of the device arena and the way there.
#[derive(Debug)]
pub(super) struct Feeding {
    /// First byte of the region, and bytes.
    region: (u64, u64),
    pinned: Staging,
    stream: Stream,
    /// On the feed stream, after the last copy to the region.
    arrived: Event,
    /// On the compute stream, after the last copy from it.
    loaded: Event,
    /// A batch was taken since pinned memory was filled: what comes next begins at its start.
    taken: bool,
}

impl Feeding {
    /// Makes everything that feeding needs.
    pub fn new(gpu: &Gpu, offset: u64, bytes: u64) -> Result<Self, CudaError> {
        Ok(Feeding {
            region: (offset, bytes),
            pinned: Staging::new(gpu, bytes),
            stream: Stream::new(&gpu.context, Priority::Normal)?,
            arrived: Event::new(&gpu.context, Timing::Off)?,
            loaded: Event::new(&gpu.context, Timing::Off)?,
            taken: false,
        })
    }

    /// Pinned bytes.
    pub fn pinned_bytes(&self) -> u64 {
        self.pinned.reserved_bytes()
    }

    /// Whether the region holds so many bytes there.
    pub fn holds(&self, offset: u64, bytes: u64) -> bool {
        let (first, size) = self.region;
        offset >= first && offset.checked_add(bytes).is_some_and(|end| end <= first + size)
    }

    /// Queues a copy of bytes to the region, which the region holds.
    pub fn stage(&mut self, arena: &DeviceArena, offset: u64, bytes: &[u8]) -> Result<(), CudaError> {
        if self.taken {
            // Events that were never recorded have happened.
            self.arrived.synchronize()?;
            self.pinned.settled();
            self.taken = false;
        }
        self.stream.wait(&self.loaded)?;
        self.pinned.write(&self.stream, arena, offset, bytes)?;
        self.stream.record(&self.arrived)
    }

    /// Queues a copy from the region on the compute stream, behind what is on its way there.
    pub fn load(&mut self, gpu: &Gpu, arena: &DeviceArena, from: u64, to: u64, bytes: u64) -> Result<(), CudaError> {
        let compute = &gpu.streams.compute;
        compute.wait(&self.arrived)?;
        copy_on_device(compute, arena, from, to, bytes)?;
        self.taken = true;
        compute.record(&self.loaded)
    }
}

impl Drop for Feeding {
    /// Copies under way read the pinned memory.
    fn drop(&mut self) {
        if self.stream.context().bind().is_ok() {
            // Nobody is left to hear of a failure.
            let _ = self.stream.synchronize();
        }
    }
}
