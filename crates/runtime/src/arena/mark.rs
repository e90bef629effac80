//! The high-water mark: the highest byte of an arena that no longer holds a fill pattern. It is a measurement, so that the
//! planner's sums are checked by something that does not add.

use super::{Access, Arena, ByteRegion};
use crate::DeviceError;
use rayon::prelude::*;

/// A multiple of 8, so that chunks start at words.
pub(super) const CHUNK: usize = 1 << 20;

/// The fill of word `index`: pseudo-random by address, and of bytes 0x60..0x70, so that the last bytes of ordinary numbers
/// (floats below 10^19, small integers, zeros, the 0xFF of a poison) differ from it with certainty.
fn pattern(index: u64) -> [u8; 8] {
    let mixed = (index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ mixed >> 29) & 0x0F0F_0F0F_0F0F_0F0F | 0x6060_6060_6060_6060).to_le_bytes()
}

impl Arena {
    /// Writes the pattern that [`Arena::highest_changed`] looks for.
    ///
    /// # Errors
    /// [`DeviceError::Conflict`] while anything is borrowed.
    pub fn fill_pattern(&self) -> Result<(), DeviceError> {
        let whole = Access::new("fill pattern", &[], &[ByteRegion::contiguous(0, self.bytes)])?;
        for writing in self.borrow(&whole)?.open().writes {
            let bytes = writing.view::<u8>()?.into_slice().unwrap_or_default();
            bytes.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, bytes)| {
                for (index, word) in bytes.chunks_mut(8).enumerate() {
                    let pattern = pattern((chunk * CHUNK / 8 + index) as u64);
                    word.copy_from_slice(&pattern[..word.len()]);
                }
            });
        }
        Ok(())
    }

    /// One past the highest byte that no longer holds the pattern; 0 when all do.
    ///
    /// # Errors
    /// [`DeviceError::Conflict`] while anything is being written.
    pub fn highest_changed(&self) -> Result<u64, DeviceError> {
        let whole = Access::new("measured peak", &[ByteRegion::contiguous(0, self.bytes)], &[])?;
        let mut borrow = self.borrow(&whole)?;
        let bytes = match borrow.open().reads.first() {
            Some(reading) => reading.view::<u8>()?.as_slice().unwrap_or_default(),
            None => &[],
        };
        let changed = |(index, word): (usize, &[u8])| {
            let pattern = pattern(index as u64);
            (0..word.len()).rev().find(|&at| word[at] != pattern[at]).map(|at| (index * 8 + at + 1) as u64)
        };
        Ok(bytes.chunks(8).enumerate().rev().find_map(changed).unwrap_or(0))
    }
}
