//! What kernels see of an arena: rows of elements, to read or to write.
//!
//! A view is a set of rows at a stride, because a value may be a slice of a concat: rows of two views may lie between each
//! other without sharing a byte, so a view never hands out one slice that spans its rows unless they are adjacent.
#![allow(unsafe_code)]

use std::marker::PhantomData;

/// Where a region's elements are.
pub(super) struct Elements<T> {
    pub pointer: *mut T,
    pub rows: usize,
    pub row_len: usize,
    pub stride: usize,
}

/// Rows of elements to read. Row i is one sample of a sliced value; an unsliced value is one row.
pub struct View<'a, T> {
    pointer: *const T,
    rows: usize,
    row_len: usize,
    stride: usize,
    _borrow: PhantomData<&'a [T]>,
}

/// Rows of elements to write (and read: in-place kernels find their input here).
pub struct ViewMut<'a, T> {
    pointer: *mut T,
    rows: usize,
    row_len: usize,
    stride: usize,
    _borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: a View is a shared borrow of its rows, as `&[T]` is.
unsafe impl<T: Sync> Send for View<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for View<'_, T> {}
// SAFETY: a ViewMut is an exclusive borrow of its rows, as `&mut [T]` is.
unsafe impl<T: Send> Send for ViewMut<'_, T> {}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}

impl<'a, T> View<'a, T> {
    /// A view of elements in an arena.
    ///
    /// # Safety
    /// The rows lie within an allocation and are borrowed to read for 'a, and any bytes make a `T`.
    pub(super) unsafe fn over(elements: Elements<T>) -> Self {
        let Elements { pointer, rows, row_len, stride } = elements;
        View { pointer, rows, row_len, stride, _borrow: PhantomData }
    }

    /// A view of one row: the whole slice.
    pub fn from_slice(data: &'a [T]) -> Self {
        View { pointer: data.as_ptr(), rows: 1, row_len: data.len(), stride: data.len(), _borrow: PhantomData }
    }

    /// Rows of `row_len` elements, `stride` apart, from the start of a slice: a slice of a wider value.
    ///
    /// # Panics
    /// When the rows overlap or reach beyond the slice.
    pub fn from_rows(data: &'a [T], rows: usize, row_len: usize, stride: usize) -> Self {
        assert!(rows_fit(data.len(), rows, row_len, stride), "{rows} rows of {row_len} at {stride} in {}", data.len());
        View { pointer: data.as_ptr(), rows, row_len, stride, _borrow: PhantomData }
    }

    /// Pointer, rows, elements of a row and stride, for calls to a matrix product.
    pub(crate) fn raw(&self) -> (*const T, usize, usize, usize) {
        (self.pointer, self.rows, self.row_len, self.stride)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.rows * self.row_len
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All elements, when the rows are adjacent.
    pub fn as_slice(&self) -> Option<&'a [T]> {
        // SAFETY: the constructor borrowed all rows for 'a, and adjacent rows are one stretch.
        self.is_adjacent().then(|| unsafe { std::slice::from_raw_parts(self.pointer, self.len()) })
    }

    fn is_adjacent(&self) -> bool {
        self.rows <= 1 || self.stride == self.row_len
    }

    /// The elements from number `at` to the end of their row.
    fn rest_of_row(&self, at: usize) -> &'a [T] {
        let (offset, len) = rest_of_row(self.rows, self.row_len, self.stride, at);
        // SAFETY: the rest of a row lies within one borrowed row.
        unsafe { std::slice::from_raw_parts(self.pointer.add(offset), len) }
    }

    /// Part `index` of `parts` equal parts, in order. With `parts` the number of samples this is one sample, whether the
    /// value is sliced or not.
    ///
    /// # Panics
    /// When the elements do not divide into `parts` that each lie within a row.
    pub fn part(&self, index: usize, parts: usize) -> &'a [T] {
        let (offset, len) = part_range(self.rows, self.row_len, self.stride, index, parts);
        // SAFETY: the part lies within one borrowed row (checked by part_range).
        unsafe { std::slice::from_raw_parts(self.pointer.add(offset), len) }
    }

    /// Piece `index` of `pieces` equal pieces of the batch: whole rows where samples are rows.
    ///
    /// # Panics
    /// When rows or elements do not divide into so many pieces.
    pub fn piece(&self, index: usize, pieces: usize) -> Self {
        let (offset, rows, row_len) = piece_range(self.rows, self.row_len, self.stride, index, pieces);
        // The rows are some of those borrowed; without any, nothing is ever read.
        View { pointer: self.pointer.wrapping_add(offset), rows, row_len, ..*self }
    }
}

