//! Convolution as matrix products over columns: column j of the matrix holds what output pixel j reads.
//!
//! ```text
//!   forward       Y [K, j]        = W [K, C·kh·kw] · columns [C·kh·kw, j]
//!   data grad     columns         = Wᵀ · dY, then every entry is added to the pixel it was read from
//!   weight grad   dW              = Σ over tiles  dY [K, j] · columnsᵀ
//! ```
//!
//! Columns run over a *tile*: some pixels of one sample, or all pixels of several samples when maps are small, so that a
//! product is wide enough for the weights to be read once. Tiles follow one another; within a tile, filling and products
//! are cut into fixed blocks that write different bytes, so no result depends on who runs them.

use super::geometry::Geometry;
use crate::cpu::matrix::{Matrix, MatrixMut};
use crate::cpu::real::Real;
use crate::{View, ViewMut};
use rayon::prelude::*;
use std::ops::Range;

/// Elements of a tile's column buffer, about.
const TILE_ELEMENTS: usize = 1 << 20;
/// Rows and columns of an output block of a product.
const BLOCK: [usize; 2] = [128, 512];

/// How columns are cut into tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    /// Samples of a tile.
    samples: usize,
    /// Pixels of each sample of a tile.
    pixels: usize,
}

/// One tile.
struct Tile {
    samples: Range<usize>,
    pixels: Range<usize>,
}

impl Tile {
    fn columns(&self) -> usize {
        self.samples.len() * self.pixels.len()
    }
}

impl Columns {
    /// Tiles whose buffer stays within some MiB, whatever the batch.
    pub fn tiles(g: &Geometry) -> Self {
        let wanted = (TILE_ELEMENTS / g.depth().max(1)).clamp(256, 4096);
        if g.output_plane() > wanted {
            let tiles = g.output_plane().div_ceil(wanted);
            return Columns { samples: 1, pixels: g.output_plane().div_ceil(tiles).next_multiple_of(16) };
        }
        let samples = (wanted / g.output_plane().max(1)).clamp(1, g.n.max(1));
        Columns { samples, pixels: g.output_plane() }
    }

    /// One tile of everything.
    pub fn all(g: &Geometry) -> Self {
        Columns { samples: g.n.max(1), pixels: g.output_plane() }
    }

    /// Elements of workspace: the columns of a tile and, for tiles of several samples, their part of Y side by side.
    pub fn scratch(&self, g: &Geometry) -> usize {
        let beside = if self.samples > 1 { g.k_group() } else { 0 };
        (g.depth() + beside) * self.stride()
    }

    /// Distance between rows of the buffers: an odd multiple of 16, so that rows do not fall on the same cache lines.
    fn stride(&self) -> usize {
        ((self.samples * self.pixels).div_ceil(16) | 1) * 16
    }

    fn list(&self, g: &Geometry) -> Vec<Tile> {
        let mut tiles = Vec::new();
        for first in (0..g.n).step_by(self.samples) {
            for start in (0..g.output_plane()).step_by(self.pixels.max(1)) {
                tiles.push(Tile {
                    samples: first..(first + self.samples).min(g.n),
                    pixels: start..(start + self.pixels).min(g.output_plane()),
                });
            }
        }
        tiles
    }

    /// Y from X, W and bias.
    pub fn forward<T: Real>(
        &self,
        g: &Geometry,
        x: View<'_, T>,
        w: View<'_, T>,
        bias: Option<View<'_, T>>,
        mut y: ViewMut<'_, T>,
        scratch: &mut [T],
    ) {
        let (columns, beside) = scratch.split_at_mut(g.depth() * self.stride());
        for tile in self.list(g) {
            for group in 0..g.groups {
                let w = Matrix::of_samples(w, g.k).rows(group * g.k_group()..(group + 1) * g.k_group());
                let b = self.columns_of(g, x, &tile, group, columns);
                let stride = self.stride();
                let bias = |k: usize| bias.map_or(T::ZERO, |bias| bias.part(group * g.k_group() + k, g.k)[0]);
                if self.samples > 1 {
                    multiply(MatrixMut::new(beside, g.k_group(), tile.columns(), stride), w, b, false);
                    scatter(g, &tile, group, beside, stride, y.reborrow(), bias);
                    continue;
                }
                let plane = &mut y.part(tile.samples.start, g.n)[group * g.k_group() * g.output_plane()..];
                for k in 0..g.k_group() {
                    plane[k * g.output_plane()..][tile.pixels.clone()].fill(bias(k));
                }
                let c = &mut plane[tile.pixels.start..];
                multiply(MatrixMut::new(c, g.k_group(), tile.columns(), g.output_plane()), w, b, true);
            }
        }
    }

