//! Buffers as grids of equal rows, so that a slice of a concat is one interval of columns instead of one per sample.
//!
//! ```text
//!   buffer of [N, C, H, W]      columns ───────────►
//!        row 0 = sample 0       │ slice a │ slice b │      a region with N rows at the grid's stride
//!        row 1 = sample 1       │ slice a │ slice b │      is an interval of columns
//! ```

use crate::flat::Flat;
use std::ops::Range;
use vdnn_schedule::{Region, Schedule};

/// Rows of a buffer, each `stride` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub rows: u64,
    pub stride: u64,
}

impl Grid {
    /// The columns a region covers in all rows, or `None` when it is no such thing.
    pub(crate) fn columns(&self, region: &Region) -> Option<Range<u64>> {
        if region.bytes() == 0 {
            return Some(0..0);
        }
        let contiguous = region.rows == 1 || region.row_stride == region.row_bytes;
        if contiguous && region.offset == 0 && region.bytes() == self.rows * self.stride {
            return Some(0..self.stride);
        }
        if self.rows == 1 && contiguous {
            return Some(region.offset..region.offset + region.bytes());
        }
        let end = region.offset + region.row_bytes;
        let fits = region.rows == self.rows && region.row_stride == self.stride && end <= self.stride;
        fits.then_some(region.offset..end)
    }

    /// The intervals a region covers: one of columns, or on a grid of one row one per row of the region.
    pub(crate) fn intervals(&self, region: &Region) -> impl Iterator<Item = Range<u64>> + use<> {
        let columns = self.columns(region);
        let (offset, stride, row_bytes) = (region.offset, region.row_stride, region.row_bytes);
        let rows = if columns.is_some() { 0 } else { region.rows };
        let row = move |i: u64| offset + i * stride..offset + i * stride + row_bytes;
        columns.into_iter().chain((0..rows).map(row))
    }
}

/// The coarsest grid of each buffer on which every region used in the schedule is an interval of columns; one row where
/// there is none.
pub(crate) fn grids(schedule: &Schedule, flat: &Flat) -> Vec<Grid> {
    let one_row = |bytes| Grid { rows: 1, stride: bytes };
    let mut grids: Vec<Grid> = schedule.buffers.iter().map(|buffer| one_row(buffer.bytes)).collect();
    let regions = || flat.touches.iter().map(|touch| &touch.region);
    for region in regions().filter(|r| r.rows > 1 && r.row_stride > r.row_bytes) {
        let bytes = schedule.buffer(region.buffer).bytes;
        if region.rows.checked_mul(region.row_stride) == Some(bytes) {
            grids[region.buffer.index()] = Grid { rows: region.rows, stride: region.row_stride };
        }
    }
    for region in regions() {
        let grid = &mut grids[region.buffer.index()];
        if grid.columns(region).is_none() {
            *grid = one_row(schedule.buffer(region.buffer).bytes);
        }
    }
    grids
}

#[cfg(test)]
mod tests {
    use super::*;
    use vdnn_schedule::BufferId;

    #[test]
    fn a_slice_is_an_interval_of_columns() {
        let grid = Grid { rows: 4, stride: 96 };
        let slice = Region { buffer: BufferId(0), offset: 32, rows: 4, row_bytes: 64, row_stride: 96 };
        assert_eq!(grid.columns(&slice), Some(32..96));
        assert_eq!(grid.columns(&Region::contiguous(BufferId(0), 0, 384)), Some(0..96));
        assert_eq!(grid.columns(&Region::contiguous(BufferId(0), 0, 96)), None);
        assert_eq!(grid.columns(&Region { offset: 64, ..slice }), None);
        let flat = Grid { rows: 1, stride: 384 };
        assert_eq!(flat.intervals(&slice).collect::<Vec<_>>(), vec![32..96, 128..192, 224..288, 320..384]);
    }
}
