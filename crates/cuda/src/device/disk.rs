//! What rests on disk: between slots of the pinned arena and a file, by functions of the host on a stream of their own.
//!
//! ```text
//!  disk stream   ─ wait ─ [host function: write the slot to the file] ─ record ─ wait ─ [host function: read] ─ record ─▶
//! ```
//! The driver calls them on a thread of its own, in the stream's order, and they may not call it. A failure is therefore kept
//! until the iteration ends; what is queued after it does nothing, so the rest of the iteration computes with whatever is
//! there and is given up as a whole. Schedules that use the disk are not captured (`replay`).

use core::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use vdnn_runtime::{DeviceError, DiskFile};
use vdnn_schedule::Direction;

use crate::CudaError;
use crate::context::Stream;

/// The file of a device, and the first failure of the iteration under way.
#[derive(Debug)]
pub(super) struct DiskTier {
    file: DiskFile,
    failure: Mutex<Option<DeviceError>>,
}

impl DiskTier {
    pub fn new(file: DiskFile) -> Arc<Self> {
        Arc::new(DiskTier { file, failure: Mutex::new(None) })
    }

    pub fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// The failure of the iteration that has ended, if one of its copies failed.
    pub fn take_failure(&self) -> Option<DeviceError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// One copy between a slot of the pinned arena and the file.
#[derive(Debug)]
pub(super) struct DiskCopy {
    tier: Arc<DiskTier>,
    direction: Direction,
    /// Address of the slot. Its bytes belong to the pinned arena.
    slot: usize,
    bytes: usize,
    /// First byte in the file.
    offset: u64,
}

impl DiskCopy {
    /// # Safety
    /// `slot` points at `bytes` bytes that stay mapped until the disk stream has run every queued copy, and that nothing else
    /// touches while the copy runs.
    pub unsafe fn new(
        tier: Arc<DiskTier>,
        direction: Direction,
        slot: *mut u8,
        bytes: usize,
        offset: u64,
    ) -> Arc<Self> {
        Arc::new(DiskCopy { tier, direction, slot: slot as usize, bytes, offset })
    }

    /// Queues the copy.
    pub fn queue(self: &Arc<Self>, stream: &Stream) -> Result<(), CudaError> {
        let argument = Arc::into_raw(Arc::clone(self)).cast_mut().cast::<c_void>();
        // SAFETY: `run_queued` takes the reference that the argument is, once; it touches files and pinned memory only.
        let queued = unsafe { stream.call(run_queued, argument) };
        if queued.is_err() {
            // SAFETY: the driver did not take the call, so the reference is still ours.
            drop(unsafe { Arc::from_raw(argument.cast_const().cast::<DiskCopy>()) });
        }
        queued
    }

    /// Copies, unless an earlier copy of the iteration has failed.
    fn run(&self) {
        let mut failure = self.tier.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_some() {
            return;
        }
        let slot = self.slot as *mut u8;
        let copied = match self.direction {
            // SAFETY: by `new`: the bytes are mapped, and the schedule, which was checked, gives them to this copy alone.
            Direction::Offload => {
                self.tier.file.write(self.offset, unsafe { std::slice::from_raw_parts(slot, self.bytes) })
            }
            // SAFETY: as above.
            Direction::Prefetch => {
                self.tier.file.read(self.offset, unsafe { std::slice::from_raw_parts_mut(slot, self.bytes) })
            }
        };
        *failure = copied.err();
    }
}

/// What the driver calls.
///
/// # Safety
/// `argument` is a reference of an `Arc<DiskCopy>`, which is taken.
unsafe extern "C" fn run_queued(argument: *mut c_void) {
    // SAFETY: as stated.
    let copy = unsafe { Arc::from_raw(argument.cast_const().cast::<DiskCopy>()) };
    copy.run();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(copy: &Arc<DiskCopy>) {
        let argument = Arc::into_raw(Arc::clone(copy)).cast_mut().cast::<c_void>();
        // SAFETY: the argument is a reference of the copy, which lives on.
        unsafe { run_queued(argument) };
    }

    #[test]
    fn queued_copies_move_bytes_and_give_their_references_back() {
        let folder = tempfile::tempdir().unwrap();
        let tier = DiskTier::new(DiskFile::create(folder.path(), 64).unwrap());
        let mut slot: Vec<u8> = (0..32).collect();
        // SAFETY: the slot outlives both copies, which run one after the other on this thread.
        let (down, up) = unsafe {
            let at = slot.as_mut_ptr();
            (
                DiskCopy::new(Arc::clone(&tier), Direction::Offload, at, 32, 32),
                DiskCopy::new(Arc::clone(&tier), Direction::Prefetch, at, 32, 32),
            )
        };
        call(&down);
        slot.fill(0);
        call(&up);
        assert_eq!(slot, (0..32).collect::<Vec<u8>>());
        assert_eq!((Arc::strong_count(&down), Arc::strong_count(&up)), (1, 1));
        assert!(tier.take_failure().is_none());
    }

    #[test]
    fn a_failure_is_kept_and_ends_what_follows() {
        let folder = tempfile::tempdir().unwrap();
        let tier = DiskTier::new(DiskFile::create(folder.path(), 64).unwrap());
        let mut slot = vec![7u8; 32];
        // SAFETY: as above.
        let (beyond, up) = unsafe {
            let at = slot.as_mut_ptr();
            (
                DiskCopy::new(Arc::clone(&tier), Direction::Offload, at, 32, 40),
                DiskCopy::new(Arc::clone(&tier), Direction::Prefetch, at, 32, 0),
            )
        };
        call(&beyond);
        call(&up);
        assert_eq!(slot, vec![7; 32], "nothing is read after a failure");
        let failure = tier.take_failure().unwrap().to_string();
        assert!(failure.contains("cannot write 32 bytes at 40"), "{failure}");
        assert!(tier.take_failure().is_none(), "the next iteration starts anew");
        call(&up);
        assert_eq!(slot, vec![0; 32]);
    }
}
