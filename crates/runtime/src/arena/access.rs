//! Which bytes an access touches, and whether two accesses meet. Everything `unsafe` in the parent file leans on these
//! checks: an [`Access`] that exists has regions that are sound by themselves, and never writes what it also names twice.

use crate::DeviceError;
use std::sync::Arc;

/// `rows` rows of `row_bytes` bytes, `stride` apart, from `offset` bytes into an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRegion {
    /// First byte.
    pub offset: u64,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of one row.
    pub row_bytes: u64,
    /// Distance between the starts of rows.
    pub stride: u64,
}

impl ByteRegion {
    /// One stretch.
    pub fn contiguous(offset: u64, bytes: u64) -> Self {
        ByteRegion { offset, rows: 1, row_bytes: bytes, stride: bytes }
    }

    /// The same bytes in the one form that compares equal: adjacent rows are one row, an empty region has no rows.
    ///
    /// # Errors
    /// Why the region is none: its rows overlap each other, or it does not fit 64 bits.
    pub fn normalised(self) -> Result<Self, String> {
        let bytes = self.rows.checked_mul(self.row_bytes);
        let last = self.rows.saturating_sub(1).checked_mul(self.stride);
        let end = last.and_then(|last| last.checked_add(self.row_bytes)).and_then(|len| len.checked_add(self.offset));
        let (Some(bytes), Some(_)) = (bytes, end) else {
            return Err(format!("expected a region within 64 bits, found {self:?}"));
        };
        if bytes == 0 {
            return Ok(ByteRegion { offset: self.offset, rows: 0, row_bytes: 0, stride: 0 });
        }
        if self.rows == 1 || self.stride == self.row_bytes {
            return Ok(ByteRegion::contiguous(self.offset, bytes));
        }
        if self.stride < self.row_bytes {
            return Err(format!("expected rows that lie apart, found {self:?}"));
        }
        Ok(self)
    }

    /// Number of bytes.
    pub fn bytes(&self) -> u64 {
        self.rows * self.row_bytes
    }

    /// One past the last byte; `offset` for an empty region.
    pub fn end(&self) -> u64 {
        match self.rows {
            0 => self.offset,
            rows => self.offset + (rows - 1) * self.stride + self.row_bytes,
        }
    }

    /// True when the two share a byte. Exact: slices of a concat lie between each other without sharing any.
    pub fn overlaps(&self, other: &ByteRegion) -> bool {
        if self.bytes() == 0 || other.bytes() == 0 || self.end() <= other.offset || other.end() <= self.offset {
            return false;
        }
        let (few, many) = if self.rows <= other.rows { (self, other) } else { (other, self) };
        (0..few.rows).map(|row| few.offset + row * few.stride).any(|start| many.touches(start, start + few.row_bytes))
    }

    /// True when some row holds a byte of `start..end`.
    fn touches(&self, start: u64, end: u64) -> bool {
        let first_end = self.offset + self.row_bytes;
        // The first row that ends after `start`.
        let row = if start < first_end { 0 } else { (start - first_end) / self.stride + 1 };
        row < self.rows && self.offset + row * self.stride < end
    }
}

/// The regions one command reads and writes, checked by themselves. Regions are in normal form.
#[derive(Debug, PartialEq, Eq)]
pub struct Access {
    label: String,
    reads: Vec<ByteRegion>,
    writes: Vec<ByteRegion>,
    end: u64,
}

impl Access {
    /// An access by `label`. Operands updated in place are named once, as writes.
    ///
    /// # Errors
    /// [`DeviceError::Schedule`] when a region is none, or when a written one shares bytes with another.
    pub fn new(label: &str, reads: &[ByteRegion], writes: &[ByteRegion]) -> Result<Arc<Self>, DeviceError> {
        let refuse = |reason| DeviceError::Schedule { place: label.to_string(), reason };
        let normal = |regions: &[ByteRegion]| regions.iter().map(|r| r.normalised()).collect::<Result<Vec<_>, _>>();
        let reads = normal(reads).map_err(refuse)?;
        let writes = normal(writes).map_err(refuse)?;
        for (index, write) in writes.iter().enumerate() {
            if let Some(other) = writes[..index].iter().chain(&reads).find(|other| other.overlaps(write)) {
                return Err(refuse(format!("expected operands apart or in place, found {other:?} and {write:?}")));
            }
        }
        let end = reads.iter().chain(&writes).map(ByteRegion::end).max().unwrap_or(0);
        Ok(Arc::new(Access { label: label.to_string(), reads, writes, end }))
    }

