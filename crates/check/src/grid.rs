//! Buffers as grids of equal rows, so that a slice of a concat is one interval of columns instead of one per sample.
//!
//! ```text
//!   buffer of [N, C, H, W]      columns ───────────►
//!        row 0 = sample 0       │ slice a │ slice b │      a region with N rows at the grid's stride
//!        row 1 = sample 1       │ slice a │ slice b │      is an interval of columns
//!        ───────────────────────────────────────────  cut
//!        row 2 = sample 2       │      part d       │      one with some of the rows lies in *bands*
//! ```
//!
//! Where values are joined along the batch, regions begin and end at a few rows: cuts. Between two cuts all rows are alike,
//! so that a band stands for its rows, and an address for a column of a band.

use crate::flat::Flat;
use std::ops::Range;
use vdnn_schedule::{Region, Schedule};

/// Rows of a buffer, each `stride` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub rows: u64,
    pub stride: u64,
    /// The rows at which bands begin, but the first: none in most grids, which are one band. Behind a pointer, since there is a
    /// grid a buffer, and a deep network has tens of thousands.
    cuts: Option<Box<Rows>>,
}

type Rows = Vec<u64>;

/// The part of a grid that a region covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub rows: Range<u64>,
    pub columns: Range<u64>,
}

impl Place {
    pub(crate) fn n_rows(&self) -> u64 {
        self.rows.end - self.rows.start
    }

    /// Bytes in each row.
    pub(crate) fn width(&self) -> u64 {
        self.columns.end - self.columns.start
    }

    pub(crate) fn overlaps(&self, other: &Place) -> bool {
        let meet = |a: &Range<u64>, b: &Range<u64>| a.start.max(b.start) < a.end.min(b.end);
        meet(&self.rows, &other.rows) && meet(&self.columns, &other.columns)
    }

    pub(crate) fn is_inside(&self, whole: &Place) -> bool {
        let inside = |a: &Range<u64>, b: &Range<u64>| b.start <= a.start && a.end <= b.end;
        inside(&self.rows, &whole.rows) && inside(&self.columns, &whole.columns)
    }
}

impl Grid {
    /// A grid of one band.
    pub(crate) fn new(rows: u64, stride: u64) -> Self {
        Grid { rows, stride, cuts: None }
    }

    /// Bytes of all rows.
    pub(crate) fn bytes(&self) -> u64 {
        self.rows.saturating_mul(self.stride)
    }

    /// All of it.
    pub(crate) fn whole(&self) -> Place {
        Place { rows: 0..self.rows, columns: 0..self.stride }
    }

    /// The rows a region covers, and of all of them the same columns; `None` when it is no such thing.
    pub(crate) fn place(&self, region: &Region) -> Option<Place> {
        if region.bytes() == 0 || self.stride == 0 {
            return (region.bytes() == 0).then_some(Place { rows: 0..self.rows, columns: 0..0 });
        }
        let contiguous = region.rows == 1 || region.row_stride == region.row_bytes;
        // Most regions, without a division.
        if contiguous && region.offset == 0 && self.bytes() == region.bytes() {
            return Some(self.whole());
        }
        let (row, column) = (region.offset / self.stride, region.offset % self.stride);
        let (n_rows, width) = match contiguous {
            true if column + region.bytes() <= self.stride => (1, region.bytes()),
            true if column == 0 && region.bytes().is_multiple_of(self.stride) => {
                (region.bytes() / self.stride, self.stride)
            }
            false if region.row_stride == self.stride => (region.rows, region.row_bytes),
            _ => return None,
        };
        let fits = row.checked_add(n_rows)? <= self.rows && column + width <= self.stride;
        fits.then_some(Place { rows: row..row + n_rows, columns: column..column + width })
    }

    /// Has a band begin at this row.
    pub(crate) fn cut(&mut self, row: u64) {
        if (1..self.rows).contains(&row)
            && let Err(at) = self.cuts().binary_search(&row)
        {
            self.cuts.get_or_insert_default().insert(at, row);
        }
    }

    fn cuts(&self) -> &[u64] {
        self.cuts.as_deref().map_or(&[], Vec::as_slice)
    }

    /// Whether the grid is one band.
    pub(crate) fn is_one_band(&self) -> bool {
        self.cuts.is_none()
    }

    /// Whether a place consists of whole bands.
    pub(crate) fn has_cuts_at(&self, place: &Place) -> bool {
        let is_cut = |row: &u64| *row == 0 || *row == self.rows || self.cuts().binary_search(row).is_ok();
        [place.rows.start, place.rows.end].iter().all(is_cut)
    }

    /// The bands of a place: their rows as far as they are the place's, and the addresses of its columns in them.
    pub(crate) fn bands(&self, place: &Place) -> impl Iterator<Item = (Range<u64>, Range<u64>)> {
        let Place { rows, columns } = place.clone();
        let cuts = self.cuts();
        let first = cuts.partition_point(|&cut| cut <= rows.start);
        let last = cuts.partition_point(|&cut| cut < rows.end);
        (first..=last).map(move |band| {
            let start = if band == first { rows.start } else { cuts[band - 1] };
            let end = if band == last { rows.end } else { cuts[band] };
            let at = band as u64 * self.stride;
            (start..end, at + columns.start..at + columns.end)
        })
    }

