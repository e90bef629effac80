//! The two arenas of a schedule and the copies between them.
//!
//! ```text
//!  device arena  [ W │ X1 │ Y1 │ ... │ workspace ]      one cuMemAlloc
//!                      │ offload         ▲ prefetch     offsets come from the schedule
//!                      ▼                 │
//!  pinned arena  [ X1 │ ... ]                           one mapping, registered once
//! ```
//!
//! An arena is taken once and never grows; where something lies in it is the planner's business. Copies are queued
//! on a stream and checked against the arenas' ends. Whether bytes are still needed is not checked here: the schedule
//! was verified before.

mod limits;
mod pinned;

use core::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{CUDA_MEMCPY2D, CUmemorytype_enum as MemoryType};

pub use limits::HostLimits;
pub use pinned::PinnedArena;

use crate::context::{Context, Stream};
use crate::{CudaError, driver::Driver};

/// `rows` pieces of `row_bytes`, each `stride` bytes after the one before, the first at `offset` of an arena.
///
/// A value that is a slice of a concatenation has one row per sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// First byte.
    pub offset: u64,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Bytes from the start of a row to the start of the next.
    pub stride: u64,
}

impl Rows {
    /// `bytes` in one piece.
    pub fn contiguous(offset: u64, bytes: u64) -> Self {
        Self { offset, rows: 1, row_bytes: bytes, stride: bytes }
    }

    /// Bytes that are copied.
    pub fn bytes(&self) -> u64 {
        self.rows * self.row_bytes
    }

    /// One past the last byte touched; `None` when it does not fit 64 bits.
    fn end(&self) -> Option<u64> {
        let span = self.rows.checked_sub(1)?.checked_mul(self.stride)?.checked_add(self.row_bytes)?;
        self.offset.checked_add(span)
    }

    fn is_contiguous(&self) -> bool {
        self.rows <= 1 || self.stride == self.row_bytes
    }

    fn check(&self, what: &'static str, size: u64) -> Result<(), CudaError> {
        let end = if self.bytes() == 0 { Some(self.offset) } else { self.end() };
        match end {
            Some(end) if end <= size => Ok(()),
            end => Err(CudaError::OutOfRange { what, offset: self.offset, end: end.unwrap_or(u64::MAX), size }),
        }
    }
}

/// The driver's page of device memory in bytes. Allocations of at least one page take whole pages of their own; smaller
/// ones share pages with others (measured on an H200, driver 580).
pub const PAGE: u64 = 2 << 20;

/// One allocation of device memory.
#[derive(Debug)]
pub struct DeviceArena {
    address: u64,
    bytes: u64,
    context: Arc<Context>,
}

impl DeviceArena {
    /// Takes `bytes`, rounded up to whole [`PAGE`]s of its own. No bytes, no allocation.
    pub fn new(context: &Arc<Context>, bytes: u64) -> Result<Self, CudaError> {
        let mut address = 0u64;
        if bytes > 0 {
            let pages = bytes.checked_next_multiple_of(PAGE).unwrap_or(bytes);
            // SAFETY: writes one address.
            let status = unsafe { (context.driver.functions.memory_alloc)(&mut address, pages as usize) };
            context.driver.check("cuMemAlloc", status).map_err(|e| out_of_memory(context, bytes, e))?;
        }
        Ok(Self { address, bytes, context: context.clone() })
    }