    /// Who accesses, for messages.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Regions read.
    pub fn reads(&self) -> &[ByteRegion] {
        &self.reads
    }

    /// Regions written (and read, when in place).
    pub fn writes(&self) -> &[ByteRegion] {
        &self.writes
    }

    /// One past the highest byte touched.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// True when the two may not be live at once: one writes bytes that the other reads or writes.
    pub fn conflicts(&self, other: &Access) -> bool {
        let meets = |write: &ByteRegion, access: &Access| {
            access.reads.iter().chain(&access.writes).any(|region| region.overlaps(write))
        };
        self.writes.iter().any(|write| meets(write, other)) || other.writes.iter().any(|write| meets(write, self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(offset: u64, rows: u64, row_bytes: u64, stride: u64) -> ByteRegion {
        ByteRegion { offset, rows, row_bytes, stride }
    }

    /// Overlap by listing every byte.
    fn slow_overlap(a: &ByteRegion, b: &ByteRegion) -> bool {
        let bytes = |r: &ByteRegion| {
            let r = *r;
            (0..r.rows).flat_map(move |row| (0..r.row_bytes).map(move |i| r.offset + row * r.stride + i))
        };
        let all: std::collections::HashSet<u64> = bytes(a).collect();
        bytes(b).any(|byte| all.contains(&byte))
    }

    #[test]
    fn overlap_is_exact_for_every_small_pair() {
        let mut regions = Vec::new();
        for offset in 0..6 {
            for n in 0..4 {
                for row_bytes in 0..4 {
                    for stride in row_bytes.max(1)..6 {
                        regions.push(rows(offset, n, row_bytes, stride).normalised().unwrap());
                    }
                }
            }
        }
        for a in &regions {
            for b in &regions {
                assert_eq!(a.overlaps(b), slow_overlap(a, b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn neighbouring_slices_of_a_concat_may_be_written_at_once() {
        let (left, right) = (rows(0, 8, 12, 32), rows(12, 8, 20, 32));
        assert!(!left.overlaps(&right));
        assert!(left.overlaps(&rows(8, 8, 8, 32)));
        let a = Access::new("a", &[], &[left]).unwrap();
        let b = Access::new("b", &[], &[right]).unwrap();
        let whole = Access::new("whole", &[ByteRegion::contiguous(0, 256)], &[]).unwrap();
        assert!(!a.conflicts(&b) && a.conflicts(&whole) && whole.conflicts(&b) && !whole.conflicts(&whole));
    }

    #[test]
    fn normal_form_joins_adjacent_rows() {
        assert_eq!(rows(4, 3, 8, 8).normalised(), Ok(ByteRegion::contiguous(4, 24)));
        assert_eq!(rows(4, 1, 8, 99).normalised(), Ok(ByteRegion::contiguous(4, 8)));
        assert!(rows(0, 2, 8, 7).normalised().is_err());
        assert!(rows(0, 2, 1, u64::MAX).normalised().is_err());
    }

    #[test]
    fn an_access_never_writes_what_it_names_twice() {
        let (a, b) = (ByteRegion::contiguous(0, 8), ByteRegion::contiguous(4, 8));
        assert!(Access::new("op", &[a, b], &[]).is_ok());
        assert!(matches!(Access::new("op", &[a], &[b]), Err(DeviceError::Schedule { place, .. }) if place == "op"));
        assert!(Access::new("op", &[], &[a, b]).is_err());
    }
}
