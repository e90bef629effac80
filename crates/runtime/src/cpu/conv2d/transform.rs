//! The transforms of Winograd's F(m×m, 3×3), m = 2 and 4 (Lavin & Gray, "Fast algorithms for convolutional neural
//! networks", 2015).
//!
//! ```text
//!   Y tile = Aᵀ [ (G g Gᵀ) ⊙ (Bᵀ d B) ] A       d: (m+2)² pixels of X, g: 3×3 weights, Y tile: m×m
//!
//!   m = 2:    1  0 −1  0          1   0   0
//!        Bᵀ = 0  1  1  0     G =  ½   ½   ½     Aᵀ = 1  1  1  0
//!             0 −1  1  0          ½  −½   ½          0  1 −1 −1
//!             0  1  0 −1          0   0   1
//!
//!   m = 4:    4  0 −5  0  1  0          ¼     0    0
//!             0 −4 −4  1  1  0        −1/6  −1/6 −1/6         1  1  1  1  1  0
//!        Bᵀ = 0  4 −4 −1  1  0   G =  −1/6   1/6 −1/6    Aᵀ = 0  1 −1  2 −2  0
//!             0 −2 −1  2  1  0        1/24  1/12  1/6         0  1  1  4  4  0
//!             0  2 −1 −2  1  0        1/24 −1/12  1/6         0  1 −1  8 −8  1
//!             0  4  0 −5  0  1          0     0    1
//! ```
//!
//! Every function works on [`LANES`] tiles (or kernels) at once: element (i, j) of all of them lies in one array, so that
//! the loops become vector instructions.

use crate::cpu::real::Real;

/// Tiles transformed together.
pub(super) const LANES: usize = 16;

/// One element of some tiles.
pub(super) type Lanes<T> = [T; LANES];

/// A square matrix of some tiles, row by row.
pub(super) type Tiles<T, const SIDE: usize> = [[Lanes<T>; SIDE]; SIDE];

/// The matrices of one tile size, each applied to a vector of some tiles. M is m, A is m + 2.
pub(super) trait Transform<const M: usize, const A: usize> {
    /// `Bᵀ x`.
    fn input<T: Real>(x: [&Lanes<T>; A]) -> [Lanes<T>; A];
    /// `G x`.
    fn weights<T: Real>(x: [&Lanes<T>; 3]) -> [Lanes<T>; A];
    /// `Aᵀ x`.
    fn output<T: Real>(x: [&Lanes<T>; A]) -> [Lanes<T>; M];
    /// `A x`.
    fn output_grad<T: Real>(x: [&Lanes<T>; M]) -> [Lanes<T>; A];
    /// `Gᵀ x`.
    fn weights_grad<T: Real>(x: [&Lanes<T>; A]) -> [Lanes<T>; 3];
}

/// Applies `matrix` to every column and then to every row.
#[inline(always)]
pub(super) fn both_sides<T: Real, const FROM: usize, const TO: usize>(
    tiles: &Tiles<T, FROM>,
    matrix: impl Fn([&Lanes<T>; FROM]) -> [Lanes<T>; TO],
) -> Tiles<T, TO> {
    let columns: [[Lanes<T>; TO]; FROM] = std::array::from_fn(|j| matrix(std::array::from_fn(|i| &tiles[i][j])));
    std::array::from_fn(|i| matrix(std::array::from_fn(|j| &columns[j][i])))
}

/// `f` lane by lane; each result of `f` is one row of the output.
#[inline(always)]
fn lanes<T: Real, const FROM: usize, const TO: usize>(
    x: [&Lanes<T>; FROM],
    f: impl Fn([T; FROM]) -> [T; TO],
) -> [Lanes<T>; TO] {
    let mut y = [[T::ZERO; LANES]; TO];
    for lane in 0..LANES {
        let column = f(std::array::from_fn(|i| x[i][lane]));
        for i in 0..TO {
            y[i][lane] = column[i];
        }
    }
    y
}

/// m = 2.
pub(super) struct Small;

