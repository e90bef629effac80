//! Winograd's F(m×m, 3×3): 3×3 convolutions of stride 1 with (m + 2)² / m² multiplications for an output pixel instead of
//! 9: 4 for m = 2, 2¼ for m = 4, which rounds more and needs larger maps.
//!
//! ```text
//!   X ─Bᵀ d B─► V [C, (m+2)², tiles] ┐
//!                                    ├─ (m+2)² products ─► M [K, (m+2)², tiles] ─Aᵀ m A─► Y
//!   W ─G g Gᵀ─► U [K, (m+2)², C]     ┘
//! ```
//!
//! The data gradient is the same convolution of dY with the kernels turned round and U transposed. The weight gradient is
//! `S = Σ over tiles (A dy Aᵀ) Vᵀ`, (m+2)² products, and `dW = Gᵀ S G`.
//!
//! Tiles go in chunks of tile rows, so that V and M stay within some MiB. Left to [`super::transform`]: the arithmetic.

use super::geometry::Geometry;
use super::transform::{LANES, Large, Small, Tiles, Transform, both_sides};
use crate::cpu::matrix::{Matrix, MatrixMut};
use crate::cpu::real::{Real, vectorised};
use crate::{View, ViewMut};
use rayon::prelude::*;
use std::marker::PhantomData;
use std::ops::Range;

/// Elements of V and M in a chunk, about.
const CHUNK_ELEMENTS: usize = 1 << 21;
/// Rows of a block of a product.
const BLOCK: usize = 128;
/// m = 2.
pub(super) type Winograd2 = Winograd<Small, 2, 4>;
/// m = 4.
pub(super) type Winograd4 = Winograd<Large, 4, 6>;

/// True for convolutions this algorithm can do, gradients included.
pub(super) fn fits(g: &Geometry) -> bool {
    let ones = g.stride == [1; 2] && g.dilation == [1; 2] && g.groups == 1;
    ones && g.kernel == [3; 2] && g.padding.iter().all(|&padding| padding <= 2)
}

/// A 3×3 convolution of stride 1, or its data gradient, in tiles of M×M output and A×A input pixels.
pub(super) struct Winograd<F, const M: usize, const A: usize> {
    n: usize,
    /// Channels of what is read and of what is written.
    channels: [usize; 2],
    input: [usize; 2],
    output: [usize; 2],
    padding: [usize; 2],
    /// Tile rows of a sample and tiles of a row.
    tiles: [usize; 2],
    /// Tile rows of a chunk.
    chunk: usize,
    transform: PhantomData<fn() -> F>,
}

/// Tiles of one tile row that lie side by side.
struct Run {
    sample: usize,
    /// First tile: row and column in the sample.
    at: [usize; 2],
    /// Lanes the tiles take.
    lanes: Range<usize>,
}

impl<F: Transform<M, A>, const M: usize, const A: usize> Winograd<F, M, A> {
    /// Elements of a transformed tile.
    const ELEMENTS: usize = A * A;

    /// Of the forward and of the weight gradient; `turned` of the data gradient, a convolution that reads dY and writes dX.
    pub fn of(g: &Geometry, turned: bool) -> Self {
        if turned {
            return Self::new(g.n, [g.k, g.c], g.output, g.input, g.padding.map(|padding| 2 - padding));
        }
        Self::new(g.n, [g.c, g.k], g.input, g.output, g.padding)
    }

    fn new(n: usize, channels: [usize; 2], input: [usize; 2], output: [usize; 2], padding: [usize; 2]) -> Self {
        let tiles = output.map(|size| size.div_ceil(M));
        let wanted = (CHUNK_ELEMENTS / Self::ELEMENTS / (channels[0] + channels[1])).clamp(128, 768);
        let chunk = (wanted / tiles[1].max(1)).clamp(1, (n * tiles[0]).max(1));
        Winograd { n, channels, input, output, padding, tiles, chunk, transform: PhantomData }
    }

    /// Multiplications relative to the plain loops', tiles that hang over the edge included.
    pub fn work(&self) -> f64 {
        let tiles = (self.tiles[0] * self.tiles[1]) as f64;
        tiles * Self::ELEMENTS as f64 / (9 * self.output[0] * self.output[1]) as f64
    }

    /// Elements of U (or S).
    pub fn weights(&self) -> usize {
        let [from, to] = self.channels;
        (from * Self::row(to)).max(to * Self::row(from))
    }

