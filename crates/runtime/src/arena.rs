//! The memory a CPU device plans in, and the views kernels see of it. The only `unsafe` of this crate.
//!
//! A view is a set of rows at a stride, because a value may be a slice of a concat: rows of two views may lie between each
//! other without sharing a byte, so a view never hands out one slice that spans its rows unless they are adjacent.
#![allow(unsafe_code)]

use std::marker::PhantomData;

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
    /// A view of one row: the whole slice.
    pub fn from_slice(data: &'a [T]) -> Self {
        View { pointer: data.as_ptr(), rows: 1, row_len: data.len(), stride: data.len(), _borrow: PhantomData }
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
}

impl<'a, T> ViewMut<'a, T> {
    /// A view of one row: the whole slice.
    pub fn from_slice(data: &'a mut [T]) -> Self {
        ViewMut { pointer: data.as_mut_ptr(), rows: 1, row_len: data.len(), stride: data.len(), _borrow: PhantomData }
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

/// Offset and length in elements of part `index` of `parts` over `rows` rows of `row_len` at `stride`.
fn part_range(rows: usize, row_len: usize, stride: usize, index: usize, parts: usize) -> (usize, usize) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_sliced_rows() {
        // Two samples of three elements, four apart: a slice of [2, 4].
        assert_eq!(part_range(2, 3, 4, 1, 2), (4, 3));
        assert_eq!(part_range(2, 3, 4, 5, 6), (6, 1));
        assert_eq!(part_range(1, 6, 6, 1, 2), (3, 3));
    }

    #[test]
    #[should_panic(expected = "crosses rows")]
    fn parts_never_cross_rows() {
        part_range(2, 3, 4, 0, 1);
    }
}
