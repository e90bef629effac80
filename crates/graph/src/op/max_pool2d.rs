//! Max pooling. Windows may overlap; padding acts as −∞. The backward reads X, Y and dY, as in the paper.

use super::{Inferred, arity, nchw, same_type, window::Window};
use serde::{Deserialize, Serialize};
use vdnn_tensor::TensorType;

/// Attributes of max pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MaxPool2d {
    /// The sliding window.
    pub window: Window,
}

impl MaxPool2d {
    fn output(&self, x: &TensorType) -> Result<TensorType, String> {
        let [n, c, h, w] = nchw(x)?;
        pool_padding(&self.window)?;
        let [oh, ow] = self.window.output([h, w])?;
        Ok(x.with_shape([n, c, oh, ow]))
    }

    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 1..=1)?;
        Ok(vec![self.output(inputs[0])?])
    }

    pub(super) fn infer_grad(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 3..=3)?;
        let y = self.output(inputs[0])?;
        same_type("Y", &y, inputs[1])?;
        same_type("dY", &y, inputs[2])?;
        Ok(vec![inputs[0].clone()])
    }
}

/// Padding of at most half the kernel keeps every window on at least one pixel.
pub(super) fn pool_padding(window: &Window) -> Result<(), String> {
    for axis in 0..2 {
        if window.padding[axis] > window.kernel[axis] / 2 {
            return Err(format!(
                "expected padding of at most half the kernel ({}), found {}",
                window.kernel[axis] / 2,
                window.padding[axis]
            ));
        }
    }
    Ok(())
}
