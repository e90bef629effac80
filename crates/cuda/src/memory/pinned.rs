//! The pinned arena: host memory that the device copies from and to directly.
//!
//! Mapped, touched by several threads and then registered: an order of magnitude faster than letting the driver
//! allocate it, at the same copy rate. Only whole huge pages ask to be huge, so that not more than a page beyond the
//! request is ever resident.

use core::ffi::c_void;
use std::sync::Arc;

use super::limits::HostLimits;
use crate::CudaError;
use crate::context::Context;

const HUGE_PAGE: u64 = 2 << 20;
/// `CU_MEMHOSTREGISTER_PORTABLE`: pinned for every context of the process.
const PORTABLE: u32 = 1;

/// One block of pinned host memory.
#[derive(Debug)]
pub struct PinnedArena {
    mapping: Mapping,
    bytes: u64,
    context: Arc<Context>,
}

// SAFETY: the mapping belongs to the arena alone and may be moved with it to another thread.
unsafe impl Send for PinnedArena {}

impl PinnedArena {
    /// Maps and pins `bytes`. More than the machine or the container has is refused before anything is touched.
    pub fn new(context: &Arc<Context>, bytes: u64) -> Result<Self, CudaError> {
        let limits = HostLimits::of_process();
        if let Some(most) = limits.pinnable().filter(|most| bytes > *most) {
            return Err(refusal(bytes, &limits, format!("only {most} bytes can be had")));
        }
        let mapping = Mapping::new(bytes).map_err(|e| refusal(bytes, &limits, e))?;
        mapping.touch();
        if bytes > 0 {
            let driver = context.driver;
            let (start, length) = (mapping.start.cast::<c_void>(), mapping.length as usize);
            // SAFETY: the whole range is mapped, and unregistered in `drop` before it is unmapped.
            let status = unsafe { (driver.functions.host_register)(start, length, PORTABLE) };
            driver.check("cuMemHostRegister", status).map_err(|e| refusal(bytes, &limits, e.to_string()))?;
        }
        Ok(Self { mapping, bytes, context: context.clone() })
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes taken from the machine: the size, rounded up to a page.
    pub fn reserved_bytes(&self) -> u64 {
        self.mapping.length
    }

    /// Address of the first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.mapping.start
    }

    /// Copies `from` to `offset`. Copies queued on a stream for the same bytes must have ended.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), CudaError> {
        let at = self.at("pinned write", offset, from.len())?;
        // SAFETY: the range was checked; `from` is not in the arena, which hands out no references.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), at, from.len()) };
        Ok(())
    }

    /// Copies from `offset` into `to`. Copies queued on a stream for the same bytes must have ended.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), CudaError> {
        let at = self.at("pinned read", offset, to.len())?;
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(at, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// [`PinnedArena::write`] by several threads: one alone reaches a fifth of the link's rate.
    pub fn write_by(&self, threads: usize, offset: u64, from: &[u8]) -> Result<(), CudaError> {
        // As a number, because each thread copies to bytes of its own.
        let at = self.at("pinned write", offset, from.len())? as usize;
        let part = from.len().div_ceil(threads.max(1)).max(1);
        std::thread::scope(|scope| {
            for (index, piece) in from.chunks(part).enumerate() {
                let to = at + index * part;
                // SAFETY: the whole range was checked; pieces do not overlap, and the scope ends before this call does.
                scope.spawn(move || unsafe {
                    std::ptr::copy_nonoverlapping(piece.as_ptr(), to as *mut u8, piece.len())
                });
            }
        });
        Ok(())
    }

    fn at(&self, what: &'static str, offset: u64, bytes: usize) -> Result<*mut u8, CudaError> {
        super::Rows::contiguous(offset, bytes as u64).check(what, self.bytes)?;
        Ok(self.mapping.start.wrapping_add(offset as usize))
    }
}

impl Drop for PinnedArena {
    fn drop(&mut self) {
        if self.bytes > 0 && self.context.bind().is_ok() {
            // SAFETY: registered in `new`; copies from or to it were synchronised by the owner of the streams.
            unsafe { (self.context.driver.functions.host_unregister)(self.mapping.start.cast()) };
        }
    }
}

