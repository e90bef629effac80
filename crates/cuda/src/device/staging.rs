//! Pinned memory through which bytes of the host pass on their way to the device arena, so that a copy runs on while the host
//! goes on.

use super::gpu::Gpu;
use crate::CudaError;
use crate::context::Stream;
use crate::memory::{DeviceArena, HostLimits, PinnedArena, Rows, prefetch};

/// From here on several threads copy, because one reaches a fifth of the link's rate.
const PARALLEL_BYTES: usize = 4 << 20;
const COPY_THREADS: usize = 8;
/// Most bytes on their way at once.
const MOST_STAGED: u64 = 512 << 20;

/// A pinned block, filled from its start.
#[derive(Debug, Default)]
pub(super) struct Staging {
    pinned: Option<PinnedArena>,
    /// Bytes under copies that may still run.
    filled: u64,
}

impl Staging {
    /// Room for `bytes`, as far as the host has it. Without any, bytes are copied from pageable memory, which is slower and
    /// nothing else.
    pub fn new(gpu: &Gpu, bytes: u64) -> Self {
        Staging { pinned: PinnedArena::new(&gpu.context, Self::granted(bytes)).ok(), filled: 0 }
    }

    /// What is had of so many bytes at most.
    pub fn granted(bytes: u64) -> u64 {
        bytes.min(MOST_STAGED).min(HostLimits::of_process().pinnable().unwrap_or(u64::MAX) / 4)
    }

    pub fn bytes(&self) -> u64 {
        self.pinned.as_ref().map_or(0, PinnedArena::bytes)
    }

    /// Bytes taken from the machine.
    pub fn reserved_bytes(&self) -> u64 {
        self.pinned.as_ref().map_or(0, PinnedArena::reserved_bytes)
    }

    /// Queues copies of bytes to the device arena on a stream, the only one that copies from here.
    pub fn write(&mut self, stream: &Stream, to: &DeviceArena, offset: u64, bytes: &[u8]) -> Result<(), CudaError> {
        let Some(pinned) = &self.pinned else { return to.write(stream, offset, bytes) };
        let capacity = pinned.bytes();
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            if self.filled == capacity {
                stream.synchronize()?;
                self.filled = 0;
            }
            let (piece, after) = rest.split_at(rest.len().min((capacity - self.filled) as usize));
            let length = piece.len() as u64;
            fill(pinned, self.filled, piece)?;
            let (from, into) = (Rows::contiguous(self.filled, length), Rows::contiguous(at, length));
            prefetch(stream, pinned, from, to, into)?;
            (self.filled, at, rest) = (self.filled + length, at + length, after);
        }
        Ok(())
    }

    /// All copies have ended: the block is free again.
    pub fn settled(&mut self) {
        self.filled = 0;
    }
}

/// Copies into pinned memory, with several threads when it is worth it.
pub(super) fn fill(pinned: &PinnedArena, offset: u64, bytes: &[u8]) -> Result<(), CudaError> {
    if bytes.len() < PARALLEL_BYTES {
        return pinned.write(offset, bytes);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(COPY_THREADS);
    pinned.write_by(threads, offset, bytes)
}
