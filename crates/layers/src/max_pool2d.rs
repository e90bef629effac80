//! Max pooling.

use crate::{Layer, LayerError, Net};
use vdnn_graph::{Op, ValueId, op};

/// Max pooling `[N, C, H, W]` → `[N, C, OH, OW]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxPool2d(op::Window);

impl MaxPool2d {
    /// A square window with the stride given.
    pub fn new(kernel: u64, stride: u64) -> Self {
        MaxPool2d(op::Window { stride: [stride; 2], ..op::Window::square(kernel) })
    }

    /// Implicit border on each side.
    pub fn padding(self, padding: u64) -> Self {
        MaxPool2d(op::Window { padding: [padding; 2], ..self.0 })
    }

    /// Rounds the number of windows up.
    pub fn ceil_mode(self) -> Self {
        MaxPool2d(op::Window { ceil_mode: true, ..self.0 })
    }

    /// Any window.
    pub fn window(window: op::Window) -> Self {
        MaxPool2d(window)
    }
}

impl Layer for MaxPool2d {
    fn push(&self, net: &mut Net, name: &str, x: ValueId) -> Result<ValueId, LayerError> {
        net.single(name, Op::MaxPool2d(op::MaxPool2d { window: self.0 }), &[x])
    }
}
