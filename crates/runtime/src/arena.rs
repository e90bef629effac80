//! The memory a CPU device plans in, and the views kernels see of it. The only `unsafe` of this crate.
//!
//! ```text
//!   Access ──Arena::borrow──► Borrow ──open──► Reading, Writing ──view::<T>──► View, ViewMut
//!   (bytes)   refused while a conflicting                (size and alignment checked)
//!             borrow is live
//! ```
//!
//! The borrow check makes the arena sound whatever a schedule says: a race that `check` would have found is refused here
//! as [`DeviceError::Conflict`], it is never undefined behaviour. `arena/access.rs` says which accesses meet, `arena/view.rs` has
//! the views, `arena/mark.rs` measures how high an arena was written.
#![allow(unsafe_code)]

mod access;
mod mark;
mod view;

pub use access::{Access, ByteRegion};
pub use view::{View, ViewMut};

use crate::DeviceError;
use bytemuck::Pod;
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use view::Elements;

/// The block's own alignment; offsets inside it are aligned by the plan.
const ALIGNMENT: usize = 4096;

/// One fixed block of bytes, handed out in parts that never conflict.
#[derive(Debug)]
pub struct Arena {
    pointer: NonNull<u8>,
    layout: Layout,
    bytes: u64,
    live: Mutex<Live>,
}

/// The borrows that exist.
#[derive(Debug, Default)]
struct Live {
    next: u64,
    held: Vec<(u64, Arc<Access>)>,
}

// SAFETY: the block belongs to the arena alone, and its bytes are reached only through borrows, which exclude each other
// under a lock.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and no borrow outlives the arena.
        unsafe { std::alloc::dealloc(self.pointer.as_ptr(), self.layout) }
    }
}

impl Arena {
    /// A block of zeros. `space` names the memory in errors.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn new(space: &'static str, bytes: u64) -> Result<Self, DeviceError> {
        let refuse = |reason: &str| DeviceError::OutOfMemory { space, bytes, reason: reason.to_string() };
        let size = usize::try_from(bytes).map_err(|_| refuse("more than this machine can address"))?;
        let layout = Layout::from_size_align(size.max(1), ALIGNMENT)
            .map_err(|_| refuse("more than this machine can address"))?;
        // SAFETY: the layout's size is not zero.
        let pointer = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) });
        let pointer = pointer.ok_or_else(|| refuse("the system has not that much memory"))?;
        Ok(Arena { pointer, layout, bytes, live: Mutex::default() })
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Borrows an access's bytes until the borrow is dropped.
    ///
    /// # Errors
    /// [`DeviceError::Conflict`] while a conflicting borrow is live, [`DeviceError::Schedule`] beyond the arena's end.
    pub fn borrow(&self, access: &Arc<Access>) -> Result<Borrow<'_>, DeviceError> {
        if access.end() > self.bytes {
            let reason = format!("expected bytes within an arena of {}, found an end of {}", self.bytes, access.end());
            return Err(DeviceError::Schedule { place: access.label().to_string(), reason });
        }
        let mut live = self.live();
        if let Some((_, first)) = live.held.iter().find(|(_, held)| held.conflicts(access)) {
            let (first, second) = (first.label().to_string(), access.label().to_string());
            return Err(DeviceError::Conflict { first, second });
        }
        let id = live.next;
        live.next += 1;
        live.held.push((id, Arc::clone(access)));
        Ok(Borrow { arena: self, access: Arc::clone(access), id })
    }

    /// Writes one byte value over all written regions of an access.
    ///
    /// # Errors
    /// As [`Arena::borrow`].
    pub fn fill(&self, access: &Arc<Access>, byte: u8) -> Result<(), DeviceError> {
        for writing in self.borrow(access)?.open().writes {
            writing.view::<u8>()?.for_each_row(|row| row.fill(byte));
        }
        Ok(())
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of an arena that nobody else may touch in a conflicting way while this lives.
#[derive(Debug)]
pub struct Borrow<'a> {
    arena: &'a Arena,
    access: Arc<Access>,
    id: u64,
}

impl Drop for Borrow<'_> {
    fn drop(&mut self) {
        self.arena.live().held.retain(|(id, _)| *id != self.id);
    }
}

/// A borrow's regions, in the access's order.
#[derive(Debug)]
pub struct Opened<'b> {
    /// Regions to read.
    pub reads: Vec<Reading<'b>>,
    /// Regions to write.
    pub writes: Vec<Writing<'b>>,
}

/// One region to read, its element type not yet chosen.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'b> {
    arena: &'b Arena,
    region: ByteRegion,
}

/// One region to write, its element type not yet chosen.
#[derive(Debug)]
pub struct Writing<'b> {
    arena: &'b Arena,
    region: ByteRegion,
}

impl Borrow<'_> {
    /// The regions; each opening ends before the next (it borrows the borrow).
    pub fn open(&mut self) -> Opened<'_> {
        let arena = self.arena;
        Opened {
            reads: self.access.reads().iter().map(|&region| Reading { arena, region }).collect(),
            writes: self.access.writes().iter().map(|&region| Writing { arena, region }).collect(),
        }
    }
}

impl<'b> Reading<'b> {
    /// The region as elements.
    ///
    /// # Errors
    /// [`DeviceError::Schedule`] when it does not divide into aligned elements.
    pub fn view<T: Pod>(&self) -> Result<View<'b, T>, DeviceError> {
        let elements = elements::<T>(self.arena, &self.region)?;
        // SAFETY: the borrow this was opened from holds the region, to read, for longer than 'b.
        Ok(unsafe { View::over(elements) })
    }
}

impl<'b> Writing<'b> {
    /// The region as elements.
    ///
    /// # Errors
    /// [`DeviceError::Schedule`] when it does not divide into aligned elements.
    pub fn view<T: Pod>(self) -> Result<ViewMut<'b, T>, DeviceError> {
        let elements = elements::<T>(self.arena, &self.region)?;
        // SAFETY: the borrow this was opened from holds the region, to write, for longer than 'b, and this is its only view.
        Ok(unsafe { ViewMut::over(elements) })
    }
}

/// Any bytes are a valid `Pod`, so a view of a region only needs bounds and alignment.
fn elements<T: Pod>(arena: &Arena, region: &ByteRegion) -> Result<Elements<T>, DeviceError> {
    let size = size_of::<T>() as u64;
    let whole = [region.offset, region.row_bytes, region.stride].iter().all(|bytes| bytes.is_multiple_of(size));
    if !whole {
        let reason = format!("expected multiples of {size} bytes, found {region:?}");
        return Err(DeviceError::Schedule { place: "an operand".to_string(), reason });
    }
    // SAFETY: `Arena::borrow` checked the region against the arena's size, so the offset lies within the block (or is its
    // end, for an empty region).
    let pointer = unsafe { arena.pointer.as_ptr().add(region.offset as usize) }.cast::<T>();
    let (rows, row_len, stride) = (region.rows, region.row_bytes / size, region.stride / size);
    Ok(Elements { pointer, rows: rows as usize, row_len: row_len as usize, stride: stride as usize })
}

#[cfg(test)]
mod tests;