impl<'a, T> ViewMut<'a, T> {
    /// A view of elements in an arena.
    ///
    /// # Safety
    /// The rows lie within an allocation, do not overlap and are borrowed to write for 'a by this view alone, and any bytes make a
    /// `T`.
    pub(super) unsafe fn over(elements: Elements<T>) -> Self {
        let Elements { pointer, rows, row_len, stride } = elements;
        ViewMut { pointer, rows, row_len, stride, _borrow: PhantomData }
    }

    /// A view of one row: the whole slice.
    pub fn from_slice(data: &'a mut [T]) -> Self {
        ViewMut { pointer: data.as_mut_ptr(), rows: 1, row_len: data.len(), stride: data.len(), _borrow: PhantomData }
    }

    /// Rows at a stride; see [`View::from_rows`].
    ///
    /// # Panics
    /// When the rows overlap or reach beyond the slice.
    pub fn from_rows(data: &'a mut [T], rows: usize, row_len: usize, stride: usize) -> Self {
        assert!(rows_fit(data.len(), rows, row_len, stride), "{rows} rows of {row_len} at {stride} in {}", data.len());
        ViewMut { pointer: data.as_mut_ptr(), rows, row_len, stride, _borrow: PhantomData }
    }

    /// Pointer, rows, elements of a row and stride, for calls to a matrix product.
    pub(crate) fn raw(&mut self) -> (*mut T, usize, usize, usize) {
        (self.pointer, self.rows, self.row_len, self.stride)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.rows * self.row_len
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All elements, when the rows are adjacent.
    pub fn as_slice(&mut self) -> Option<&mut [T]> {
        let adjacent = self.rows <= 1 || self.stride == self.row_len;
        // SAFETY: the constructor borrowed all rows exclusively, and adjacent rows are one stretch.
        adjacent.then(|| unsafe { std::slice::from_raw_parts_mut(self.pointer, self.len()) })
    }

    /// All elements for as long as they are borrowed, when the rows are adjacent.
    pub fn into_slice(self) -> Option<&'a mut [T]> {
        let adjacent = self.rows <= 1 || self.stride == self.row_len;
        // SAFETY: the constructor borrowed all rows exclusively for 'a, and this view is consumed.
        adjacent.then(|| unsafe { std::slice::from_raw_parts_mut(self.pointer, self.len()) })
    }

    /// Calls `visit` with each row.
    pub fn for_each_row(&mut self, mut visit: impl FnMut(&mut [T])) {
        (0..self.rows).for_each(|row| visit(self.rest_of_row(row * self.row_len)));
    }