    /// Address of byte `offset`, which must lie in the arena or be its end.
    pub fn address(&self, offset: u64) -> u64 {
        debug_assert!(offset <= self.bytes, "offset {offset} in an arena of {}", self.bytes);
        self.address + offset
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the last page that are not the arena's.
    pub fn page_rest(&self) -> u64 {
        self.bytes.next_multiple_of(PAGE) - self.bytes
    }

    /// Queues setting `bytes` bytes from `offset` to `value`.
    pub fn fill(&self, stream: &Stream, offset: u64, bytes: u64, value: u8) -> Result<(), CudaError> {
        Rows::contiguous(offset, bytes).check("fill", self.bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        let driver = self.context.driver;
        // SAFETY: the range was checked.
        let status = unsafe { (driver.functions.fill)(self.address + offset, value, bytes as usize, stream.raw()) };
        driver.check("cuMemsetD8Async", status)
    }

    /// Copies `from` into the arena and waits for it. For start-up and tests; a running schedule uses [`prefetch`].
    pub fn write(&self, stream: &Stream, offset: u64, from: &[u8]) -> Result<(), CudaError> {
        let bytes = from.len() as u64;
        Rows::contiguous(offset, bytes).check("write", self.bytes)?;
        copy_in(self.context.driver, stream, self.address + offset, from.as_ptr().cast(), bytes)?;
        stream.synchronize()
    }

    /// Copies out of the arena into `to` and waits for it.
    pub fn read(&self, stream: &Stream, offset: u64, to: &mut [u8]) -> Result<(), CudaError> {
        let bytes = to.len() as u64;
        Rows::contiguous(offset, bytes).check("read", self.bytes)?;
        copy_out(self.context.driver, stream, to.as_mut_ptr().cast(), self.address + offset, bytes)?;
        stream.synchronize()
    }
}

impl Drop for DeviceArena {
    fn drop(&mut self) {
        if self.address != 0 && self.context.bind().is_ok() {
            // SAFETY: the address came from `cuMemAlloc`; freeing waits for work that uses it.
            unsafe { (self.context.driver.functions.memory_free)(self.address) };
        }
    }
}

/// Queues a copy from the device arena to the pinned one.
pub fn offload(
    stream: &Stream,
    device: &DeviceArena,
    from: Rows,
    host: &PinnedArena,
    to: Rows,
) -> Result<(), CudaError> {
    from.check("offload source", device.bytes)?;
    to.check("offload destination", host.bytes())?;
    transfer(stream, Ends { device: device.address, host: host.base() }, from, to, true)
}

/// Queues a copy from the pinned arena to the device one.
pub fn prefetch(
    stream: &Stream,
    host: &PinnedArena,
    from: Rows,
    device: &DeviceArena,
    to: Rows,
) -> Result<(), CudaError> {
    from.check("prefetch source", host.bytes())?;
    to.check("prefetch destination", device.bytes)?;
    transfer(stream, Ends { device: device.address, host: host.base() }, to, from, false)
}

/// Queues a copy within the device arena; the ranges must not overlap.
pub fn copy_on_device(stream: &Stream, device: &DeviceArena, from: u64, to: u64, bytes: u64) -> Result<(), CudaError> {
    Rows::contiguous(from, bytes).check("device copy source", device.bytes)?;
    Rows::contiguous(to, bytes).check("device copy destination", device.bytes)?;
    if bytes == 0 {
        return Ok(());
    }
    let driver = device.context.driver;
    let (to, from) = (device.address + to, device.address + from);
    // SAFETY: both ranges were checked.
    let status = unsafe { (driver.functions.copy_on_device)(to, from, bytes as usize, stream.raw()) };
    driver.check("cuMemcpyDtoDAsync", status)
}

/// Queues setting `bytes` bytes at a device address to `value`.
///
/// # Safety
///
/// The bytes must be device memory that nothing else uses before the stream has passed this point.
pub(crate) unsafe fn fill_address(stream: &Stream, address: u64, bytes: u64, value: u8) -> Result<(), CudaError> {
    if bytes == 0 {
        return Ok(());
    }
    let driver = stream.context.driver;
    // SAFETY: the caller answers for the range.
    let status = unsafe { (driver.functions.fill)(address, value, bytes as usize, stream.raw()) };
    driver.check("cuMemsetD8Async", status)
}

/// Base addresses of the two arenas.
#[derive(Clone, Copy)]
struct Ends {
    device: u64,
    host: *mut u8,
}

/// Copies between checked ranges: in one piece, as a 2-D copy, or row by row when rows lie too far apart for that.
fn transfer(stream: &Stream, ends: Ends, device: Rows, host: Rows, to_host: bool) -> Result<(), CudaError> {
    if device.bytes() == 0 && host.bytes() == 0 {
        return Ok(());
    }
    if device.is_contiguous() && host.is_contiguous() && device.bytes() == host.bytes() {
        return copy_piece(stream, ends, device.offset, host.offset, device.bytes(), to_host);
    }
    if (device.rows, device.row_bytes) != (host.rows, host.row_bytes) {
        let (src, dst) = if to_host { (device, host) } else { (host, device) };
        return Err(CudaError::CopyShape {
            src_rows: src.rows,
            src_bytes: src.row_bytes,
            dst_rows: dst.rows,
            dst_bytes: dst.row_bytes,
        });
    }
    if device.stride.max(host.stride) > stream.context.max_pitch {
        for row in 0..device.rows {
            let (d, h) = (device.offset + row * device.stride, host.offset + row * host.stride);
            copy_piece(stream, ends, d, h, device.row_bytes, to_host)?;
        }
        return Ok(());
    }
    copy_rows(stream, ends, device, host, to_host)
}

fn copy_piece(stream: &Stream, ends: Ends, device: u64, host: u64, bytes: u64, to_host: bool) -> Result<(), CudaError> {
    let driver = stream.context.driver;
    let host = ends.host.wrapping_add(host as usize).cast::<c_void>();
    match to_host {
        true => copy_out(driver, stream, host, ends.device + device, bytes),
        false => copy_in(driver, stream, ends.device + device, host, bytes),
    }
}

fn copy_rows(stream: &Stream, ends: Ends, device: Rows, host: Rows, to_host: bool) -> Result<(), CudaError> {
    let (on_device, on_host) = (MemoryType::CU_MEMORYTYPE_DEVICE, MemoryType::CU_MEMORYTYPE_HOST);
    let (src, dst) = if to_host { (on_device, on_host) } else { (on_host, on_device) };
    let (src_rows, dst_rows) = if to_host { (device, host) } else { (host, device) };
    let device_address = ends.device + device.offset;
    let host_address = ends.host.wrapping_add(host.offset as usize).cast::<c_void>();
    let copy = CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: src,
        srcHost: host_address,
        srcDevice: device_address,
        srcArray: std::ptr::null_mut(),
        srcPitch: src_rows.stride as usize,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: dst,
        dstHost: host_address,
        dstDevice: device_address,
        dstArray: std::ptr::null_mut(),
        dstPitch: dst_rows.stride as usize,
        WidthInBytes: device.row_bytes as usize,
        Height: device.rows as usize,
    };
    let driver = stream.context.driver;
    // SAFETY: both ranges were checked against their arenas; the driver reads only the fields of the stated types.
    driver.check("cuMemcpy2DAsync", unsafe { (driver.functions.copy_rows)(&copy, stream.raw()) })
}

fn copy_in(driver: &Driver, stream: &Stream, to: u64, from: *const c_void, bytes: u64) -> Result<(), CudaError> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: callers checked both ranges; the host side stays mapped until the stream is synchronised.
    let status = unsafe { (driver.functions.copy_to_device)(to, from, bytes as usize, stream.raw()) };
    driver.check("cuMemcpyHtoDAsync", status)
}

