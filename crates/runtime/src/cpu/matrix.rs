//! Matrices over borrowed elements, and their product on one thread.
//!
//! The `gemm` crate takes raw pointers, so this file is the second of two in this crate with `unsafe`: a matrix can only
//! be made from a borrow that covers all its elements, and one being written only be cut into blocks that do not overlap.
#![allow(unsafe_code)]

use super::real::Real;
use crate::{View, ViewMut};
use std::marker::PhantomData;
use std::ops::Range;

/// A matrix to read: element (i, j) lies at `i · row_stride + j · column_stride`.
pub(super) struct Matrix<'a, T> {
    pointer: *const T,
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
    _borrow: PhantomData<&'a [T]>,
}

/// A matrix to write, in rows of adjacent elements.
pub(super) struct MatrixMut<'a, T> {
    pointer: *mut T,
    rows: usize,
    columns: usize,
    row_stride: usize,
    _borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: a Matrix is a shared borrow of its elements, as `&[T]` is.
unsafe impl<T: Sync> Send for Matrix<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Matrix<'_, T> {}
// SAFETY: a MatrixMut is an exclusive borrow of its elements, as `&mut [T]` is.
unsafe impl<T: Send> Send for MatrixMut<'_, T> {}

impl<T> Clone for Matrix<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Matrix<'_, T> {}

impl<'a, T> Matrix<'a, T> {
    /// Rows of `columns` elements, `row_stride` apart.
    pub fn new(data: &'a [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert!(fits(data.len(), rows, columns, row_stride), "{rows} x {columns} at {row_stride} in {}", data.len());
        Matrix { pointer: data.as_ptr(), rows, columns, row_stride, column_stride: 1, _borrow: PhantomData }
    }

    /// One row a sample of a value that may be sliced.
    pub fn of_samples(view: View<'a, T>, samples: usize) -> Self {
        let (pointer, rows, row_len, stride) = view.raw();
        let (columns, row_stride) = sample_rows(rows, row_len, stride, samples);
        Matrix { pointer, rows: samples, columns, row_stride, column_stride: 1, _borrow: PhantomData }
    }

    /// The transpose, without moving anything.
    pub fn transposed(self) -> Self {
        Matrix {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// Some of the rows.
    pub fn rows(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.rows, "rows {range:?} of {}", self.rows);
        // The start lies within the borrow, or no element of an empty range is ever read.
        let pointer = self.pointer.wrapping_add(range.start * self.row_stride);
        Matrix { pointer, rows: range.len(), ..self }
    }

    /// Row `i` of this matrix times column `j` of another, in `f64` and in order.
    pub fn dot(self, i: usize, other: Matrix<'_, T>, j: usize) -> f64
    where
        T: Real,
    {
        assert!(i < self.rows && j < other.columns && self.columns == other.rows);
        let element = |k: usize| {
            let (a, b) = (i * self.row_stride + k * self.column_stride, k * other.row_stride + j * other.column_stride);
            // SAFETY: i, j and k lie within the matrices, whose elements lie within their borrows.
            unsafe { (*self.pointer.add(a), *other.pointer.add(b)) }
        };
        (0..self.columns).map(element).map(|(a, b)| a.wide() * b.wide()).sum()
    }

    /// Some of the columns.
    pub fn columns(self, range: Range<usize>) -> Self {
        self.transposed().rows(range).transposed()
    }
}

impl<'a, T> MatrixMut<'a, T> {
    /// Rows of `columns` elements, `row_stride` apart.
    pub fn new(data: &'a mut [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert!(fits(data.len(), rows, columns, row_stride), "{rows} x {columns} at {row_stride} in {}", data.len());
        MatrixMut { pointer: data.as_mut_ptr(), rows, columns, row_stride, _borrow: PhantomData }
    }

    /// One row a sample of a value that may be sliced.
    pub fn of_samples(mut view: ViewMut<'a, T>, samples: usize) -> Self {
        let (pointer, rows, row_len, stride) = view.raw();
        let (columns, row_stride) = sample_rows(rows, row_len, stride, samples);
        MatrixMut { pointer, rows: samples, columns, row_stride, _borrow: PhantomData }
    }

    /// Cuts the matrix into blocks of at most `rows` x `columns`, each with the place of its first element.
    pub fn blocks(self, rows: usize, columns: usize) -> Vec<Block<'a, T>> {
        let mut blocks = Vec::new();
        for row in (0..self.rows).step_by(rows.max(1)) {
            for column in (0..self.columns).step_by(columns.max(1)) {
                let matrix = MatrixMut {
                    pointer: self.pointer.wrapping_add(row * self.row_stride + column),
                    rows: rows.min(self.rows - row),
                    columns: columns.min(self.columns - column),
                    row_stride: self.row_stride,
                    _borrow: PhantomData,
                };
                blocks.push(Block { row, column, matrix });
            }
        }
        blocks
    }
}

/// Part of a matrix being written.
pub(super) struct Block<'a, T> {
    /// First row in the whole.
    pub row: usize,
    /// First column in the whole.
    pub column: usize,
    /// The elements.
    pub matrix: MatrixMut<'a, T>,
}