    /// Elements of workspace: U (or S), V and M (or the transform of dY).
    pub fn scratch(&self) -> usize {
        self.weights() + (self.channels[0] + self.channels[1]) * Self::row(self.stride())
    }

    /// Y (or dX) from X (or dY) and W `[K, C, 3, 3]`; `turned` for the data gradient.
    pub fn convolve<T: Real>(
        &self,
        x: View<'_, T>,
        w: View<'_, T>,
        bias: Option<View<'_, T>>,
        turned: bool,
        mut y: ViewMut<'_, T>,
        scratch: &mut [T],
    ) {
        let [from, to] = self.channels;
        let [k, c] = if turned { [from, to] } else { [to, from] };
        let (u, v, m) = self.split(scratch, k, c);
        Self::transform_weights(w, [k, c], turned, u);
        let u: &[T] = u;
        for rows in self.chunks() {
            let columns = rows.len() * self.tiles[1];
            self.transform_input(x, &rows, v);
            let v: &[T] = v;
            let stride = self.stride();
            let blocks = MatrixMut::new(m, to, Self::ELEMENTS * stride, Self::row(stride)).blocks(BLOCK, stride);
            blocks.into_par_iter().for_each(|block| {
                let element = block.column / stride;
                let a = Matrix::new(&u[element * c..], k, c, Self::row(c));
                let a = if turned { a.transposed() } else { a };
                let b = Matrix::new(&v[element * stride..], from, columns, Self::row(stride));
                block.narrowed(columns).product(a, b, false);
            });
            self.transform_output(m, &rows, bias, y.reborrow());
        }
    }

    /// Adds to S what X and dY give; S is 0 before the `first` piece of a batch.
    pub fn add_weight_grad<T: Real>(&self, x: View<'_, T>, dy: View<'_, T>, first: bool, scratch: &mut [T]) {
        let [c, k] = self.channels;
        let (s, v, q) = self.split(scratch, k, c);
        if first {
            s.fill(T::ZERO);
        }
        for rows in self.chunks() {
            let columns = rows.len() * self.tiles[1];
            self.transform_input(x, &rows, v);
            self.transform_output_grad(dy, &rows, q);
            let (v, q, stride): (&[T], &[T], usize) = (v, q, self.stride());
            MatrixMut::new(s, k, Self::ELEMENTS * c, Self::row(c)).blocks(BLOCK, c).into_par_iter().for_each(|block| {
                let element = block.column / c;
                let a = Matrix::new(&q[element * stride..], k, columns, Self::row(stride));
                let b = Matrix::new(&v[element * stride..], c, columns, Self::row(stride)).transposed();
                block.narrowed(c).product(a, b, true);
            });
        }
    }

    /// dW from S.
    pub fn finish_weight_grad<T: Real>(&self, scratch: &mut [T], dw: ViewMut<'_, T>) {
        let [c, k] = self.channels;
        Self::transform_weights_grad(self.split(scratch, k, c).0, [k, c], dw);
    }

    /// Elements of one channel: a row of columns for each element of a tile, and a gap that keeps channels off each
    /// other's cache lines.
    fn row(columns: usize) -> usize {
        Self::ELEMENTS * columns + LANES
    }

