//! Static shapes, outermost dimension first: images are `[N, C, H, W]`, features `[N, C]`.

use serde::{Deserialize, Serialize};

/// The sizes of a tensor's dimensions. Rank 0 is a scalar with one element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(Vec<u64>);

impl Shape {
    /// A shape from its dimensions.
    pub fn new(dims: impl Into<Vec<u64>>) -> Self {
        Shape(dims.into())
    }

    /// The dimensions.
    pub fn dims(&self) -> &[u64] {
        &self.0
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements; 1 for a scalar, 0 when any dimension is 0.
    ///
    /// Saturates at `u64::MAX` instead of wrapping, so that an absurd shape is refused by a size check.
    pub fn elements(&self) -> u64 {
        self.0.iter().fold(1u64, |product, &dim| product.saturating_mul(dim))
    }

    /// Elements of one sample: all dimensions but the first (1 for rank 0 and 1).
    pub fn elements_per_sample(&self) -> u64 {
        self.0.iter().skip(1).fold(1u64, |product, &dim| product.saturating_mul(dim))
    }

    /// The first dimension, or 1 for a scalar.
    pub fn samples(&self) -> u64 {
        self.0.first().copied().unwrap_or(1)
    }

    /// `[N, C, H, W]` when the rank is 4.
    pub fn nchw(&self) -> Option<[u64; 4]> {
        self.0.as_slice().try_into().ok()
    }

    /// The size of dimension `index`, or 1 beyond the rank.
    pub fn dim(&self, index: usize) -> u64 {
        self.0.get(index).copied().unwrap_or(1)
    }
}

impl<const N: usize> From<[u64; N]> for Shape {
    fn from(dims: [u64; N]) -> Self {
        Shape(dims.to_vec())
    }
}

impl From<Vec<u64>> for Shape {
    fn from(dims: Vec<u64>) -> Self {
        Shape(dims)
    }
}

impl From<&[u64]> for Shape {
    fn from(dims: &[u64]) -> Self {
        Shape(dims.to_vec())
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{dim}")?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_elements_in_64_bits() {
        assert_eq!(Shape::from([70_000, 70_000]).elements(), 4_900_000_000);
        assert_eq!(Shape::from([u64::MAX, 3]).elements(), u64::MAX);
        assert_eq!(Shape::default().elements(), 1);
        assert_eq!(Shape::from([0, 3, 8, 8]).elements(), 0);
        assert_eq!(Shape::from([2, 3, 4, 5]).elements_per_sample(), 60);
    }
}