impl<T: Real> Block<'_, T> {
    /// The first columns of the block, as the first columns of the whole.
    pub fn narrowed(self, columns: usize) -> Self {
        assert!(columns <= self.matrix.columns, "{columns} of {} columns", self.matrix.columns);
        Block { column: 0, matrix: MatrixMut { columns, ..self.matrix }, ..self }
    }

    /// This block of the product `a · b`, added to what is there or instead of it.
    pub fn product(self, a: Matrix<'_, T>, b: Matrix<'_, T>, accumulate: bool) {
        let (rows, columns) = (self.matrix.rows, self.matrix.columns);
        product(
            self.matrix,
            a.rows(self.row..self.row + rows),
            b.columns(self.column..self.column + columns),
            accumulate,
        );
    }
}

/// `c = a · b`, or `c += a · b`, on the calling thread.
fn product<T: Real>(c: MatrixMut<'_, T>, a: Matrix<'_, T>, b: Matrix<'_, T>, accumulate: bool) {
    assert!((c.rows, c.columns, a.columns) == (a.rows, b.columns, b.rows), "the sizes of a product do not match");
    let one = T::of(1.0);
    // SAFETY: the constructors checked that every element of the three matrices lies within its borrow, the sizes agree,
    // and C's borrow is exclusive, so it overlaps neither A nor B.
    unsafe {
        gemm::gemm(
            c.rows,
            c.columns,
            a.columns,
            c.pointer,
            1,
            c.row_stride as isize,
            accumulate,
            a.pointer,
            a.column_stride as isize,
            a.row_stride as isize,
            b.pointer,
            b.column_stride as isize,
            b.row_stride as isize,
            one,
            one,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

fn fits(len: usize, rows: usize, columns: usize, row_stride: usize) -> bool {
    rows == 0 || (rows == 1 || row_stride >= columns) && (rows - 1) * row_stride + columns <= len
}

/// Columns and row stride of a matrix with one row a sample.
fn sample_rows(rows: usize, row_len: usize, stride: usize, samples: usize) -> (usize, usize) {
    let columns = (rows * row_len).checked_div(samples).unwrap_or(0);
    assert!(rows <= 1 || stride == row_len || rows == samples, "{rows} rows hold no {samples} samples");
    (columns, if rows == samples { stride } else { columns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_product_are_the_product() {
        let a: Vec<f64> = (0..12).map(f64::from).collect();
        let b: Vec<f64> = (0..20).map(|i| f64::from(i) * 0.5).collect();
        let mut c = vec![1.0; 3 * 6];
        // [3, 4] times the first four columns of the transpose of [5, 4]: [4, 5].
        let (a, b) = (Matrix::new(&a, 3, 4, 4), Matrix::new(&b, 5, 4, 4).transposed());
        for block in MatrixMut::new(&mut c, 3, 5, 6).blocks(2, 3) {
            block.product(a, b, true);
        }
        for (i, row) in c.chunks(6).enumerate() {
            for (j, &value) in row[..5].iter().enumerate() {
                let expected: f64 = (0..4).map(|k| (i * 4 + k) as f64 * (j * 4 + k) as f64 * 0.5).sum();
                assert_eq!(value, 1.0 + expected);
            }
            assert_eq!(row[5], 1.0, "beyond the matrix");
        }
    }

    #[test]
    #[should_panic(expected = "3 x 4")]
    fn a_matrix_lies_within_its_borrow() {
        Matrix::new(&[0f32; 11], 3, 4, 4);
    }
}