    /// The workspace cut into U, V and M.
    fn split<'b, T>(&self, scratch: &'b mut [T], k: usize, c: usize) -> (&'b mut [T], &'b mut [T], &'b mut [T]) {
        let (u, rest) = scratch.split_at_mut(k * Self::row(c));
        let (v, rest) = rest.split_at_mut(self.channels[0] * Self::row(self.stride()));
        (u, v, &mut rest[..self.channels[1] * Self::row(self.stride())])
    }

    /// Tiles of a chunk, rounded up to whole lanes and to an odd number of them, so that rows spread over the cache.
    fn stride(&self) -> usize {
        ((self.chunk * self.tiles[1]).div_ceil(LANES) | 1) * LANES
    }

    /// Tile rows of all samples, cut into chunks.
    fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<F, M, A> {
        let (rows, chunk) = (self.n * self.tiles[0], self.chunk);
        (0..rows).step_by(chunk).map(move |start| start..(start + chunk).min(rows))
    }

    /// Tiles `first..first + LANES` of a chunk, as runs of one tile row each.
    #[inline(always)]
    fn for_runs(&self, rows: &Range<usize>, first: usize, mut f: impl FnMut(Run)) {
        let [height, width] = self.tiles;
        let end = (rows.len() * width).min(first + LANES);
        let mut tile = first;
        while tile < end {
            let (row, column) = (rows.start + tile / width, tile % width);
            let len = (width - column).min(end - tile);
            let lanes = tile - first..tile - first + len;
            f(Run { sample: row / height, at: [row % height, column], lanes });
            tile += len;
        }
    }

    /// V of a chunk of tile rows.
    fn transform_input<T: Real>(&self, x: View<'_, T>, rows: &Range<usize>, v: &mut [T]) {
        let (channels, stride) = (self.channels[0], self.stride());
        v.par_chunks_mut(Self::row(stride)).enumerate().for_each(|(channel, v)| {
            vectorised(
                #[inline(always)]
                || {
                    for first in (0..rows.len() * self.tiles[1]).step_by(LANES) {
                        let mut d = [[[T::ZERO; LANES]; A]; A];
                        self.for_runs(rows, first, |run| {
                            let plane = x.part(run.sample * channels + channel, self.n * channels);
                            load::<T, M, _>(plane, self.input, run.at, self.padding, run.lanes, &mut d);
                        });
                        store(&both_sides(&d, F::input), v, first, stride);
                    }
                },
            );
        });
    }

    /// The transform of dY for a chunk of tile rows.
    fn transform_output_grad<T: Real>(&self, dy: View<'_, T>, rows: &Range<usize>, q: &mut [T]) {
        let (channels, stride) = (self.channels[1], self.stride());
        q.par_chunks_mut(Self::row(stride)).enumerate().for_each(|(channel, q)| {
            vectorised(
                #[inline(always)]
                || {
                    for first in (0..rows.len() * self.tiles[1]).step_by(LANES) {
                        let mut d = [[[T::ZERO; LANES]; M]; M];
                        self.for_runs(rows, first, |run| {
                            let plane = dy.part(run.sample * channels + channel, self.n * channels);
                            load::<T, M, _>(plane, self.output, run.at, [0; 2], run.lanes, &mut d);
                        });
                        store(&both_sides(&d, F::output_grad), q, first, stride);
                    }
                },
            );
        });
    }

    /// Output pixels of a chunk of tile rows from M.
    fn transform_output<T: Real>(&self, m: &[T], rows: &Range<usize>, bias: Option<View<'_, T>>, y: ViewMut<'_, T>) {
        let (channels, stride) = (self.channels[1], self.stride());
        let (first_sample, last_sample) = (rows.start / self.tiles[0], (rows.end - 1) / self.tiles[0]);
        let samples = y.into_parts(self.n).into_iter().take(last_sample + 1).skip(first_sample);
        let mut samples: Vec<_> = samples.map(|y| y.chunks_exact_mut(self.output[0] * self.output[1])).collect();
        let planes: Vec<Vec<&mut [T]>> =
            (0..channels).map(|_| samples.iter_mut().filter_map(Iterator::next).collect()).collect();
        planes.into_par_iter().enumerate().for_each(|(channel, mut planes)| {
            let m = &m[channel * Self::row(stride)..];
            let bias = bias.map_or(T::ZERO, |bias| bias.part(channel, channels)[0]);
            vectorised(
                #[inline(always)]
                || {
                    for first in (0..rows.len() * self.tiles[1]).step_by(LANES) {
                        let tiles = both_sides(&fetch::<T, A>(m, first, stride), F::output);
                        self.for_runs(rows, first, |run| {
                            put(&tiles, planes[run.sample - first_sample], self.output, run, bias);
                        });
                    }
                },
            );
        });
    }

    /// U from W, whose kernels may be turned round.
    fn transform_weights<T: Real>(w: View<'_, T>, [k, c]: [usize; 2], turned: bool, u: &mut [T]) {
        u.par_chunks_mut(Self::row(c)).enumerate().for_each(|(out, u)| {
            let w = w.part(out, k);
            vectorised(
                #[inline(always)]
                || {
                    for first in (0..c).step_by(LANES) {
                        let lanes = LANES.min(c - first);
                        let mut g = [[[T::ZERO; LANES]; 3]; 3];
                        for (lane, w) in w[first * 9..].chunks_exact(9).take(lanes).enumerate() {
                            for tap in 0..9 {
                                g[tap / 3][tap % 3][lane] = w[if turned { 8 - tap } else { tap }];
                            }
                        }
                        let transformed: Tiles<T, A> = both_sides(&g, F::weights);
                        for (element, lane) in transformed.as_flattened().iter().enumerate() {
                            u[element * c + first..][..lanes].copy_from_slice(&lane[..lanes]);
                        }
                    }
                },
            );
        });
    }

    /// dW from S.
    fn transform_weights_grad<T: Real>(s: &[T], [k, c]: [usize; 2], dw: ViewMut<'_, T>) {
        dw.into_parts(k).into_par_iter().enumerate().for_each(|(out, dw)| {
            let s = &s[out * Self::row(c)..];
            vectorised(
                #[inline(always)]
                || {
                    for first in (0..c).step_by(LANES) {
                        let lanes = LANES.min(c - first);
                        let mut tiles = [[[T::ZERO; LANES]; A]; A];
                        for (element, tile) in tiles.as_flattened_mut().iter_mut().enumerate() {
                            tile[..lanes].copy_from_slice(&s[element * c + first..][..lanes]);
                        }
                        let g = both_sides(&tiles, F::weights_grad);
                        for (lane, dw) in dw[first * 9..].chunks_exact_mut(9).take(lanes).enumerate() {
                            (0..9).for_each(|tap| dw[tap] = g[tap / 3][tap % 3][lane]);
                        }
                    }
                },
            );
        });
    }
}