    /// dX from dY and W.
    pub fn data_grad<T: Real>(
        &self,
        g: &Geometry,
        dy: View<'_, T>,
        w: View<'_, T>,
        mut dx: ViewMut<'_, T>,
        scratch: &mut [T],
    ) {
        let (columns, beside) = scratch.split_at_mut(g.depth() * self.stride());
        dx.reborrow().into_parts(g.n).into_par_iter().for_each(|dx| dx.fill(T::ZERO));
        for tile in self.list(g) {
            for group in 0..g.groups {
                let w = Matrix::of_samples(w, g.k).rows(group * g.k_group()..(group + 1) * g.k_group());
                let b = self.outputs_of(g, dy, &tile, group, beside);
                let c = MatrixMut::new(columns, g.depth(), tile.columns(), self.stride());
                multiply(c, w.transposed(), b, false);
                add_columns(g, &tile, group, columns, self.stride(), dx.reborrow());
            }
        }
    }

    /// dW from X and dY, instead of what is there for the `first` piece of a batch, else added to it.
    pub fn weight_grad<T: Real>(
        &self,
        g: &Geometry,
        x: View<'_, T>,
        dy: View<'_, T>,
        mut dw: ViewMut<'_, T>,
        first: bool,
        scratch: &mut [T],
    ) {
        let (columns, beside) = scratch.split_at_mut(g.depth() * self.stride());
        let tiles = self.list(g);
        if tiles.is_empty() && first {
            dw.part(0, 1).fill(T::ZERO);
        }
        for (index, tile) in tiles.iter().enumerate() {
            for group in 0..g.groups {
                let a = self.outputs_of(g, dy, tile, group, beside);
                let b = self.columns_of(g, x, tile, group, columns);
                let c = MatrixMut::new(dw.part(group, g.groups), g.k_group(), g.depth(), g.depth());
                multiply(c, a, b.transposed(), index > 0 || !first);
            }
        }
    }

    /// The columns of a tile: X itself where that is the same, else filled into `buffer`.
    fn columns_of<'b, T: Real>(
        &self,
        g: &Geometry,
        x: View<'b, T>,
        tile: &Tile,
        group: usize,
        buffer: &'b mut [T],
    ) -> Matrix<'b, T> {
        if self.samples == 1 && g.is_pointwise() {
            let channels = &x.part(tile.samples.start, g.n)[group * g.c_group() * g.input_plane()..];
            return Matrix::new(&channels[tile.pixels.start..], g.depth(), tile.columns(), g.input_plane());
        }
        buffer.par_chunks_mut(self.stride()).take(g.depth()).enumerate().for_each(|(row, buffer)| {
            let channel = group * g.c_group() + row / g.taps();
            for (index, sample) in tile.samples.clone().enumerate() {
                let x = x.part(sample * g.c + channel, g.n * g.c);
                let buffer = &mut buffer[index * tile.pixels.len()..][..tile.pixels.len()];
                fill_row(g, x, g.tap(row % g.taps()), &tile.pixels, buffer);
            }
        });
        Matrix::new(buffer, g.depth(), tile.columns(), self.stride())
    }

    /// dY's part of a tile `[K/G, j]`: dY itself for one sample, else gathered into `buffer`.
    fn outputs_of<'b, T: Real>(
        &self,
        g: &Geometry,
        dy: View<'b, T>,
        tile: &Tile,
        group: usize,
        buffer: &'b mut [T],
    ) -> Matrix<'b, T> {
        if self.samples == 1 {
            let planes = &dy.part(tile.samples.start, g.n)[group * g.k_group() * g.output_plane()..];
            return Matrix::new(&planes[tile.pixels.start..], g.k_group(), tile.columns(), g.output_plane());
        }
        buffer.par_chunks_mut(self.stride()).take(g.k_group()).enumerate().for_each(|(k, buffer)| {
            for (index, sample) in tile.samples.clone().enumerate() {
                let plane = dy.part(sample * g.k + group * g.k_group() + k, g.n * g.k);
                buffer[index * plane.len()..][..plane.len()].copy_from_slice(plane);
            }
        });
        Matrix::new(buffer, g.k_group(), tile.columns(), self.stride())
    }
}

/// A product in fixed blocks.
fn multiply<T: Real>(c: MatrixMut<'_, T>, a: Matrix<'_, T>, b: Matrix<'_, T>, accumulate: bool) {
    c.blocks(BLOCK[0], BLOCK[1]).into_par_iter().for_each(|block| block.product(a, b, accumulate));
}