    /// The intervals of addresses a region covers: of columns of its bands, all at once where they are whole, or on a grid of one
    /// row one per row of the region.
    pub(crate) fn intervals(&self, region: &Region) -> impl Iterator<Item = Range<u64>> + use<> {
        let place = self.place(region);
        let (offset, stride, row_bytes) = (region.offset, region.row_stride, region.row_bytes);
        let rows = if place.is_some() { 0 } else { region.rows };
        let row = move |i: u64| offset + i * stride..offset + i * stride + row_bytes;
        let bands: Vec<Range<u64>> = match &place {
            // Most grids are one band: theirs needs no list.
            Some(place) if !self.is_one_band() => self.bands(place).map(|band| band.1).collect(),
            _ => Vec::new(),
        };
        let whole = place.as_ref().filter(|place| self.is_one_band() || place.width() == self.stride);
        let whole = whole.map(|place| match bands.as_slice() {
            [first, .., last] => first.start..last.end,
            [band] => band.clone(),
            [] => place.columns.clone(),
        });
        let parts = if whole.is_some() { Vec::new() } else { bands };
        whole.into_iter().chain(parts).chain((0..rows).map(row))
    }

    /// Addresses of the whole grid.
    pub(crate) fn addresses(&self) -> Range<u64> {
        0..(self.cuts().len() as u64 + 1) * self.stride
    }
}

/// The coarsest grid of each buffer that is touched in parts on which every region used in the schedule is some columns of some
/// bands; one row where there is none.
pub(crate) fn grids(schedule: &Schedule, flat: &Flat<'_>) -> Vec<Grid> {
    let one_row = |buffer| Grid::new(1, schedule.buffer(buffer).bytes);
    let mut grids: Vec<Grid> = flat.in_parts.iter().map(|&buffer| one_row(buffer)).collect();
    let parts = flat.places().filter_map(|(touch, region)| Some((flat.part(touch.buffer())?, region)));
    let parts: Vec<(usize, &Region)> = parts.collect();
    for &(part, region) in parts.iter().filter(|(_, r)| r.rows > 1 && r.row_stride > r.row_bytes) {
        let bytes = schedule.buffer(region.buffer).bytes;
        let grid = &mut grids[part];
        if bytes.is_multiple_of(region.row_stride) && grid.stride != region.row_stride {
            *grid = Grid::new(bytes / region.row_stride, region.row_stride);
        }
    }
    for &(part, region) in &parts {
        if grids[part].place(region).is_none() {
            grids[part] = one_row(region.buffer);
        }
    }
    for &(part, region) in &parts {
        let grid = &mut grids[part];
        if let Some(Place { rows, .. }) = grid.place(region) {
            grid.cut(rows.start);
            grid.cut(rows.end);
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
        let grid = Grid::new(4, 96);
        let slice = Region { buffer: BufferId(0), offset: 32, rows: 4, row_bytes: 64, row_stride: 96 };
        let place = |rows, columns| Some(Place { rows, columns });
        assert_eq!(grid.place(&slice), place(0..4, 32..96));
        assert_eq!(grid.intervals(&slice).collect::<Vec<_>>(), vec![32..96]);
        assert_eq!(grid.place(&Region::contiguous(BufferId(0), 0, 384)), place(0..4, 0..96));
        assert_eq!(grid.place(&Region::contiguous(BufferId(0), 48, 96)), None);
        assert_eq!(grid.place(&Region { offset: 64, ..slice }), None);
        assert_eq!(grid.place(&Region { offset: 128, ..slice }), None, "beyond the last row");
        let flat = Grid::new(1, 384);
        assert_eq!(flat.intervals(&slice).collect::<Vec<_>>(), vec![32..96, 128..192, 224..288, 320..384]);
    }

    #[test]
    fn samples_are_bands() {
        let mut grid = Grid::new(4, 96);
        grid.cut(1);
        grid.cut(4);
        let whole = Region::contiguous(BufferId(0), 0, 384);
        assert_eq!(grid.intervals(&whole).collect::<Vec<_>>(), vec![0..192]);
        let rest = Region::contiguous(BufferId(0), 96, 288);
        assert_eq!(grid.place(&rest), Some(Place { rows: 1..4, columns: 0..96 }));
        assert_eq!(grid.intervals(&rest).collect::<Vec<_>>(), vec![96..192]);
        let slice = Region { buffer: BufferId(0), offset: 32, rows: 4, row_bytes: 64, row_stride: 96 };
        assert_eq!(grid.intervals(&slice).collect::<Vec<_>>(), vec![32..96, 128..192]);
        let part = Region { offset: 128, rows: 3, ..slice };
        assert_eq!(grid.bands(&grid.place(&part).unwrap()).collect::<Vec<_>>(), vec![(1..4, 128..192)]);
    }
}
