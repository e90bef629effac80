//! Adaptive average pooling; 1×1 is the global average.

use crate::{Layer, LayerError, Net};
use vdnn_graph::{Op, ValueId, op};

/// Average pooling `[N, C, H, W]` → `[N, C, size, size]`. Pushes nothing when the image already has that size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveAvgPool2d(pub u64);

impl Layer for AdaptiveAvgPool2d {
    fn push(&self, net: &mut Net, name: &str, x: ValueId) -> Result<ValueId, LayerError> {
        let output = [self.0; 2];
        match net.ty(x).shape.nchw() {
            Some([_, _, h, w]) if [h, w] == output => Ok(x),
            _ => net.single(name, Op::AdaptiveAvgPool2d(op::AdaptiveAvgPool2d { output }), &[x]),
        }
    }
}
