//! What part of a storage a value covers: which writes destroy what is there.

use std::ops::Range;
use vdnn_tensor::{Bytes, TensorType};

/// Rows of a storage (samples, or pixels where channels are innermost), and bytes of each.
#[derive(Clone, Debug)]
pub(super) struct Span {
    rows: Range<u64>,
    bytes: Range<Bytes>,
}

impl Span {
    /// What a value of this type covers from an offset on in a storage of another.
    pub fn at(offset: Bytes, ty: &TensorType, storage: &TensorType) -> Self {
        let row_bytes = |ty: &TensorType| ty.bytes() / ty.rows().max(1);
        let stride = row_bytes(storage).max(1);
        let (row, byte) = (offset / stride, offset % stride);
        Span { rows: row..row + ty.rows().max(1), bytes: byte..byte + row_bytes(ty) }
    }

    pub fn meets(&self, other: &Span) -> bool {
        let meet = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        meet(&self.rows, &other.rows) && meet(&self.bytes, &other.bytes)
    }

    pub fn holds(&self, other: &Span) -> bool {
        let holds = |a: &Range<u64>, b: &Range<u64>| a.start <= b.start && b.end <= a.end;
        holds(&self.rows, &other.rows) && holds(&self.bytes, &other.bytes)
    }
}
