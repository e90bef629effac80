//! A tensor's type: logical shape, element type and physical order.
//!
//! Layout is part of the type from the start, so that channels-last and padded channels are new values of
//! [`Layout`] and not a second kind of tensor. Files and hashes use the logical order.

use crate::{Bytes, DType, Shape};
use serde::{Deserialize, Serialize};

/// The order of an image's dimensions in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryOrder {
    /// Channels before pixels (the logical order).
    #[default]
    Nchw,
    /// Channels innermost ("channels last").
    Nhwc,
}

/// Physical order and channel padding of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Layout {
    /// Order of the dimensions in memory.
    pub order: MemoryOrder,
    /// Channels stored beyond the logical ones, always zero.
    pub channel_padding: u32,
}

/// Everything static about a tensor: logical shape, dtype and layout.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TensorType {
    /// Logical shape, `[N, C, H, W]` for images whatever the layout.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
    /// Physical order and padding.
    pub layout: Layout,
}

impl TensorType {
    /// A type in the logical (NCHW, unpadded) layout.
    pub fn new(shape: impl Into<Shape>, dtype: DType) -> Self {
        TensorType { shape: shape.into(), dtype, layout: Layout::default() }
    }

    /// The same dtype and layout with another shape.
    pub fn with_shape(&self, shape: impl Into<Shape>) -> Self {
        TensorType { shape: shape.into(), ..self.clone() }
    }

    /// The same shape, dtype and order without channel padding.
    pub fn unpadded(&self) -> Self {
        TensorType { layout: Layout { channel_padding: 0, ..self.layout }, ..self.clone() }
    }

    /// Rows that a slice of channels has: one a sample, one a pixel where channels are innermost.
    pub fn rows(&self) -> u64 {
        match (self.layout.order, self.shape.nchw()) {
            (MemoryOrder::Nhwc, Some([n, _, h, w])) => n.saturating_mul(h).saturating_mul(w),
            _ => self.shape.samples(),
        }
    }

    /// Stored elements, channel padding included; saturating.
    pub fn stored_elements(&self) -> u64 {
        match (self.layout.channel_padding, self.shape.nchw()) {
            (0, _) | (_, None) => self.shape.elements(),
            (padding, Some([n, c, h, w])) => Shape::from([n, c + u64::from(padding), h, w]).elements(),
        }
    }

    /// Stored bytes; saturating.
    pub fn bytes(&self) -> Bytes {
        self.stored_elements().saturating_mul(self.dtype.size())
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)?;
        if self.layout.order == MemoryOrder::Nhwc {
            f.write_str(" nhwc")?;
        }
        if self.layout.channel_padding > 0 {
            write!(f, " +{}c", self.layout.channel_padding)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_samples_or_pixels() {
        let mut ty = TensorType::new([2, 3, 4, 5], DType::BF16);
        assert_eq!(ty.rows(), 2);
        ty.layout.order = MemoryOrder::Nhwc;
        assert_eq!(ty.rows(), 40);
        assert_eq!(TensorType { shape: Shape::from([7, 3]), ..ty }.rows(), 7);
    }

    #[test]
    fn padding_is_stored_but_not_logical() {
        let mut ty = TensorType::new([2, 3, 4, 4], DType::BF16);
        assert_eq!(ty.bytes(), 192);
        ty.layout = Layout { order: MemoryOrder::Nhwc, channel_padding: 5 };
        assert_eq!((ty.bytes(), ty.shape.elements()), (512, 96));
        assert_eq!(ty.to_string(), "bf16[2, 3, 4, 4] nhwc +5c");
    }
}
