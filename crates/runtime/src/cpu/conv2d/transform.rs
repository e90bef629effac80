//! The transforms of Winograd's F(2×2, 3×3) (Lavin & Gray, "Fast algorithms for convolutional neural networks", 2015).
//!
//! ```text
//!   Y tile = Aᵀ [ (G g Gᵀ) ⊙ (Bᵀ d B) ] A       d: 4×4 pixels of X, g: 3×3 weights, Y tile: 2×2
//!
//!        1  0 −1  0          1   0   0
//!   Bᵀ = 0  1  1  0     G =  ½   ½   ½     Aᵀ = 1  1  1  0
//!        0 −1  1  0          ½  −½   ½          0  1 −1 −1
//!        0  1  0 −1          0   0   1
//! ```
//!
//! Every function works on [`LANES`] tiles (or kernels) at once: element (i, j) of all of them lies in one array, so that
//! the loops become vector instructions.

use crate::cpu::real::Real;

/// Tiles transformed together.
pub(super) const LANES: usize = 16;

/// One element of some tiles.
pub(super) type Lanes<T> = [T; LANES];

/// A matrix of some tiles, row by row.
pub(super) type Tiles<T, const ROWS: usize, const COLUMNS: usize> = [[Lanes<T>; COLUMNS]; ROWS];

#[inline(always)]
fn map2<T: Real>(a: &Lanes<T>, b: &Lanes<T>, f: impl Fn(T, T) -> T) -> Lanes<T> {
    std::array::from_fn(|lane| f(a[lane], b[lane]))
}

#[inline(always)]
fn add<T: Real>(a: &Lanes<T>, b: &Lanes<T>) -> Lanes<T> {
    map2(a, b, |a, b| a + b)
}

#[inline(always)]
fn sub<T: Real>(a: &Lanes<T>, b: &Lanes<T>) -> Lanes<T> {
    map2(a, b, |a, b| a - b)
}

#[inline(always)]
fn half<T: Real>(a: &Lanes<T>) -> Lanes<T> {
    std::array::from_fn(|lane| a[lane] * T::of(0.5))
}

/// Applies `column` to every column of a matrix, then to every row of the result.
#[inline(always)]
fn both_sides<T: Real, const FROM: usize, const TO: usize>(
    matrix: &Tiles<T, FROM, FROM>,
    column: impl Fn([&Lanes<T>; FROM]) -> [Lanes<T>; TO],
) -> Tiles<T, TO, TO> {
    let columns: [[Lanes<T>; TO]; FROM] = std::array::from_fn(|j| column(std::array::from_fn(|i| &matrix[i][j])));
    std::array::from_fn(|i| column(std::array::from_fn(|j| &columns[j][i])))
}

/// `Bᵀ d B` of input tiles.
#[inline(always)]
pub(super) fn input<T: Real>(d: &Tiles<T, 4, 4>) -> Tiles<T, 4, 4> {
    both_sides(d, |[a, b, c, d]| [sub(a, c), add(b, c), sub(c, b), sub(b, d)])
}

/// `G g Gᵀ` of kernels.
#[inline(always)]
pub(super) fn weights<T: Real>(g: &Tiles<T, 3, 3>) -> Tiles<T, 4, 4> {
    both_sides(g, |[a, b, c]| {
        let ends = add(a, c);
        [*a, half(&add(&ends, b)), half(&sub(&ends, b)), *c]
    })
}

/// `Aᵀ m A`: output tiles.
#[inline(always)]
pub(super) fn output<T: Real>(m: &Tiles<T, 4, 4>) -> Tiles<T, 2, 2> {
    both_sides(m, |[a, b, c, d]| [add(&add(a, b), c), sub(&sub(b, c), d)])
}

/// `A dy Aᵀ` of output gradients: the transpose of [`output`].
#[inline(always)]
pub(super) fn output_grad<T: Real>(dy: &Tiles<T, 2, 2>) -> Tiles<T, 4, 4> {
    both_sides(dy, |[a, b]| [*a, add(a, b), sub(a, b), std::array::from_fn(|lane| -b[lane])])
}

/// `Gᵀ s G`: weight gradients, the transpose of [`weights`].
#[inline(always)]
pub(super) fn weights_grad<T: Real>(s: &Tiles<T, 4, 4>) -> Tiles<T, 3, 3> {
    both_sides(s, |[a, b, c, d]| {
        let sum = half(&add(b, c));
        [add(a, &sum), half(&sub(b, c)), add(&sum, d)]
    })
}