    /// Copies elements `range` of `source` over the same elements of this view, whatever the rows of either.
    ///
    /// # Panics
    /// When the range ends beyond either view.
    pub fn copy_from(&mut self, source: &View<'_, T>, range: std::ops::Range<usize>)
    where
        T: Copy,
    {
        let mut at = range.start;
        while at < range.end {
            let (from, to) = (source.rest_of_row(at), self.rest_of_row(at));
            let len = from.len().min(to.len()).min(range.end - at);
            to[..len].copy_from_slice(&from[..len]);
            at += len;
        }
    }

    fn rest_of_row(&mut self, at: usize) -> &mut [T] {
        let (offset, len) = rest_of_row(self.rows, self.row_len, self.stride, at);
        // SAFETY: the rest of a row lies within one exclusively borrowed row.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.add(offset), len) }
    }

    /// Part `index` of `parts` equal parts; see [`View::part`].
    ///
    /// # Panics
    /// When the elements do not divide into `parts` that each lie within a row.
    pub fn part(&mut self, index: usize, parts: usize) -> &mut [T] {
        let (offset, len) = part_range(self.rows, self.row_len, self.stride, index, parts);
        // SAFETY: the part lies within one exclusively borrowed row.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.add(offset), len) }
    }

    /// All `parts` equal parts at once, to be written in parallel (they do not overlap).
    ///
    /// # Panics
    /// As [`ViewMut::part`].
    pub fn into_parts(self, parts: usize) -> Vec<&'a mut [T]> {
        let range = |index| part_range(self.rows, self.row_len, self.stride, index, parts);
        // SAFETY: the parts are disjoint stretches of rows borrowed exclusively for 'a.
        (0..parts)
            .map(range)
            .map(|(at, len)| unsafe { std::slice::from_raw_parts_mut(self.pointer.add(at), len) })
            .collect()
    }

    /// Piece `index` of `pieces` equal pieces of the batch; see [`View::piece`].
    ///
    /// # Panics
    /// As [`View::piece`].
    pub fn piece(&mut self, index: usize, pieces: usize) -> ViewMut<'_, T> {
        let (offset, rows, row_len) = piece_range(self.rows, self.row_len, self.stride, index, pieces);
        let pointer = self.pointer.wrapping_add(offset);
        ViewMut { pointer, rows, row_len, ..self.reborrow() }
    }

    /// The same rows for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        ViewMut {
            pointer: self.pointer,
            rows: self.rows,
            row_len: self.row_len,
            stride: self.stride,
            _borrow: PhantomData,
        }
    }

    /// The same rows, to read.
    pub fn as_view(&self) -> View<'_, T> {
        View {
            pointer: self.pointer,
            rows: self.rows,
            row_len: self.row_len,
            stride: self.stride,
            _borrow: PhantomData,
        }
    }
}

/// True when `rows` rows of `row_len` at `stride` do not overlap and lie within `len` elements.
fn rows_fit(len: usize, rows: usize, row_len: usize, stride: usize) -> bool {
    rows == 0 || (rows == 1 || stride >= row_len) && (rows - 1) * stride + row_len <= len
}

/// Offset and length in elements of part `index` of `parts` over `rows` rows of `row_len` at `stride`.
pub(super) fn part_range(rows: usize, row_len: usize, stride: usize, index: usize, parts: usize) -> (usize, usize) {
    assert!(index < parts, "part {index} of {parts}");
    let total = rows * row_len;
    assert!(total.is_multiple_of(parts), "{total} elements do not divide into {parts} parts");
    let len = total / parts;
    if len == 0 {
        return (0, 0);
    }
    let start = index * len;
    let (row, column) = (start / row_len, start % row_len);
    let adjacent = rows <= 1 || stride == row_len;
    assert!(adjacent || column + len <= row_len, "a part of {len} elements crosses rows of {row_len}");
    (row * stride + column, len)
}

/// Offset in elements, rows and length of a row of piece `index` of `pieces`.
fn piece_range(rows: usize, row_len: usize, stride: usize, index: usize, pieces: usize) -> (usize, usize, usize) {
    assert!(index < pieces, "piece {index} of {pieces}");
    if rows <= 1 || stride == row_len {
        let (offset, len) = part_range(rows, row_len, stride, index, pieces);
        return (offset, 1, len);
    }
    assert!(rows.is_multiple_of(pieces), "{rows} rows do not divide into {pieces} pieces");
    (index * (rows / pieces) * stride, rows / pieces, row_len)
}

/// Offset and length in elements from element number `at` to the end of its row.
fn rest_of_row(rows: usize, row_len: usize, stride: usize, at: usize) -> (usize, usize) {
    assert!(at < rows * row_len, "element {at} of {}", rows * row_len);
    let (row, column) = (at / row_len, at % row_len);
    (row * stride + column, row_len - column)
}