/// Moves a tile's outputs, samples side by side, to their planes, and adds the bias.
fn scatter<T: Real>(
    g: &Geometry,
    tile: &Tile,
    group: usize,
    beside: &[T],
    stride: usize,
    y: ViewMut<'_, T>,
    bias: impl Fn(usize) -> T + Sync,
) {
    let plane = g.output_plane();
    let samples = y.into_parts(g.n).into_iter().skip(tile.samples.start).take(tile.samples.len());
    samples.collect::<Vec<_>>().into_par_iter().enumerate().for_each(|(index, y)| {
        let planes = y.chunks_exact_mut(plane).skip(group * g.k_group()).take(g.k_group());
        for (k, y) in planes.enumerate() {
            let (from, bias) = (&beside[k * stride + index * plane..][..plane], bias(k));
            y.iter_mut().zip(from).for_each(|(y, &from)| *y = from + bias);
        }
    });
}

/// Adds a tile's columns to the pixels they were read from, plane by plane, taps in order.
fn add_columns<T: Real>(g: &Geometry, tile: &Tile, group: usize, columns: &[T], stride: usize, dx: ViewMut<'_, T>) {
    let samples = dx.into_parts(g.n).into_iter().skip(tile.samples.start).take(tile.samples.len());
    let planes: Vec<(usize, usize, &mut [T])> = samples
        .enumerate()
        .flat_map(|(index, dx)| {
            let planes = dx.chunks_exact_mut(g.input_plane()).skip(group * g.c_group()).take(g.c_group());
            planes.enumerate().map(move |(c, dx)| (index, c, dx))
        })
        .collect();
    planes.into_par_iter().with_min_len(8).for_each(|(index, c, dx)| {
        for tap in 0..g.taps() {
            let row = &columns[(c * g.taps() + tap) * stride + index * tile.pixels.len()..][..tile.pixels.len()];
            add_row(g, dx, g.tap(tap), &tile.pixels, row);
        }
    });
}

/// One row of the columns: what each output pixel of `pixels` reads of plane `x` with tap (a, b), 0 in the padding.
fn fill_row<T: Real>(g: &Geometry, x: &[T], [a, b]: [usize; 2], pixels: &Range<usize>, row: &mut [T]) {
    let (rows, columns) = (g.reached(0, a), g.reached(1, b));
    for_output_rows(g, pixels, |i, span, at| {
        let row = &mut row[at..at + span.len()];
        let inside = columns.start.max(span.start)..columns.end.min(span.end);
        if !rows.contains(&i) || inside.is_empty() {
            return row.fill(T::ZERO);
        }
        let (before, rest) = row.split_at_mut(inside.start - span.start);
        let (middle, after) = rest.split_at_mut(inside.len());
        before.fill(T::ZERO);
        after.fill(T::ZERO);
        let x = &x[g.source(0, a, i) * g.input[1] + g.source(1, b, inside.start)..];
        match g.stride[1] {
            1 => middle.copy_from_slice(&x[..inside.len()]),
            stride => middle.iter_mut().zip(x.iter().step_by(stride)).for_each(|(to, &from)| *to = from),
        }
    });
}

/// The transpose of [`fill_row`]: adds each entry to the pixel it was read from.
fn add_row<T: Real>(g: &Geometry, dx: &mut [T], [a, b]: [usize; 2], pixels: &Range<usize>, row: &[T]) {
    let (rows, columns) = (g.reached(0, a), g.reached(1, b));
    for_output_rows(g, pixels, |i, span, at| {
        let inside = columns.start.max(span.start)..columns.end.min(span.end);
        if !rows.contains(&i) || inside.is_empty() {
            return;
        }
        let row = &row[at + inside.start - span.start..][..inside.len()];
        let dx = &mut dx[g.source(0, a, i) * g.input[1] + g.source(1, b, inside.start)..];
        match g.stride[1] {
            1 => dx.iter_mut().zip(row).for_each(|(to, &from)| *to += from),
            stride => dx.iter_mut().step_by(stride).zip(row).for_each(|(to, &from)| *to += from),
        }
    });
}

/// `f(i, columns, at)` for each output row a range of pixels touches; `at` counts from the range's start.
fn for_output_rows(g: &Geometry, pixels: &Range<usize>, mut f: impl FnMut(usize, Range<usize>, usize)) {
    let width = g.output[1];
    let mut at = pixels.start;
    while at < pixels.end {
        let (i, j) = (at / width, at % width);
        let end = width.min(j + pixels.end - at);
        f(i, j..end, at - pixels.start);
        at += end - j;
    }
}