impl Transform<2, 4> for Small {
    #[inline(always)]
    fn input<T: Real>(x: [&Lanes<T>; 4]) -> [Lanes<T>; 4] {
        lanes(x, |[a, b, c, d]| [a - c, b + c, c - b, b - d])
    }

    #[inline(always)]
    fn weights<T: Real>(x: [&Lanes<T>; 3]) -> [Lanes<T>; 4] {
        let half = T::of(0.5);
        lanes(x, |[a, b, c]| [a, (a + c + b) * half, (a + c - b) * half, c])
    }

    #[inline(always)]
    fn output<T: Real>(x: [&Lanes<T>; 4]) -> [Lanes<T>; 2] {
        lanes(x, |[a, b, c, d]| [a + b + c, b - c - d])
    }

    #[inline(always)]
    fn output_grad<T: Real>(x: [&Lanes<T>; 2]) -> [Lanes<T>; 4] {
        lanes(x, |[a, b]| [a, a + b, a - b, -b])
    }

    #[inline(always)]
    fn weights_grad<T: Real>(x: [&Lanes<T>; 4]) -> [Lanes<T>; 3] {
        let half = T::of(0.5);
        lanes(x, |[a, b, c, d]| {
            let sum = (b + c) * half;
            [a + sum, (b - c) * half, sum + d]
        })
    }
}

/// m = 4.
pub(super) struct Large;

impl Transform<4, 6> for Large {
    #[inline(always)]
    fn input<T: Real>(x: [&Lanes<T>; 6]) -> [Lanes<T>; 6] {
        let [two, four, five] = [2.0, 4.0, 5.0].map(T::of);
        lanes(x, |[a, b, c, d, e, f]| {
            let (even, odd) = (e - four * c, d - four * b);
            let (near, twice) = (e - c, two * (d - b));
            [four * a - five * c + e, even + odd, even - odd, near + twice, near - twice, four * b - five * d + f]
        })
    }

    #[inline(always)]
    fn weights<T: Real>(x: [&Lanes<T>; 3]) -> [Lanes<T>; 6] {
        let [quarter, sixth, twelfth, small] = [1.0 / 4.0, 1.0 / 6.0, 1.0 / 12.0, 1.0 / 24.0].map(T::of);
        lanes(x, |[a, b, c]| {
            let (ends, far) = ((a + c) * -sixth, a * small + c * sixth);
            [a * quarter, ends - b * sixth, ends + b * sixth, far + b * twelfth, far - b * twelfth, c]
        })
    }

    #[inline(always)]
    fn output<T: Real>(x: [&Lanes<T>; 6]) -> [Lanes<T>; 4] {
        let [two, four, eight] = [2.0, 4.0, 8.0].map(T::of);
        lanes(x, |[a, b, c, d, e, f]| {
            let (sum, difference, far_sum, far_difference) = (b + c, b - c, d + e, d - e);
            [
                a + sum + far_sum,
                difference + two * far_difference,
                sum + four * far_sum,
                difference + eight * far_difference + f,
            ]
        })
    }

    #[inline(always)]
    fn output_grad<T: Real>(x: [&Lanes<T>; 4]) -> [Lanes<T>; 6] {
        let [two, four, eight] = [2.0, 4.0, 8.0].map(T::of);
        lanes(x, |[a, b, c, d]| {
            let (even, odd) = (a + c, b + d);
            let (far_even, far_odd) = (a + four * c, two * b + eight * d);
            [a, even + odd, even - odd, far_even + far_odd, far_even - far_odd, d]
        })
    }

    #[inline(always)]
    fn weights_grad<T: Real>(x: [&Lanes<T>; 6]) -> [Lanes<T>; 3] {
        let [quarter, sixth, twelfth, small] = [1.0 / 4.0, 1.0 / 6.0, 1.0 / 12.0, 1.0 / 24.0].map(T::of);
        lanes(x, |[a, b, c, d, e, f]| {
            let (sum, far_sum) = ((b + c) * sixth, d + e);
            [a * quarter - sum + far_sum * small, (c - b) * sixth + (d - e) * twelfth, far_sum * sixth - sum + f]
        })
    }
}
