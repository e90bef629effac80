//! Flatten `[N, C, H, W]` to `[N, C·H·W]`, and its backward. The same bytes under another shape.

use super::{Inferred, arity};
use serde::{Deserialize, Serialize};
use vdnn_tensor::{Layout, Shape, TensorType};

/// Back from `[N, features]` to `[N, sample…]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Unflatten {
    /// Dimensions of one sample.
    pub sample: Vec<u64>,
}

pub(super) fn infer(inputs: &[&TensorType]) -> Inferred {
    arity(inputs, 1..=1)?;
    let shape = &inputs[0].shape;
    if shape.rank() < 2 {
        return Err(format!("expected [N, …], found {shape}"));
    }
    if inputs[0].layout != Layout::default() {
        return Err(format!("expected the logical order of dimensions, found {}; cast it first", inputs[0]));
    }
    Ok(vec![inputs[0].with_shape([shape.samples(), shape.elements_per_sample()])])
}

impl Unflatten {
    pub(super) fn infer(&self, inputs: &[&TensorType]) -> Inferred {
        arity(inputs, 1..=1)?;
        let shape = &inputs[0].shape;
        let mut dims = vec![shape.samples()];
        dims.extend(&self.sample);
        let output = Shape::new(dims);
        if output.elements() != shape.elements() {
            return Err(format!("expected {} elements, found {shape}", output.elements()));
        }
        Ok(vec![inputs[0].with_shape(output)])
    }
}