fn copy_out(driver: &Driver, stream: &Stream, to: *mut c_void, from: u64, bytes: u64) -> Result<(), CudaError> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: as in `copy_in`.
    let status = unsafe { (driver.functions.copy_to_host)(to, from, bytes as usize, stream.raw()) };
    driver.check("cuMemcpyDtoHAsync", status)
}

/// Adds the figures to the driver's "out of memory".
fn out_of_memory(context: &Context, requested: u64, error: CudaError) -> CudaError {
    match (&error, context.memory()) {
        (CudaError::Driver { code: 2, .. }, Ok((free, total))) => CudaError::DeviceMemory { requested, free, total },
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_end_after_the_last_row_and_not_after_its_stride() {
        let rows = Rows { offset: 100, rows: 3, row_bytes: 8, stride: 32 };
        assert_eq!((rows.bytes(), rows.end()), (24, Some(172)));
        assert!(rows.check("test", 172).is_ok());
        assert!(matches!(rows.check("test", 171), Err(CudaError::OutOfRange { end: 172, size: 171, .. })));
    }

    #[test]
    fn a_range_that_leaves_64_bits_is_out_of_range() {
        let rows = Rows { offset: u64::MAX - 4, rows: 1, row_bytes: 8, stride: 8 };
        assert!(matches!(rows.check("test", u64::MAX), Err(CudaError::OutOfRange { .. })));
    }

    #[test]
    fn no_rows_touch_nothing() {
        assert!(Rows { offset: 0, rows: 0, row_bytes: 8, stride: 8 }.check("test", 0).is_ok());
        assert!(Rows::contiguous(8, 0).check("test", 8).is_ok());
    }
}
