//! Average pooling.

use crate::{Layer, LayerError, Net};
use vdnn_graph::{Op, ValueId, op};

/// Average pooling `[N, C, H, W]` → `[N, C, OH, OW]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvgPool2d(op::AvgPool2d);

impl AvgPool2d {
    /// A square window with the stride given; padding, if any, counts in the divisor.
    pub fn new(kernel: u64, stride: u64) -> Self {
        let window = op::Window { stride: [stride; 2], ..op::Window::square(kernel) };
        AvgPool2d(op::AvgPool2d { window, count_include_pad: true })
    }

    /// Any window and divisor rule.
    pub fn with(pool: op::AvgPool2d) -> Self {
        AvgPool2d(pool)
    }
}

impl Layer for AvgPool2d {
    fn push(&self, net: &mut Net, name: &str, x: ValueId) -> Result<ValueId, LayerError> {
        net.single(name, Op::AvgPool2d(self.0), &[x])
    }
}
