//! Max pooling. Windows may overlap; padding acts as −∞. The backward reads X, Y and dY, as in the paper; or
//! the place of each window's first maximum, a byte, and dY alone.

use super::{Inferred, arity, nchw, same_type, window::Window};
use serde::{Deserialize, Serialize};
use vdnn_tensor::{DType, TensorType};

/// Attributes of max pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MaxPool2d {
    /// The sliding window.
    pub window: Window,
}

/// The index of a window without a pixel, which dilation may step over.
pub const NO_PLACE: u8 = u8::MAX;

/// The gradient of max pooling from indices, with X's height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MaxPool2dIndicesGrad {
    /// The forward attributes.
    pub pool: MaxPool2d,
    /// Height and width of X.
    pub input: [u64; 2],
}

impl MaxPool2d {
    /// True when a place in the window fits a byte, beside [`NO_PLACE`].
    pub fn has_indices(&self) -> bool {
        self.window.kernel[0].saturating_mul(self.window.kernel[1]) <= u64::from(NO_PLACE)
    }

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

    pub(super) fn infer_indices(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 1..=1)?;
        let y = self.output(inputs[0])?;
        let indices = self.indices(&y)?;
        Ok(vec![y, indices])
    }

    fn indices(&self, y: &TensorType) -> Result<TensorType, String> {
        if !self.has_indices() {
            let [kh, kw] = self.window.kernel;
            return Err(format!("expected a window of at most {NO_PLACE} places for indices, found {kh}x{kw}"));
        }
        Ok(TensorType { dtype: DType::U8, ..y.clone() })
    }

    pub(super) fn infer_grad(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 3..=3)?;
        let y = self.output(inputs[0])?;
        same_type("Y", &y, inputs[1])?;
        same_type("dY", &y, inputs[2])?;
        Ok(vec![inputs[0].clone()])
    }
}

impl MaxPool2dIndicesGrad {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 2..=2)?;
        let [n, c, ..] = nchw(inputs[1])?;
        let x = inputs[1].with_shape([n, c, self.input[0], self.input[1]]);
        let y = self.pool.output(&x)?;
        same_type("dY", &y, inputs[1])?;
        same_type("the indices", &self.pool.indices(&y)?, inputs[0])?;
        Ok(vec![x])
    }

    pub(super) fn infer_relu_bias(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 3..=3)?;
        same_type("Y", inputs[2], inputs[1])?;
        let dz = self.infer(&[inputs[0], inputs[2]])?.remove(0);
        let dbias = TensorType::new([dz.shape.dim(1)], dz.dtype.wide());
        Ok(vec![dz, dbias])
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