fn refusal(requested: u64, limits: &HostLimits, reason: String) -> CudaError {
    CudaError::HostMemory { requested, reason, limits: limits.to_string() }
}

/// Anonymous memory that starts at a huge page and ends at a page.
#[derive(Debug)]
struct Mapping {
    start: *mut u8,
    length: u64,
}

impl Mapping {
    fn new(bytes: u64) -> Result<Self, String> {
        if bytes == 0 {
            return Ok(Self { start: std::ptr::null_mut(), length: 0 });
        }
        let length = bytes.checked_next_multiple_of(page()).ok_or("more than 64 bits can say")?;
        let reserved = length.checked_add(HUGE_PAGE).ok_or("more than 64 bits can say")?;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping wherever the kernel likes.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), reserved as usize, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(format!("mmap: {}", std::io::Error::last_os_error()));
        }
        let skip = (base as u64).next_multiple_of(HUGE_PAGE) - base as u64;
        let start = base.cast::<u8>().wrapping_add(skip as usize);
        let end = start.wrapping_add(length as usize);
        // SAFETY: both cut-offs lie inside the mapping just made and nothing points into them. Huge pages are asked
        // for up to the last whole one only, so the tail stays on small pages.
        unsafe {
            if skip > 0 {
                libc::munmap(base, skip as usize);
            }
            if skip < HUGE_PAGE {
                libc::munmap(end.cast(), (HUGE_PAGE - skip) as usize);
            }
            libc::madvise(start.cast(), (length / HUGE_PAGE * HUGE_PAGE) as usize, libc::MADV_HUGEPAGE);
        }
        Ok(Self { start, length })
    }

    /// Makes every page resident, in parallel: the kernel clears pages on the thread that touches them first.
    fn touch(&self) {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(16) as u64;
        let part = self.length.div_ceil(threads).next_multiple_of(HUGE_PAGE);
        let start = self.start as usize;
        std::thread::scope(|scope| {
            for from in (0..self.length).step_by(part.max(1) as usize) {
                let to = (from + part).min(self.length);
                scope.spawn(move || {
                    for offset in (from..to).step_by(page() as usize) {
                        // SAFETY: inside the mapping; the threads' parts do not overlap.
                        unsafe { std::ptr::write_volatile((start + offset as usize) as *mut u8, 0) };
                    }
                });
            }
        });
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: mapped in `new`; nothing points into it any more.
            unsafe { libc::munmap(self.start.cast(), self.length as usize) };
        }
    }
}

fn page() -> u64 {
    // SAFETY: asks a constant of the system.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE).max(4096) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resident bytes of the kernel's areas that overlap the mapping (huge and small pages are separate areas).
    fn resident(mapping: &Mapping) -> u64 {
        let (start, end) = (mapping.start as u64, mapping.start as u64 + mapping.length);
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        let mut total = 0;
        for line in maps.lines() {
            let first = line.split_whitespace().next().unwrap_or("");
            if let Some((from, to)) = first.split_once('-').filter(|_| !first.ends_with(':')) {
                let (from, to) = (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap());
                inside = from < end && to > start;
            } else if inside && first == "Rss:" {
                total += line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024;
            }
        }
        total
    }

    #[test]
    fn a_mapping_holds_what_was_asked_and_at_most_a_page_more() {
        for bytes in [1, 4096, 5_000_001, 2 * HUGE_PAGE, 3 * HUGE_PAGE + 5] {
            let mapping = Mapping::new(bytes).unwrap();
            mapping.touch();
            assert!(mapping.length >= bytes && mapping.length < bytes + page(), "{bytes}: {}", mapping.length);
            assert_eq!(mapping.start as u64 % HUGE_PAGE, 0);
            // SAFETY: the last byte lies inside the mapping.
            unsafe { std::ptr::write_volatile(mapping.start.add(bytes as usize - 1), 7) };
        }
    }

    #[test]
    fn a_touched_mapping_is_resident_as_a_whole() {
        let mapping = Mapping::new(3 * HUGE_PAGE + 5).unwrap();
        mapping.touch();
        assert!(resident(&mapping) >= mapping.length);
    }

    #[test]
    fn too_much_is_an_error() {
        assert!(Mapping::new(1 << 60).unwrap_err().contains("mmap"));
        assert!(Mapping::new(u64::MAX).is_err());
    }
}