/// Reads the SIZE×SIZE pixels of a run of tiles, which stand M apart; what lies outside the plane stays 0.
#[inline(always)]
fn load<T: Real, const M: usize, const SIZE: usize>(
    plane: &[T],
    size: [usize; 2],
    at: [usize; 2],
    padding: [usize; 2],
    lanes: Range<usize>,
    d: &mut Tiles<T, SIZE>,
) {
    for (i, d) in d.iter_mut().enumerate() {
        let Some(y) = (M * at[0] + i).checked_sub(padding[0]).filter(|&y| y < size[0]) else {
            continue;
        };
        let line = &plane[y * size[1]..][..size[1]];
        for (j, d) in d.iter_mut().enumerate() {
            // Tile t of the run reads column M t + first − padding.
            let first = M * at[1] + j;
            let start = padding[1].saturating_sub(first).div_ceil(M).min(lanes.len());
            let end = (size[1] + padding[1]).saturating_sub(first).div_ceil(M).clamp(start, lanes.len());
            if start < end {
                let line = &line[first + M * start - padding[1]..];
                let d = &mut d[lanes.start + start..lanes.start + end];
                d.iter_mut().zip(line.chunks(M)).for_each(|(d, x)| *d = x[0]);
            }
        }
    }
}

/// Writes a run's output pixels where they lie within the plane.
#[inline(always)]
fn put<T: Real, const M: usize>(tiles: &Tiles<T, M>, plane: &mut [T], size: [usize; 2], run: Run, bias: T) {
    for (i, tiles) in tiles.iter().enumerate().take(size[0] - M * run.at[0]) {
        let line = &mut plane[(M * run.at[0] + i) * size[1]..][M * run.at[1]..size[1]];
        let mut groups = line.chunks_exact_mut(M);
        let mut lane = run.lanes.start;
        for pixels in groups.by_ref().take(run.lanes.len()) {
            (0..M).for_each(|j| pixels[j] = tiles[j][lane] + bias);
            lane += 1;
        }
        if lane < run.lanes.end {
            // The last tile hangs over the edge.
            groups.into_remainder().iter_mut().zip(tiles).for_each(|(pixel, tile)| *pixel = tile[lane] + bias);
        }
    }
}

/// Stores the elements of some tiles, `stride` apart.
#[inline(always)]
fn store<T: Real, const A: usize>(tiles: &Tiles<T, A>, rows: &mut [T], first: usize, stride: usize) {
    for (element, lanes) in tiles.as_flattened().iter().enumerate() {
        rows[element * stride + first..][..LANES].copy_from_slice(lanes);
    }
}

/// The transpose of [`store`].
#[inline(always)]
fn fetch<T: Real, const A: usize>(rows: &[T], first: usize, stride: usize) -> Tiles<T, A> {
    let mut tiles = [[[T::ZERO; LANES]; A]; A];
    for (element, lanes) in tiles.as_flattened_mut().iter_mut().enumerate() {
        lanes.copy_from_slice(&rows[element * stride + first..][..LANES]);
    }
    tiles
}
