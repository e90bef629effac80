//! The same numbers in another type: dtype, order of dimensions in memory, channel padding.
//!
//! Numbers that the new dtype does not have are rounded to nearest, ties to even. Padding channels are written as zeros, and
//! left out where the new type has none.

use super::{Inferred, arity};
use serde::{Deserialize, Serialize};
use vdnn_tensor::{DType, Layout, TensorType};

/// What a tensor is cast to; its logical shape stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cast {
    /// The element type of the result.
    pub dtype: DType,
    /// The physical order and padding of the result.
    pub layout: Layout,
}

impl Cast {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 1..=1)?;
        let x = inputs[0];
        if !x.dtype.is_float() || !self.dtype.is_float() {
            return Err(format!("expected floating-point types, found {} to {}", x.dtype, self.dtype));
        }
        if x.shape.rank() != 4 && self.layout != Layout::default() {
            return Err(format!("expected an image [N, C, H, W] to order otherwise, found {}", x.shape));
        }
        Ok(vec![TensorType { shape: x.shape.clone(), dtype: self.dtype, layout: self.layout }])
    }
}
